//! Tests that Surus gets and renews certificates, from Pebble.

mod limits;
mod obtaining;
mod pebble;
mod privileges;
mod renewal;
mod state;
mod unstored;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use rustls::RootCertStore;

use self::pebble::Pebble;
use super::{Secure, https_address};
use crate::common::Surus;
use crate::common::certificates::{Authority, Issued};
use crate::wire::{Wire, site};

/// A site, and the state that Surus keeps.
struct Place {
    site: tempfile::TempDir,
    state: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let state = tempfile::tempdir().unwrap();
        std::fs::set_permissions(state.path(), Permissions::from_mode(0o755)).unwrap();
        Place {
            site: site(),
            state,
        }
    }

    fn directory(&self) -> PathBuf {
        self.state.path().join("acme")
    }

    /// Writes a file below the directory, as an earlier run would have left it.
    fn leave(&self, path: &str, content: &str) -> PathBuf {
        let file = self.directory().join(path);
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700);
        builder.create(file.parent().unwrap()).unwrap();
        std::fs::write(&file, content).unwrap();
        file
    }

    /// A certificate that an authority at this URL issued.
    fn leave_certificate(&self, url: &str, domain: &str, issued: &Issued) {
        let text = format!("{}{}", issued.key, issued.certificate);
        let authority = file_name(url);
        self.leave(&format!("certificates/{authority}/{domain}.pem"), &text);
    }

    fn serve(&self, pebble: &Pebble, args: &[&str], env: &[(&str, &str)]) -> Acme {
        self.serve_by(Command::new(env!("CARGO_BIN_EXE_surus")), pebble, args, env)
    }

    /// Through a command that becomes `surus`.
    fn serve_by(
        &self,
        command: Command,
        pebble: &Pebble,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Acme {
        let authority_ca = pebble.authority_ca();
        self.serve_of(command, &pebble.url, &authority_ca, args, env)
    }

    /// With authorities at these URLs.
    fn serve_of(
        &self,
        command: Command,
        urls: &str,
        authority_ca: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Acme {
        let directory = self.directory();
        let usual = [
            ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
            ("SURUS_ENGINE_WORKERS", "1"),
            ("SURUS_ACME_DIRECTORY", directory.to_str().unwrap()),
            ("SURUS_ACME_AUTHORITIES", urls),
            ("SURUS_ACME_AUTHORITY_CA", authority_ca),
        ];
        let env = [&usual, env].concat();
        let surus = Surus::spawn_by(command, self.site.path(), args, &env);
        let surus = surus.unwrap_or_else(|log| panic!("{log}"));
        let address = https_address(&surus);
        let authority = Authority::new("None");
        Acme(Secure {
            surus,
            address,
            authority,
        })
    }

    fn files(&self, directory: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.directory().join(directory));
        let entries = entries.into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

fn file_name(url: &str) -> String {
    url.trim_start_matches("https://").replace(['/', ':'], "_")
}

/// A server that gets certificates.
struct Acme(Secure);

impl Acme {
    fn surus(&self) -> &Surus {
        &self.0.surus
    }

    /// Lets the authority in.
    fn open(&self, pebble: &Pebble) {
        pebble.http.open(&self.surus().address);
        pebble.tls.open(&self.0.address);
    }

    fn wait_for(&self, times: usize, text: &str) {
        self.surus()
            .wait_for_log(|log| log.matches(text).count() >= times);
    }

    /// Whether a new client that trusts these roots accepts the server as this host.
    fn is_trusted(&self, name: &str, roots: &Arc<RootCertStore>) -> bool {
        self.connect(name, roots).is_some()
    }

    fn connect(&self, name: &str, roots: &Arc<RootCertStore>) -> Option<Wire> {
        let mut config = self.0.config(rustls::DEFAULT_VERSIONS);
        let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(
            roots.clone(),
            Arc::new(rustls::crypto::ring::default_provider()),
        );
        let verifier = verifier.build().unwrap();
        config.dangerous().set_certificate_verifier(verifier);
        let mut client = self.0.client_for(name, config);
        let mut socket = self.0.socket();
        client.complete_io(&mut socket).ok()?;
        Some(Wire::over(rustls::StreamOwned::new(client, socket)))
    }

    /// The serial numbers of the stored certificates differ, so their text does.
    fn stored(&self, place: &Place, pebble: &Pebble, domain: &str) -> String {
        let authority = file_name(&pebble.url);
        let path = format!("certificates/{authority}/{domain}.pem");
        std::fs::read_to_string(place.directory().join(path)).unwrap()
    }

    /// Status and `Location` of a request without TLS.
    fn get(&self, host: &str) -> (u16, Option<String>) {
        let mut wire = Wire::to(&self.surus().address);
        let request = format!("GET /index.php HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = wire.ask(&request).unwrap();
        (answer.status, answer.header("location").map(str::to_owned))
    }
}

const OBTAINED: &str = "certificate obtained";

/// Waits until the metrics have one attempt for a.example with this result.
fn wait_for_attempt(acme: &Acme, place: &Place, result: &str) {
    let counts = |result: &str, count: u32| {
        let name = "surus_acme_attempts_total";
        format!("{name}{{domain=\"a.example\",result=\"{result}\"}} {count}\n")
    };
    let other = if result == "issued" {
        "failed"
    } else {
        "issued"
    };
    acme.surus().wait_for_log(|_| {
        let metrics = super::admin(place.site.path(), "/-/metrics");
        metrics.contains(&counts(result, 1)) && metrics.contains(&counts(other, 0))
    });
}
