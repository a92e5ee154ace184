//! Tests that Surus waits as long as an authority asks, and decides by its clock.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::pebble::{Behaviour, Pebble};
use super::{Acme, OBTAINED, Place, file_name};
use crate::common::certificates::Authority;

/// An authority that makes accounts, and refuses each order for its rate limits.
struct Refusing {
    url: String,
    dir: tempfile::TempDir,
    orders: Arc<AtomicUsize>,
}

/// What its answers have in common.
#[derive(Clone, Copy)]
struct Manner {
    /// Fields of the refusal.
    refusal: &'static str,
    /// The `Date` of all answers.
    date: SystemTime,
}

impl Manner {
    fn now(refusal: &'static str) -> Manner {
        let date = SystemTime::now();
        Manner { refusal, date }
    }

    /// With a clock that shows the beginning of about this year.
    fn in_year(year: u64) -> Manner {
        let since = Duration::from_secs((year - 1970) * 31_556_952);
        Manner {
            refusal: "",
            date: SystemTime::UNIX_EPOCH + since,
        }
    }
}

impl Refusing {
    fn start(manner: Manner) -> Refusing {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("Refusing's own");
        std::fs::write(dir.path().join("authority.pem"), &authority.pem).unwrap();
        let issued = authority.issue(&["127.0.0.1"]);
        let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate], key)
                .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("https://{}", listener.local_addr().unwrap());
        let orders = Arc::new(AtomicUsize::new(0));
        let (url, counted) = (format!("{base}/dir"), orders.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (config, base, orders) = (config.clone(), base.clone(), counted.clone());
                thread::spawn(move || answer(client, config, &base, manner, &orders));
            }
        });
        Refusing { url, dir, orders }
    }

    fn authority_ca(&self) -> String {
        let path = self.dir.path().join("authority.pem");
        path.to_str().unwrap().to_owned()
    }

    fn orders(&self) -> usize {
        self.orders.load(Ordering::SeqCst)
    }

    fn serve(&self, place: &Place) -> Acme {
        let command = Command::new(env!("CARGO_BIN_EXE_surus"));
        let args = ["--domain", "a.example"];
        place.serve_of(command, &self.url, &self.authority_ca(), &args, &[])
    }
}

/// Answers the one request of a connection.
fn answer(
    client: TcpStream,
    config: Arc<ServerConfig>,
    base: &str,
    manner: Manner,
    orders: &AtomicUsize,
) -> Option<()> {
    let stream = StreamOwned::new(ServerConnection::new(config).ok()?, client);
    let mut stream = BufReader::new(stream);
    let mut first = String::new();
    stream.read_line(&mut first).ok()?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    stream.read_exact(&mut vec![0; length]).ok()?;
    let target = first.split(' ').nth(1)?;
    let (status, extra, body) = match target {
        "/dir" => {
            let urls = [
                "newNonce",
                "newAccount",
                "newOrder",
                "revokeCert",
                "keyChange",
            ];
            let urls = urls.map(|name| format!("\"{name}\": \"{base}/{name}\""));
            ("200 OK", "", format!("{{{}}}", urls.join(", ")))
        }
        "/newAccount" => ("201 Created", "Location: /account/1\r\n", "{}".into()),
        "/newOrder" => {
            orders.fetch_add(1, Ordering::SeqCst);
            let kind = "urn:ietf:params:acme:error:rateLimited";
            let body = format!("{{\"type\": \"{kind}\", \"detail\": \"too many orders\"}}");
            ("429 Too Many Requests", manner.refusal, body)
        }
        _ => ("200 OK", "", String::new()),
    };
    let date = httpdate::fmt_http_date(manner.date);
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nDate: {date}\r\nReplay-Nonce: abc\r\n{extra}\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let stream = stream.get_mut();
    let body = if first.starts_with("HEAD") { "" } else { &body };
    stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}

/// What a command of `surus` prints for the project.
fn surus(command: &str, place: &Place) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg(command)
        .arg(place.site.path())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn authority_that_asks_to_wait_is_not_asked_again_before() {
    let authority = Refusing::start(Manner::now("Retry-After: 7200\r\n"));
    let place = Place::new();
    let acme = authority.serve(&place);
    acme.wait_for(1, "next_attempt_in_minutes=120");
    let log = acme.surus().log();
    for text in [
        "the authority asks to wait before the next attempt",
        "minutes=120",
        "rateLimited",
        "too many orders",
    ] {
        assert!(log.contains(text), "{text}: {log}");
    }
    // The order is not repeated without `replaces` or with another nonce.
    assert_eq!(authority.orders(), 1);
    acme.surus().wait_for_log(|_| {
        let status = surus("status", &place);
        status.contains("next attempt to get a certificate for a.example is at")
            && (status.contains("(in 120 min)") || status.contains("(in 119 min)"))
            && status.contains("too many orders")
    });
    // Neither an operator nor a restart shortens it.
    surus("reload", &place);
    const TOO_EARLY: &str = "because the authority asks to wait";
    acme.wait_for(1, TOO_EARLY);
    drop(acme);
    let acme = authority.serve(&place);
    acme.wait_for(1, TOO_EARLY);
    acme.surus().wait_for_log(|_| {
        let status = surus("status", &place);
        status.contains("min): the authority asks to wait")
    });
    assert_eq!(authority.orders(), 1);
    assert_eq!(acme.get("a.example"), (200, None));
    // When the time is over, it is asked again.
    drop(acme);
    let file = format!("retry-after/{}/a.example", file_name(&authority.url));
    for file in [&*file, "failures/a.example"] {
        let file = std::fs::File::options()
            .write(true)
            .open(place.directory().join(file))
            .unwrap();
        let past = SystemTime::now() - Duration::from_secs(7300);
        file.set_modified(past).unwrap();
    }
    let acme = authority.serve(&place);
    acme.wait_for(1, "next_attempt_in_minutes=120");
    assert_eq!(authority.orders(), 2);
}

