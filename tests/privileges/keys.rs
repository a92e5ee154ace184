//! Tests that only the keeper reads the keys of TLS.

use std::fs::{File, Permissions, set_permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::common::Surus;
use crate::common::certificates::Authority;
use crate::server::{app, hello, id_of, is_root, start};

/// What curl gets from the server over TLS; None if it does not trust the certificate.
fn get(surus: &Surus, dir: &Path, authority: &Authority) -> Option<String> {
    const LINE: &str = "listening on https://127.0.0.1:";
    surus.wait_for_log(|log| {
        log.split(LINE)
            .nth(1)
            .is_some_and(|rest| rest.contains('\n'))
    });
    let log = surus.log();
    let port = log
        .split(LINE)
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .trim();
    let roots = dir.join("authority.pem");
    std::fs::write(&roots, &authority.pem).unwrap();
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "60", "--cacert"])
        .arg(roots)
        .args(["--resolve", &format!("localhost:{port}:127.0.0.1")])
        .arg(format!("https://localhost:{port}/index.php"))
        .output()
        .unwrap();
    output
        .status
        .success()
        .then(|| String::from_utf8(output.stdout).unwrap())
}

/// Whether a process has this text anywhere in its memory.
fn has_in_memory(pid: u32, text: &str) -> bool {
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.lines().any(|line| {
        let (range, rest) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let number = |hex| u64::from_str_radix(hex, 16).unwrap();
        if !rest.starts_with("rw") {
            return false;
        }
        let mut bytes = vec![0; (number(to) - number(from)) as usize];
        let read = memory.read_at(&mut bytes, number(from)).unwrap_or(0);
        let mut parts = bytes[..read].windows(text.len());
        parts.any(|part| part == text.as_bytes())
    })
}

pub fn key_of_root_is_served_and_unreadable_for_the_front_end() {
    if !is_root() {
        return;
    }
    let dir = app(&[(
        "index.php",
        "<?php echo $_SERVER['SSL_PROTOCOL'] ?? 'none';",
    )]);
    let keys = tempfile::tempdir().unwrap();
    let authority = Authority::new("Test");
    let (certificate, key) = authority.issue(&["localhost"]).write(keys.path(), "server");
    // `cgi` gets its variables through the keeper.
    for engine in ["classic", "cgi"] {
        authority.issue(&["localhost"]).write(keys.path(), "server");
        let env = [
            ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
            ("SURUS_TLS_CERTIFICATE", certificate.to_str().unwrap()),
            ("SURUS_TLS_KEY", key.to_str().unwrap()),
        ];
        let surus = start(dir.path(), &["--engine", engine], &env);
        let seen = get(&surus, keys.path(), &authority);
        assert_eq!(
            seen.as_deref(),
            Some("TLSv1.3"),
            "{engine}: {}",
            surus.log()
        );
        assert_ne!(crate::common::user_of(surus.front()).0, 0);
        assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let next = Authority::new("Next");
        next.issue(&["localhost"]).write(keys.path(), "server");
        let reload = || {
            let mut reload = Command::new(env!("CARGO_BIN_EXE_surus"));
            reload.arg("reload").arg(dir.path()).output().unwrap()
        };
        assert!(reload().status.success());
        assert!(get(&surus, keys.path(), &next).is_some());
        let text = std::fs::read_to_string(&key).unwrap();
        let line = text.lines().nth(2).unwrap();
        assert!(
            has_in_memory(surus.front(), line),
            "{engine}: this test finds nothing"
        );
        assert!(
            !has_in_memory(surus.pid(), line),
            "{engine}: the keeper has the key"
        );
        std::fs::remove_file(&key).unwrap();
        let refused = reload();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            said.contains("server.key (tls.key): No such file"),
            "{said}"
        );
        assert!(get(&surus, keys.path(), &next).is_some());
    }
}

pub fn key_that_php_may_replace_is_rejected() {
    if !is_root() {
        return;
    }
    let dir = hello();
    Authority::new("Test")
        .issue(&["localhost"])
        .write(dir.path(), "server");
    let env = [
        ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
        ("SURUS_TLS_CERTIFICATE", "server.crt"),
        ("SURUS_TLS_KEY", "server.key"),
    ];
    let refused = || {
        Surus::spawn(dir.path(), &["--workers", "1"], &env)
            .err()
            .unwrap()
    };
    let key = dir.path().join("server.key");
    let php = id_of("www-data");
    chown(&key, Some(php), None).unwrap();
    let said = refused();
    assert!(
        said.contains("may change") && said.contains("server.key"),
        "{said}"
    );
    chown(&key, Some(0), None).unwrap();
    // The directory that a relative path begins with.
    chown(dir.path(), Some(php), None).unwrap();
    let said = refused();
    assert!(
        said.contains("any key and certificate that root may read"),
        "{said}"
    );
    chown(dir.path(), Some(0), None).unwrap();
    let file = dir.path().join("surus.toml");
    std::fs::write(&file, "[tls]\nkey = 'server.key'\n").unwrap();
    chown(&file, Some(id_of("daemon")), None).unwrap();
    set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let said = Surus::spawn(dir.path(), &[], &[]).err().unwrap();
    assert!(said.contains("sets tls.key"), "{said}");
}
