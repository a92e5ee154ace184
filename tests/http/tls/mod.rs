//! TLS as clients see it.

mod acme;
mod certificates;
mod client_certificates;
mod connections;
mod handshakes;
mod held;
mod load;
mod local;
mod reload;
mod start;

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, StreamOwned, SupportedProtocolVersion};

use crate::common::Surus;
use crate::common::certificates::{Authority, Issued};
use crate::wire::Wire;

/// The variables that put one certificate in place.
const ONE: [(&str, &str); 2] = [
    ("SURUS_TLS_CERTIFICATE", "server.crt"),
    ("SURUS_TLS_KEY", "server.key"),
];

/// A server at a port of TLS, next to one without.
pub struct Secure {
    pub surus: Surus,
    /// `127.0.0.1:PORT`.
    pub address: String,
    pub authority: Authority,
}

/// Serves the site with a certificate for `localhost`, and these environment variables.
pub fn serve(dir: &Path, env: &[(&str, &str)]) -> Secure {
    let authority = Authority::new("Test");
    let issued = authority.issue(&["localhost"]);
    serve_with(dir, authority, &issued, env)
}

pub fn serve_with(
    dir: &Path,
    authority: Authority,
    issued: &Issued,
    env: &[(&str, &str)],
) -> Secure {
    issued.write(dir, "server");
    let usual = [
        ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
        ("SURUS_ENGINE_WORKERS", "1"),
    ];
    let env = [&usual, &ONE, env].concat();
    let surus = Surus::spawn(dir, &[], &env).unwrap_or_else(|log| panic!("{log}"));
    let address = https_address(&surus);
    Secure {
        surus,
        address,
        authority,
    }
}

/// The address of the line that announces it.
pub fn https_address(surus: &Surus) -> String {
    const LINE: &str = "listening on https://";
    surus.wait_for_log(|log| {
        log.split(LINE)
            .nth(1)
            .is_some_and(|rest| rest.contains('\n'))
    });
    let log = surus.log();
    log.split(LINE)
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .trim()
        .to_string()
}

/// Far more than anything should take.
const PATIENCE: Duration = Duration::from_secs(60);

impl Secure {
    pub fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        socket
    }

    /// A client's configuration, without ALPN.
    pub fn config(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.authority.roots())
            .with_no_client_auth()
    }

    pub fn client(&self) -> ClientConnection {
        self.client_for("localhost", self.config(rustls::DEFAULT_VERSIONS))
    }

    pub fn client_for(&self, name: &str, config: ClientConfig) -> ClientConnection {
        let name = name.to_string().try_into().unwrap();
        ClientConnection::new(Arc::new(config), name).unwrap()
    }

    /// An encrypted connection of HTTP/1.1.
    pub fn connect(&self) -> Wire {
        self.connect_by(self.client())
    }

    pub fn connect_by(&self, client: ClientConnection) -> Wire {
        let socket = self.socket();
        Wire::over(StreamOwned::new(client, socket))
    }

    /// Whether a new connection for this host gets a certificate of the authority.
    pub fn has(&self, host: &str, authority: &Authority) -> bool {
        let mut config = self.config(rustls::DEFAULT_VERSIONS);
        config.resumption = rustls::client::Resumption::disabled();
        let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(
            authority.roots(),
            Arc::new(ring::default_provider()),
        );
        config
            .dangerous()
            .set_certificate_verifier(verifier.build().unwrap());
        let mut client = self.client_for(host, config);
        client.complete_io(&mut self.socket()).is_ok()
    }

    /// What curl prints. Its exit status must be 0.
    pub fn curl(&self, dir: &Path, arguments: &[&str], path: &str) -> String {
        let authority = dir.join("authority.pem");
        std::fs::write(&authority, &self.authority.pem).unwrap();
        let port = self.address.rsplit(':').next().unwrap();
        let output = std::process::Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60", "--cacert"])
            .arg(authority)
            .args(["--resolve", &format!("localhost:{port}:127.0.0.1")])
            .args(arguments)
            .arg(format!("https://localhost:{port}{path}"))
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{errors}{printed}\n{}",
            self.surus.log()
        );
        printed
    }

    /// The counter in the metrics.
    pub fn metric(&self, dir: &Path, name: &str) -> u64 {
        metric(dir, name)
    }
}

/// The counter in the metrics of the server of a project.
pub fn metric(dir: &Path, name: &str) -> u64 {
    let text = admin(dir, "/-/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{text}"));
    line.trim().parse().unwrap()
}

/// The admin listener's answer.
fn admin(dir: &Path, path: &str) -> String {
    use std::io::{Read, Write};
    let address = surus::fronts::admin::Settings::default().address(dir);
    let surus::fronts::address::Address::Unix(socket) = address else {
        panic!("{address}");
    };
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