#[test]
fn rate_limit_without_a_time_lasts_an_hour() {
    let authority = Refusing::start(Manner::now(""));
    let place = Place::new();
    let acme = authority.serve(&place);
    acme.wait_for(1, "next_attempt_in_minutes=60");
    assert_eq!(authority.orders(), 1);
}

#[test]
fn other_authority_issues_while_one_asks_to_wait() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let refusing = Refusing::start(Manner::now("Retry-After: 7200\r\n"));
    let both = format!("{},{}", refusing.url, pebble.url);
    let roots = [refusing.authority_ca(), pebble.authority_ca()];
    let roots = roots.map(|path| std::fs::read_to_string(path).unwrap());
    let ca = place.state.path().join("both.pem");
    std::fs::write(&ca, roots.concat()).unwrap();
    let (ca, domain) = (ca.to_str().unwrap(), ["--domain", "a.example"]);
    let serve = || {
        let command = Command::new(env!("CARGO_BIN_EXE_surus"));
        place.serve_of(command, &both, ca, &domain, &[])
    };
    let acme = serve();
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    drop(acme);
    // It is renewed by the other one alone.
    for file in place.files(&format!("certificates/{}", file_name(&pebble.url))) {
        std::fs::write(file, "damaged").unwrap();
    }
    let acme = serve();
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    assert_eq!(refusing.orders(), 1);
}

/// A stored account, without which no authority is asked for its suggestion.
fn leave_account(place: &Place, authority: &Refusing) {
    let key = rcgen::KeyPair::generate().unwrap().serialize_der();
    let account = serde_json::json!({
        "id": "/account/1",
        "key_pkcs8": BASE64_URL_SAFE_NO_PAD.encode(key),
        "directory": authority.url,
    });
    let name = format!("accounts/{}.json", file_name(&authority.url));
    place.leave(&name, &account.to_string());
}

const DIFFERS: &str = "the clock of this machine differs from the authority's";

#[test]
fn certificate_that_is_due_by_a_clock_ahead_alone_is_not_ordered() {
    let authority = Refusing::start(Manner::in_year(2010));
    let place = Place::new();
    leave_account(&place, &authority);
    // Two thirds of it are over since 2023.
    let old = Authority::new("Old").issue_between(&["a.example"], 1970, 2050);
    place.leave_certificate(&authority.url, "a.example", &old);
    let acme = authority.serve(&place);
    acme.wait_for(1, DIFFERS);
    let log = acme.surus().log();
    assert!(log.contains("days ahead"), "{log}");
    surus("reload", &place);
    acme.wait_for(2, DIFFERS);
    assert_eq!(authority.orders(), 0);
    assert_eq!(acme.get("a.example").0, 301);
}

#[test]
fn certificate_that_is_due_is_ordered_by_a_clock_behind() {
    let authority = Refusing::start(Manner::in_year(3900));
    let place = Place::new();
    leave_account(&place, &authority);
    let new = Authority::new("New").issue(&["a.example"]);
    place.leave_certificate(&authority.url, "a.example", &new);
    let acme = authority.serve(&place);
    acme.wait_for(1, "too many orders");
    acme.wait_for(1, DIFFERS);
    let log = acme.surus().log();
    assert!(log.contains("days behind"), "{log}");
    assert_eq!(acme.get("a.example").0, 301);
}

#[test]
fn certificate_of_the_future_is_served_and_named() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let future = Authority::new("New").issue_between(&["a.example"], 3000, 3001);
    place.leave_certificate(&pebble.url, "a.example", &future);
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    acme.wait_for(1, "which is not yet by the clock of this machine");
    assert_eq!(acme.get("a.example").0, 301);
    assert!(!acme.surus().log().contains(OBTAINED));
    let (directory, ca) = (place.directory(), pebble.authority_ca());
    let checked = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("check")
        .arg(place.site.path())
        .env("SURUS_TLS_LISTEN", "127.0.0.1:0")
        .env("SURUS_ACME_DOMAINS", "a.example")
        .env("SURUS_ACME_DIRECTORY", directory)
        .env("SURUS_ACME_AUTHORITIES", &pebble.url)
        .env("SURUS_ACME_AUTHORITY_CA", ca)
        .output()
        .unwrap();
    let checked = [checked.stdout, checked.stderr].concat();
    let checked = String::from_utf8_lossy(&checked);
    assert!(
        checked.contains("not yet by the clock of this machine"),
        "{checked}"
    );
}
