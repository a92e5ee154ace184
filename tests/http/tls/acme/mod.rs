//! Tests that Surus gets and renews certificates, from Pebble.

mod pebble;

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::RootCertStore;

use self::pebble::{Behaviour, Pebble};
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
        let (directory, authority_ca) = (self.directory(), pebble.authority_ca());
        let usual = [
            ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
            ("SURUS_ENGINE_WORKERS", "1"),
            ("SURUS_ACME_DIRECTORY", directory.to_str().unwrap()),
            ("SURUS_ACME_AUTHORITIES", &pebble.url),
            ("SURUS_ACME_AUTHORITY_CA", &authority_ca),
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

#[test]
fn domain_is_served_without_tls_until_it_has_a_certificate() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    // The authority cannot validate yet.
    assert_eq!(acme.get("a.example"), (200, None));
    let roots = pebble.roots();
    assert!(!acme.is_trusted("a.example", &roots));
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    acme.wait_for(1, "certificate read");
    assert!(
        acme.is_trusted("a.example", &roots),
        "{}",
        acme.surus().log()
    );
    wait_for_attempt(&acme, &place, "issued");
    let (status, location) = acme.get("a.example");
    let location = location.unwrap();
    assert_eq!(status, 301);
    assert!(location.starts_with("https://a.example"), "{location}");
    for directory in ["accounts", "certificates"] {
        let directory = place.directory().join(directory);
        assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o700);
    }
    let authority = file_name(&pebble.url);
    let files = [
        place.files("accounts"),
        place.files(&format!("certificates/{authority}")),
    ];
    assert_eq!(files.each_ref().map(Vec::len), [1, 1]);
    for file in files.iter().flatten() {
        let found = file.metadata().unwrap();
        assert_eq!(found.mode() & 0o777, 0o600, "{}", file.display());
        assert_eq!(found.uid(), surus_sys::process::uid());
    }
    // A restart serves what is there.
    drop(acme);
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    assert!(acme.is_trusted("a.example", &roots));
    assert!(!acme.surus().log().contains(OBTAINED));
}

#[test]
fn certificate_comes_by_tls_if_http_has_failed() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let failures = place.leave("failures/a.example", "1");
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    let file = std::fs::File::options()
        .write(true)
        .open(&failures)
        .unwrap();
    file.set_modified(long_ago).unwrap();
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    pebble.tls.open(&acme.0.address);
    acme.wait_for(1, OBTAINED);
    acme.wait_for(1, "certificate read");
    assert!(acme.is_trusted("a.example", &pebble.roots()));
    acme.surus().wait_for_log(|_| !failures.exists());
}

#[test]
fn faults_of_the_authority_are_overcome_for_every_domain() {
    let behaviour = Behaviour {
        env: &[
            ("PEBBLE_WFE_NONCEREJECT", "15"),
            ("PEBBLE_AUTHZREUSE", "100"),
        ],
        ..Behaviour::default()
    };
    let (pebble, place) = (Pebble::start(&behaviour), Place::new());
    let domains = [
        "--domain",
        "blocked.example",
        "--domain",
        "a.example",
        "--domain",
        "b.example",
    ];
    let acme = place.serve(&pebble, &domains, &[]);
    acme.open(&pebble);
    acme.wait_for(2, OBTAINED);
    let roots = pebble.roots();
    acme.surus()
        .wait_for_log(|_| acme.is_trusted("b.example", &roots));
    assert!(acme.is_trusted("a.example", &roots));
    assert!(!acme.is_trusted("blocked.example", &roots));
    let log = acme.surus().log();
    assert!(log.contains("blocked.example"), "{log}");
    assert_eq!(place.files("failures").len(), 1);
    // It is not redirected to a certificate that clients reject.
    assert_eq!(acme.get("blocked.example"), (200, None));
    assert_eq!(acme.get("b.example").0, 301);
}

