//! Tests which certificate a client gets.

use super::{Secure, https_address};
use crate::common::Surus;
use crate::common::certificates::Authority;
use crate::wire::site;

/// The host names for which a client of this name accepts the server's certificate.
fn accepts(secure: &Secure, name: &str) -> bool {
    let config = secure.config(rustls::DEFAULT_VERSIONS);
    let mut client = secure.client_for(name, config);
    client.complete_io(&mut secure.socket()).is_ok()
}

#[test]
fn name_selects_the_certificate() {
    let dir = site();
    let authority = Authority::new("Test");
    for (file, names) in [
        ("a", &["example.org", "www.example.org"][..]),
        ("b", &["*.example.org"]),
        ("c", &["shop.example.com"]),
    ] {
        authority.issue(names).write(dir.path(), file);
    }
    let env = [
        ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
        ("SURUS_TLS_CERTIFICATE", "a.crt,b.crt,c.crt"),
        ("SURUS_TLS_KEY", "a.key,b.key,c.key"),
        ("SURUS_ENGINE_WORKERS", "1"),
    ];
    let surus = Surus::spawn(dir.path(), &[], &env).unwrap();
    let address = https_address(&surus);
    let secure = Secure {
        surus,
        address,
        authority,
    };
    for name in [
        "example.org",
        "www.example.org",
        "x.example.org",
        "shop.example.com",
    ] {
        assert!(accepts(&secure, name), "{name}");
    }
    // The first certificate is for all others.
    for name in ["example.com", "a.b.example.org", "org"] {
        assert!(!accepts(&secure, name), "{name}");
    }
    let mut config = secure.config(rustls::DEFAULT_VERSIONS);
    config.enable_sni = false;
    let mut client = secure.client_for("example.org", config);
    assert!(client.complete_io(&mut secure.socket()).is_ok());
}

#[test]
fn metrics_say_when_certificates_end() {
    let dir = site();
    let secure = super::serve(dir.path(), &[]);
    let path = dir.path().join("server.crt");
    let label = format!("{{certificate=\"{}\"}} ", path.display());
    let name = format!("surus_tls_certificate_not_after_seconds{label}");
    // 4000-01-01
    assert_eq!(secure.metric(dir.path(), &name), 64_060_588_800);
    let listed = super::admin(dir.path(), "/-/certificates");
    assert!(listed.contains("\"not_after\":64060588800"), "{listed}");
    // A week before.
    let soon = "\"ends_soon_at\":64059984000";
    assert!(listed.contains(soon), "{listed}");
}

/// RSA and ECDSA for the same name: each client gets what it can check.
#[test]
fn kind_of_key_is_selected_by_the_client() {
    let dir = site();
    let authority = Authority::new("Test");
    authority.issue(&["localhost"]).write(dir.path(), "ecdsa");
    let made = std::process::Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650",
        ])
        .args([
            "-subj",
            "/CN=rsa",
            "-addext",
            "subjectAltName=DNS:localhost",
        ])
        .args(["-keyout", "rsa.key", "-out", "rsa.crt"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let env = [
        ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
        ("SURUS_TLS_CERTIFICATE", "ecdsa.crt,rsa.crt"),
        ("SURUS_TLS_KEY", "ecdsa.key,rsa.key"),
        ("SURUS_ENGINE_WORKERS", "1"),
    ];
    let surus = Surus::spawn(dir.path(), &[], &env).unwrap();
    let address = https_address(&surus);
    for (algorithm, expected) in [
        ("ECDSA+SHA256", "CN=localhost"),
        ("RSA-PSS+SHA256", "CN=rsa"),
    ] {
        let output = std::process::Command::new("openssl")
            .args(["s_client", "-connect", &address, "-servername", "localhost"])
            .args(["-sigalgs", algorithm])
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        // OpenSSL before 3.2 writes `CN = rsa`.
        let said = crate::wire::text(&output.stdout).replace(" = ", "=");
        assert!(said.contains(expected), "{algorithm}: {said}");
    }
}
