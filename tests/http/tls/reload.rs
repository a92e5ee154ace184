//! Tests new certificates without a restart.

use std::path::Path;
use std::process::Command;

use super::load::Load;
use super::{Secure, serve};
use crate::common::certificates::Authority;
use crate::wire::site;

const GET: &str = "GET /index.php HTTP/1.1\r\nHost: localhost\r\n\r\n";

pub fn reload(dir: &Path) -> Result<(), String> {
    let output = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("reload")
        .arg(dir)
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Whether a new connection gets a certificate of the authority.
fn is_by(secure: &Secure, authority: &Authority) -> bool {
    secure.has("localhost", authority)
}

#[test]
fn reload_takes_new_certificates_and_keeps_connections() {
    let dir = site();
    let secure = serve(dir.path(), &[]);
    let mut open = secure.connect();
    assert_eq!(open.ask(GET).unwrap().status, 200);
    let next = Authority::new("Next");
    next.issue(&["localhost"]).write(dir.path(), "server");
    reload(dir.path()).unwrap();
    assert!(is_by(&secure, &next) && !is_by(&secure, &secure.authority));
    assert_eq!(open.ask(GET).unwrap().status, 200);
    let path = dir.path().join("server.crt");
    assert!(secure.surus.log().matches(&*path.to_string_lossy()).count() >= 2);
}

/// By a reload, which boots the application again, and without one.
#[test]
fn replaced_files_lose_no_request() {
    let dir = site();
    let secure = serve(dir.path(), &[]);
    let config = secure.config(rustls::DEFAULT_VERSIONS);
    let load = Load::start(&secure.address, "localhost", &config);
    let path = dir.path().join("server.crt");
    let count = |log: &str| log.matches(&*path.to_string_lossy()).count();
    for is_reloaded in [true, false, true] {
        let known = count(&secure.surus.log());
        let next = secure.authority.issue(&["localhost"]);
        next.write(dir.path(), "server");
        if is_reloaded {
            reload(dir.path()).unwrap();
        }
        secure.surus.wait_for_log(|log| count(log) > known);
        load.proceed();
    }
    load.stop();
}

#[test]
fn bad_certificate_keeps_the_old_one_and_fails_the_reload() {
    let dir = site();
    let secure = serve(dir.path(), &[]);
    let other = Authority::new("Other").issue(&["localhost"]);
    std::fs::write(dir.path().join("server.key"), &other.key).unwrap();
    let error = reload(dir.path()).unwrap_err();
    assert!(
        error.contains("does not belong to the certificate"),
        "{error}"
    );
    assert!(is_by(&secure, &secure.authority));
    std::fs::remove_file(dir.path().join("server.key")).unwrap();
    let error = reload(dir.path()).unwrap_err();
    assert!(error.contains("server.key (tls.key)"), "{error}");
    assert!(is_by(&secure, &secure.authority));
}

#[test]
fn changed_files_are_noticed_and_bad_ones_reported() {
    let dir = site();
    let secure = serve(dir.path(), &[]);
    let next = Authority::new("Next");
    std::fs::write(dir.path().join("server.crt"), "nothing").unwrap();
    // While no client connects, the files are read every five minutes.
    assert!(is_by(&secure, &secure.authority));
    secure.surus.wait_for_log_within(60, |log| {
        log.contains("cannot reload the certificates; the current ones stay in use")
            && log.contains("is not a PEM file")
    });
    assert!(is_by(&secure, &secure.authority));
    next.issue(&["localhost"]).write(dir.path(), "server");
    let until = std::time::Instant::now() + super::PATIENCE;
    while !is_by(&secure, &next) {
        assert!(std::time::Instant::now() < until, "{}", secure.surus.log());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// A resumed session would not present its certificate again.
#[test]
fn other_client_authorities_end_sessions() {
    let dir = site();
    let clients = Authority::new("Clients");
    std::fs::write(dir.path().join("clients.pem"), &clients.pem).unwrap();
    let env = [
        ("SURUS_TLS_CLIENT_CA", "clients.pem"),
        ("SURUS_TLS_CLIENT_CERTIFICATE", "optional"),
    ];
    let secure = serve(dir.path(), &env);
    let config = std::sync::Arc::new(secure.config(rustls::DEFAULT_VERSIONS));
    let resumed = || {
        let name = "localhost".try_into().unwrap();
        let client = rustls::ClientConnection::new(config.clone(), name).unwrap();
        let answer = secure.connect_by(client).ask(GET).unwrap();
        answer.seen("SSL_SESSION_RESUMED")
    };
    assert_eq!([resumed(), resumed()], ["Initial", "Resumed"]);
    let (next, others) = (
        secure.authority.issue(&["localhost"]),
        Authority::new("Others"),
    );
    next.write(dir.path(), "server");
    reload(dir.path()).unwrap();
    assert_eq!(resumed(), "Resumed");
    std::fs::write(dir.path().join("clients.pem"), &others.pem).unwrap();
    reload(dir.path()).unwrap();
    assert_eq!([resumed(), resumed()], ["Initial", "Resumed"]);
}