#[test]
fn failed_validation_is_reported_with_the_reason_and_not_repeated_at_once() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    // No server listens there: the listener is dropped.
    pebble.http.open(&format!("127.0.0.1:{}", closed_port()));
    acme.wait_for(1, "next_attempt_in_minutes");
    let log = acme.surus().log();
    assert!(
        log.contains("the validation by HTTP-01 has failed"),
        "{log}"
    );
    wait_for_attempt(&acme, &place, "failed");
    drop(acme);
    let failures = place.directory().join("failures/a.example");
    assert_eq!(std::fs::read_to_string(&failures).unwrap(), "1");
    // A restart does not try again before its time.
    let acme = place.serve(
        &pebble,
        &["--domain", "a.example"],
        &[("SURUS_LOG_LEVEL", "debug")],
    );
    acme.wait_for(1, "because earlier ones have failed");
    assert_eq!(std::fs::read_to_string(&failures).unwrap(), "1");
}

/// PHP decides when the application has changed.
#[test]
fn reload_of_a_changed_application_asks_no_authority() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let index = "<?php surus_serve(function () {
        surus_boot_outdated('everything', uniqid());
        echo 'served';
    });";
    std::fs::write(place.site.path().join("index.php"), index).unwrap();
    let args = ["--domain", "a.example", "--engine", "worker"];
    let args = [&args[..], &["-d", "opcache.revalidate_freq=1"]].concat();
    let acme = place.serve(&pebble, &args, &[]);
    pebble.http.open(&format!("127.0.0.1:{}", closed_port()));
    acme.wait_for(1, "next_attempt_in_minutes");
    acme.surus().wait_for_log(|log| {
        assert_eq!(acme.get("a.example").0, 200);
        log.contains("reloaded")
    });
    const TOO_EARLY: &str = "because earlier ones have failed";
    for times in 1..=2 {
        let reload = Command::new(env!("CARGO_BIN_EXE_surus"))
            .arg("reload")
            .arg(place.site.path())
            .status();
        assert!(reload.unwrap().success());
        acme.wait_for(times, TOO_EARLY);
    }
    let log = acme.surus().log();
    assert_eq!(log.matches(TOO_EARLY).count(), 2, "{log}");
}

/// The process that speaks to the authority, while it does.
fn client(acme: &Acme) -> Option<u32> {
    let keeper = acme.surus().pid();
    let children = format!("/proc/{keeper}/task/{keeper}/children");
    let children = std::fs::read_to_string(children).unwrap();
    let mut all = children.split_whitespace();
    let found = all.find(|pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim() == "surus acme")
    });
    found.map(|pid| pid.parse().unwrap())
}

#[test]
fn process_that_speaks_to_the_authority_has_no_rights() {
    if !surus_sys::process::is_root() {
        return;
    }
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    // It waits for the validation.
    acme.surus().wait_for_log(|_| client(&acme).is_some());
    let pid = client(&acme).unwrap();
    assert_ne!(crate::common::user_of(pid).0, 0);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for line in [
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
    ] {
        assert!(status.contains(line), "{line}: {status}");
    }
    assert!(status.contains("Seccomp:\t2"), "{status}");
    // Killed, it counts as a failure.
    let killed = Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status();
    assert!(killed.unwrap().success());
    let failures = place.directory().join("failures/a.example");
    acme.surus().wait_for_log(|_| failures.exists());
    assert_eq!(acme.get("a.example"), (200, None));
    assert_eq!(client(&acme), None);
}

