//! Tests what a start says about its certificates.

use std::path::Path;

use crate::common::Surus;
use crate::common::certificates::Authority;
use crate::wire::site;

/// Starts with these settings of `[tls]` and returns the error.
fn error(dir: &Path, settings: &[(&str, &str)]) -> String {
    let settings = settings
        .iter()
        .map(|(name, value)| (format!("SURUS_TLS_{name}"), *value));
    let settings: Vec<_> = settings.collect();
    let env: Vec<_> = settings
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    match Surus::spawn(dir, &[], &env) {
        Ok(surus) => panic!("it started:\n{}", surus.log()),
        Err(log) => log,
    }
}

const LISTEN: (&str, &str) = ("LISTEN", "127.0.0.1:0");

#[test]
fn unusable_certificates_stop_the_start_with_a_remedy() {
    let dir = site();
    let authority = Authority::new("Test");
    let (a, b) = (authority.issue(&["a"]), authority.issue(&["b"]));
    a.write(dir.path(), "a");
    b.write(dir.path(), "b");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("text", "not PEM");
    write("empty.key", "-----BEGIN X-----\n-----END X-----\n");
    write("damaged.crt", &a.certificate.replace("\nMI", "\n!!"));
    write(
        "encrypted.key",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: X\n\nMAA=\n\
               -----END RSA PRIVATE KEY-----\n";
    write("encrypted-rsa.key", old);
    for (certificate, key, said) in [
        ("a.crt", "missing", "missing (tls.key): No such file"),
        (
            "a.crt",
            "b.key",
            "b.key (tls.key) does not belong to the certificate",
        ),
        (
            "a.crt",
            "encrypted.key",
            "encrypted.key (tls.key) is encrypted",
        ),
        ("a.crt", "encrypted-rsa.key", "openssl pkey -in"),
        ("a.crt", "empty.key", "empty.key (tls.key) has no key"),
        ("a.crt", "text", "text (tls.key) is not a PEM file"),
        (
            "a.key",
            "a.key",
            "a.key (tls.certificate) has no certificate",
        ),
        (
            "damaged.crt",
            "a.key",
            "damaged.crt (tls.certificate) is damaged",
        ),
        (
            "a.crt,b.crt",
            "a.key",
            "tls.certificate names 2 files and tls.key 1",
        ),
    ] {
        let log = error(
            dir.path(),
            &[LISTEN, ("CERTIFICATE", certificate), ("KEY", key)],
        );
        assert!(log.contains(said), "{certificate} {key}: {log}");
    }
    let pair = [("CERTIFICATE", "a.crt"), ("KEY", "a.key")];
    for (setting, said) in [
        (
            ("CLIENT_CA", "a.key"),
            "a.key (tls.client_ca) has no certificate",
        ),
        (("MIN_VERSION", "1.1"), "tls.min_version is 1.1; it can be"),
        (("HSTS", "yes"), "max-age=31536000"),
        (("LISTEN", "unix:/x"), "HTTPS needs a port"),
    ] {
        let log = error(dir.path(), &[&[LISTEN], &pair[..], &[setting]].concat());
        assert!(log.contains(said), "{setting:?}: {log}");
    }
    assert!(error(dir.path(), &[LISTEN]).contains("tls.listen needs a certificate"));
    assert!(error(dir.path(), &pair).contains("tls.listen is empty"));
}

#[test]
fn doubtful_certificates_are_served_with_a_warning() {
    use std::os::unix::fs::PermissionsExt;
    let dir = site();
    let authority = Authority::new("Test");
    authority.issue_until(&["a"], 2001).write(dir.path(), "a");
    let (_, public) = authority.issue(&[]).write(dir.path(), "b");
    std::fs::set_permissions(public, PermissionsExt::from_mode(0o644)).unwrap();
    let env = [
        ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
        ("SURUS_TLS_CERTIFICATE", "a.crt,b.crt"),
        ("SURUS_TLS_KEY", "a.key,b.key"),
        ("SURUS_ENGINE_WORKERS", "1"),
    ];
    let surus = Surus::spawn(dir.path(), &[], &env).unwrap();
    for said in [
        "a.crt (until Mon, 01 Jan 2001 00:00:00 GMT): the certificate has expired",
        "b.crt (until Sat, 01 Jan 4000 00:00:00 GMT): the certificate names no host",
        "b.key (tls.key): every user of this machine may read the key",
    ] {
        surus.wait_for_log(|log| log.contains(said));
    }
    drop(surus);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("check")
        .arg(dir.path())
        .envs(env)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("✓ certificate      a, until Mon, 01 Jan 2001"),
        "{said}"
    );
    assert!(
        said.contains("! ") && said.contains("every user of this machine"),
        "{said}"
    );
}