#[test]
fn server_of_a_user_gets_certificates_itself() {
    if !surus_sys::process::is_root() {
        // All other tests test it.
        return;
    }
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let user = surus_sys::process::find_user("nobody", None)
        .unwrap()
        .unwrap();
    let build = Path::new(env!("CARGO_BIN_EXE_surus"));
    let here = place.state.path();
    for name in [
        "surus",
        &format!("surus-php{}", crate::common::php::minor()),
    ] {
        std::fs::copy(build.with_file_name(name), here.join(name)).unwrap();
    }
    let runtime = here.join("run");
    for directory in [&runtime, &place.directory()] {
        std::fs::create_dir(directory).unwrap();
        std::os::unix::fs::chown(directory, Some(user.uid), None).unwrap();
        std::fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
    }
    for path in [
        place.site.path(),
        Path::new(&pebble.authority_ca()).parent().unwrap(),
    ] {
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("setpriv");
    let (uid, gid) = (
        format!("--reuid={}", user.uid),
        format!("--regid={}", user.gid),
    );
    command
        .args([&uid, &gid, "--clear-groups"])
        .arg(here.join("surus"));
    let env = [("XDG_RUNTIME_DIR", runtime.to_str().unwrap())];
    let acme = place.serve_by(command, &pebble, &["--domain", "a.example"], &env);
    assert_eq!(acme.surus().front(), acme.surus().pid());
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    let roots = pebble.roots();
    acme.surus()
        .wait_for_log(|_| acme.is_trusted("a.example", &roots));
    let stored = place.files("accounts").remove(0).metadata().unwrap();
    assert_eq!((stored.uid(), stored.mode() & 0o777), (user.uid, 0o600));
}

fn closed_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn next_authority_issues_if_the_first_one_is_down() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let down = format!("https://127.0.0.1:{}/dir", closed_port());
    let both = format!("{down},{}", pebble.url);
    let env = [("SURUS_ACME_AUTHORITIES", &*both)];
    let acme = place.serve(&pebble, &["--domain", "a.example"], &env);
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    acme.wait_for(1, "certificate read");
    assert!(acme.is_trusted("a.example", &pebble.roots()));
    let log = acme.surus().log();
    assert!(log.contains("cannot reach 127.0.0.1"), "{log}");
}

#[test]
fn expired_certificate_is_renewed_without_a_lost_request() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let expired = Authority::new("Old").issue_until(&["a.example"], 2001);
    place.leave_certificate(&pebble.url, "a.example", &expired);
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    let roots = pebble.roots();
    assert!(!acme.is_trusted("a.example", &roots));
    let address = acme.surus().address.clone();
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let until = is_over.clone();
    let load = std::thread::spawn(move || {
        let mut answered = 0;
        while !until.load(std::sync::atomic::Ordering::Relaxed) {
            let mut wire = Wire::to(&address);
            for _ in 0..5 {
                // The redirect begins when there is a certificate.
                let get = "GET /index.php HTTP/1.1\r\nHost: a.example\r\n\r\n";
                let status = wire.ask(get).unwrap().status;
                assert!([200, 301].contains(&status), "{status}");
                answered += 1;
            }
        }
        answered
    });
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    acme.surus()
        .wait_for_log(|_| acme.is_trusted("a.example", &roots));
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(load.join().unwrap() > 0);
}

#[test]
fn authority_decides_when_a_certificate_is_renewed() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    acme.wait_for(1, "certificate read");
    let before = acme.stored(&place, &pebble, "a.example");
    let window =
        r#"{"suggestedWindow": {"start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"}}"#;
    let certificate = before
        .split_inclusive("-----END PRIVATE KEY-----")
        .nth(1)
        .unwrap();
    let leaf = certificate
        .split_inclusive("-----END CERTIFICATE-----")
        .next()
        .unwrap();
    let body = serde_json::json!({"certificate": leaf.trim(), "ARIResponse": window});
    pebble.manage("/set-renewal-info/", Some(&body.to_string()));
    let reload = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("reload")
        .arg(place.site.path())
        .status();
    assert!(reload.unwrap().success());
    acme.wait_for(2, OBTAINED);
    let stored = || acme.stored(&place, &pebble, "a.example");
    acme.surus().wait_for_log(|_| stored() != before);
}

#[test]
fn damaged_state_is_replaced() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let authority = file_name(&pebble.url);
    place.leave(&format!("accounts/{authority}.json"), "{\"id\":");
    let truncated = "-----BEGIN CERTIFICATE-----\nAAAA";
    place.leave(
        &format!("certificates/{authority}/a.example.pem"),
        truncated,
    );
    place.leave("failures/a.example", "\u{0}");
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    let failures = place.directory().join("failures/a.example");
    let file = std::fs::File::options()
        .write(true)
        .open(&failures)
        .unwrap();
    file.set_modified(long_ago).unwrap();
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    assert_eq!(acme.get("a.example"), (200, None));
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    let roots = pebble.roots();
    acme.surus()
        .wait_for_log(|_| acme.is_trusted("a.example", &roots));
    let log = acme.surus().log();
    assert!(log.contains("the account's file is damaged"), "{log}");
}

#[test]
fn account_that_the_authority_has_lost_is_replaced() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    drop(acme);
    let account = place.files("accounts").remove(0);
    let text = std::fs::read_to_string(&account).unwrap();
    let (known, _) = text.split_once("/my-account/").unwrap();
    let (_, rest) = text.split_once("/my-account/").unwrap();
    let (_, rest) = rest.split_once('"').unwrap();
    std::fs::write(&account, format!("{known}/my-account/none\"{rest}")).unwrap();
    let acme = place.serve(&pebble, &["--domain", "b.example"], &[]);
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    acme.wait_for(1, "ACME account created");
    let account = || std::fs::read_to_string(&account).unwrap();
    acme.surus()
        .wait_for_log(|_| !account().contains("/my-account/none"));
}

#[test]
fn certificate_that_would_be_renewed_at_once_is_served_and_counts_as_a_failure() {
    let behaviour = Behaviour {
        seconds: 1,
        ..Behaviour::default()
    };
    let (pebble, place) = (Pebble::start(&behaviour), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    acme.open(&pebble);
    acme.wait_for(1, "check the clock of this machine");
    acme.wait_for(1, "certificate read");
    let failures = place.directory().join("failures/a.example");
    acme.surus()
        .wait_for_log(|_| std::fs::read_to_string(&failures).is_ok_and(|text| text == "1"));
}

#[test]
fn full_disk_costs_no_order_and_serving_goes_on() {
    if !surus_sys::process::is_root() {
        return;
    }
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    std::fs::create_dir(place.directory()).unwrap();
    let mount = |options: &str| {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "none"]);
        command.arg(place.directory()).status().unwrap().success()
    };
    if !mount("size=4k,mode=700") {
        eprintln!("not tested: nothing can be mounted here");
        return;
    }
    let _unmounted = Unmounted(place.directory());
    std::fs::write(place.directory().join("full"), [0; 4096]).unwrap();
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    acme.open(&pebble);
    acme.wait_for(1, "cannot write to");
    let log = acme.surus().log();
    assert!(
        log.contains("(acme.directory)") && log.contains("No space left"),
        "{log}"
    );
    assert_eq!(acme.get("a.example"), (200, None));
    assert!(mount("remount,size=4m,mode=700"));
    let reload = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("reload")
        .arg(place.site.path())
        .status();
    assert!(reload.unwrap().success());
    acme.wait_for(1, OBTAINED);
}

struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn state_that_others_may_read_stops_the_start() {
    let place = Place::new();
    place.leave("accounts/x.json", "{}");
    let open = Permissions::from_mode(0o755);
    std::fs::set_permissions(place.directory(), open).unwrap();
    let env = [
        ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
        ("SURUS_ACME_DIRECTORY", place.directory().to_str().unwrap()),
    ]
    .map(|(name, value)| (name, value.to_owned()));
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let refused = Surus::spawn(place.site.path(), &["--domain", "a.example"], &env);
    let said = refused.err().unwrap();
    assert!(said.contains("with mode 700"), "{said}");
}

#[test]
fn wildcard_and_address_are_rejected_on_the_command_line() {
    for (domain, why) in [("*.a.example", "wildcard"), ("127.0.0.1", "name a host")] {
        let refused = Surus::spawn(Path::new("/tmp"), &["--domain", domain], &[]);
        let said = refused.err().unwrap();
        assert!(said.contains(why), "{said}");
    }
}
