//! Tests that root rejects files, programs and sockets that PHP's user can change.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use crate::common::Surus;
use crate::server::{app, assert_serves, hello, id_of, is_root, start};

fn check(project: &Path) -> (bool, String) {
    let checked = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("check")
        .arg(project)
        .output()
        .unwrap();
    let said = [checked.stdout, checked.stderr].concat();
    (
        checked.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

pub fn configuration_writable_by_php_is_rejected_for_root() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let file = dir.path().join("surus.toml");
    let php = id_of("www-data");
    // The attacker configures another user for PHP.
    for text in [
        "",
        "[engine]\nuser = 'root'\n",
        "[engine]\nuser = 'daemon'\n",
    ] {
        std::fs::write(&file, text).unwrap();
        for (owner, group, mode) in [
            (php, 0, 0o644),
            (php, 0, 0o444),
            (0, php, 0o664),
            (0, 0, 0o666),
        ] {
            chown(&file, Some(owner), Some(group)).unwrap();
            set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            let log = Surus::spawn(dir.path(), &[], &[]).err().unwrap();
            assert!(
                log.contains("may change") && log.contains("surus.toml"),
                "{owner} {group} {mode:o} {log}"
            );
        }
    }
    let (works, said) = check(dir.path());
    assert!(!works && said.contains("may change"), "{said}");
    std::fs::write(&file, "").unwrap();
    for (owner, is_named) in [(0, false), (id_of("daemon"), true)] {
        chown(&file, Some(owner), Some(php)).unwrap();
        set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let surus = start(dir.path(), &[], &[]);
        assert_serves(&surus);
        assert_eq!(surus.log().contains("can replace"), is_named);
    }
}

const SITE: &str = "[[site]]\nname = 'a'\nroot = '.'\ndefault = true\n";

pub fn configuration_with_secrets_that_others_may_read_is_named() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let file = dir.path().join("surus.toml");
    let php = id_of("www-data");
    for (text, group, mode, secret) in [
        ("env.PASSWORD = 'x'\n", 0, 0o644, Some("sets env,")),
        ("env.PASSWORD = 'x'\n", php, 0o640, Some("sets env,")),
        (
            "telemetry.headers.a = 'x'\n",
            0,
            0o604,
            Some("sets telemetry.headers,"),
        ),
        ("env.PASSWORD = 'x'\n", 0, 0o640, None),
        ("env.PASSWORD = 'x'\n", php, 0o600, None),
        ("engine.clear_env = true\n", 0, 0o644, None),
    ] {
        std::fs::write(&file, format!("{text}{SITE}")).unwrap();
        chown(&file, Some(0), Some(group)).unwrap();
        set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let (_, said) = check(dir.path());
        let named = said.contains("lets other users read it");
        assert_eq!(named, secret.is_some(), "{mode:o} {text} {said}");
        assert!(secret.is_none_or(|secret| said.contains(secret)), "{said}");
    }
    set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    std::fs::write(&file, format!("env.PASSWORD = 'x'\n{SITE}")).unwrap();
    let surus = start(dir.path(), &[], &[("SURUS_ENV_OTHER", "y")]);
    assert_serves(&surus);
    assert!(surus.log().contains("lets other users read it"));
    drop(surus);
    // The environment is not the file, and one application may have what is its own.
    for text in [SITE, "env.PASSWORD = 'x'\n"] {
        std::fs::write(&file, text).unwrap();
        let surus = start(dir.path(), &[], &[("SURUS_ENV_OTHER", "y")]);
        assert_serves(&surus);
        assert!(!surus.log().contains("lets other users read it"));
    }
}

pub fn program_or_ini_file_writable_by_php_is_rejected_for_root() {
    if !is_root() {
        return;
    }
    let (dir, other) = (hello(), app(&[("php.ini", "")]));
    let file = other.path().join("php.ini");
    chown(&file, Some(id_of("www-data")), None).unwrap();
    for setting in ["SURUS_ENGINE_INI_FILE", "SURUS_ENGINE_SURUS_PHP"] {
        let env = [(setting, file.to_str().unwrap())];
        let log = Surus::spawn(dir.path(), &[], &env).err().unwrap();
        assert!(
            log.contains("may change") && log.contains("php.ini"),
            "{log}"
        );
    }
}

/// The keys and programs of the server and of one site, and PHP's user of another site.
pub fn file_of_another_sites_user_is_rejected_for_root() {
    if !is_root() {
        return;
    }
    let (dir, other) = (hello(), app(&[("key.pem", ""), ("php", "#!/bin/sh\n")]));
    let sites = |own: &str| {
        format!(
            "[[site]]\nhost = 'a'\ndefault = true\n{own}\n[[site]]\nhost = 'b'\n\
             engine.user = 'games'\n"
        )
    };
    for name in ["key.pem", "php"] {
        let path = other.path().join(name);
        let file = path.display();
        let settings = match name {
            "php" => [format!("engine.php_cli = '{file}'"), String::new()],
            _ => [
                format!("tls.key = '{file}'"),
                format!("tls.certificate = '{file}'"),
            ],
        };
        for setting in settings.iter().filter(|setting| !setting.is_empty()) {
            for text in [format!("{setting}\n{}", sites("")), sites(setting)] {
                std::fs::write(dir.path().join("surus.toml"), &text).unwrap();
                for (file, directory) in [("games", "root"), ("root", "games")] {
                    chown(&path, Some(id_of(file)), None).unwrap();
                    chown(other.path(), Some(id_of(directory)), None).unwrap();
                    let log = Surus::spawn(dir.path(), &[], &[]).err();
                    let log = log.unwrap_or_else(|| panic!("it starts: {text}"));
                    assert!(log.contains("PHP's user games may change"), "{text} {log}");
                }
            }
        }
    }
}

/// A user who is not known to be PHP's may own the project's directory.
pub fn replaceable_configuration_that_names_root_or_programs_is_rejected_for_root() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let other = id_of("daemon");
    let file = dir.path().join("surus.toml");
    let rejected = [
        "[engine]\nuser = 'root'\n",
        "[engine]\nuser = '0'\n",
        "[engine]\ngroup = 'root'\n",
        "[engine]\ngroup = 'shadow'\n",
        "[engine]\nuser = 'games'\ngroup = 'disk'\n",
        "[engine]\nphp_cli = '/usr/bin/php'\n",
        "[engine]\nphp_cli = 'php'\n",
        "[engine]\nsurus_php = 'bash'\n",
        "[engine]\ndynamic_loader = 'bash'\n",
        "[engine]\nphp_fpm_address = 'unix:/run/s'\n",
        "[engine]\nini_file = '/etc/hostname'\n",
        "[http]\nuser = 'root'\n",
        "[[site]]\nhost = 'a'\nengine.user = 'root'\n",
        "[[site]]\nhost = 'a'\naccess_log.file = '/x'\n",
        "[[site]]\nhost = 'a'\ntls.key = '/x'\n",
    ];
    let (works, said) = check(dir.path());
    assert!(works, "{said}");
    for text in rejected {
        std::fs::write(&file, text).unwrap();
        // Also a file of root's that another group may write to.
        for (owner, of_directory, mode) in [
            (other, 0, 0o644),
            (0, other, 0o644),
            (other, other, 0o644),
            (0, 0, 0o664),
        ] {
            chown(&file, Some(owner), Some(id_of("games"))).unwrap();
            set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            chown(dir.path(), Some(of_directory), None).unwrap();
            let log = Surus::spawn(dir.path(), &[], &[]).err().unwrap();
            assert!(log.contains("can replace the file"), "{text} {log}");
        }
    }
    set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    chown(dir.path(), Some(other), None).unwrap();
    // A link that its owner can replace.
    let roots = app(&[("other.toml", "[engine]\nuser = 'root'\n")]);
    std::fs::remove_file(&file).unwrap();
    symlink(roots.path().join("other.toml"), &file).unwrap();
    let log = Surus::spawn(dir.path(), &[], &[]).err().unwrap();
    assert!(log.contains("can replace the file"), "{log}");
    std::fs::remove_file(&file).unwrap();
    // The environment belongs to the user who starts Surus.
    std::fs::write(&file, "").unwrap();
    let env = [("SURUS_ENGINE_USER", "daemon")];
    chown(dir.path(), Some(0), None).unwrap();
    chown(&file, Some(id_of("games")), None).unwrap();
    assert_serves(&start(dir.path(), &[], &env));
    // It does not set what a site sets differently, or does not inherit.
    for (variable, value, text) in [
        ("SURUS_ENGINE_USER", "daemon", "engine.user = 'root'"),
        ("SURUS_ACCESS_LOG_FILE", "/x", "access_log.file = '/x'"),
        ("SURUS_TLS_KEY", "/x", "tls.key = '/x'"),
    ] {
        std::fs::write(&file, format!("[[site]]\nhost = 'a'\n{text}\n")).unwrap();
        let log = Surus::spawn(dir.path(), &[], &[(variable, value)]).err();
        let log = log.unwrap();
        assert!(log.contains("can replace the file"), "{text} {log}");
    }
    std::fs::write(&file, "[[site]]\nhost = 'a'\ndefault = true\n").unwrap();
    assert_serves(&start(dir.path(), &[], &env));
}

/// An empty file of this name in the current directory once let root run the one in PATH.
pub fn bare_program_is_looked_for_in_path_only() {
    let (dir, path) = (hello(), app(&[("other", "#!/bin/sh\n")]));
    std::fs::write(dir.path().join("surus.toml"), "").unwrap();
    std::fs::write(dir.path().join("prog"), "").unwrap();
    let said = |name: &str| {
        let checked = Command::new(env!("CARGO_BIN_EXE_surus"))
            .args(["check", "."])
            .current_dir(dir.path())
            .env("SURUS_ENGINE_SURUS_PHP", name)
            .env("PATH", format!(".:{}", path.path().display()))
            .output()
            .unwrap();
        String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned()
    };
    assert!(said("prog").contains("engine.surus_php names prog, which does not exist"));
    assert!(!said("other").contains("does not exist"));
}

pub fn roadrunner_configuration_that_names_root_is_rejected_for_root() {
    if !is_root() {
        return;
    }
    let text = "server:\n  command: 'php worker.php'\n  user: root\n";
    let dir = app(&[(".rr.yaml", text), ("worker.php", "<?php")]);
    let file = dir.path().join(".rr.yaml");
    chown(&file, Some(id_of("daemon")), None).unwrap();
    let log = Surus::spawn(dir.path(), &["--engine", "roadrunner"], &[]);
    let log = log.err().unwrap();
    assert!(log.contains("can replace the file"), "{log}");
    chown(&file, Some(id_of("www-data")), None).unwrap();
    let log = Surus::spawn(dir.path(), &["--engine", "roadrunner"], &[]);
    let log = log.err().unwrap();
    assert!(
        log.contains("may change") && log.contains(".rr.yaml"),
        "{log}"
    );
}

pub fn program_in_a_directory_of_php_is_rejected_for_root() {
    if !is_root() {
        return;
    }
    let (dir, other) = (hello(), app(&[]));
    let file = other.path().join("below/php.ini");
    std::fs::create_dir(other.path().join("below")).unwrap();
    std::fs::write(&file, "").unwrap();
    for directory in [other.path(), &other.path().join("below")] {
        chown(directory, Some(id_of("www-data")), None).unwrap();
        let env = [("SURUS_ENGINE_INI_FILE", file.to_str().unwrap())];
        let log = Surus::spawn(dir.path(), &[], &env).err().unwrap();
        assert!(
            log.contains("may change") && log.contains("directory"),
            "{log}"
        );
        chown(directory, Some(0), None).unwrap();
    }
}

pub fn php_settings_are_not_stored_where_another_user_can_replace_them() {
    if !is_root() {
        return;
    }
    let (dir, temporary) = (hello(), app(&[]));
    let path = temporary.path().to_str().unwrap();
    for (owner, mode, works) in [
        (id_of("www-data"), 0o755, false),
        (0, 0o777, false),
        (0, 0o1777, true),
    ] {
        chown(path, Some(owner), None).unwrap();
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let surus = Surus::spawn(dir.path(), &["--engine", "fpm"], &[("TMPDIR", path)]);
        match surus {
            Ok(surus) => {
                assert!(works, "{owner} {mode:o}");
                assert_serves(&surus);
            }
            Err(log) => assert!(!works && log.contains("TMPDIR"), "{log}"),
        }
    }
}

pub fn php_fpm_behind_a_link_of_another_user_is_rejected_for_root() {
    if !is_root() {
        return;
    }
    let (project, dir) = (hello(), app(&[]));
    let (vault, run) = (dir.path().join("vault"), dir.path().join("run"));
    for made in [&vault, &run] {
        std::fs::create_dir(made).unwrap();
    }
    chown(&run, Some(id_of("www-data")), None).unwrap();
    // Only root can connect to the socket.
    let socket = vault.join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    set_permissions(&socket, Permissions::from_mode(0o600)).unwrap();
    listener.set_nonblocking(true).unwrap();
    symlink(&vault, run.join("directory")).unwrap();
    symlink(&socket, run.join("s")).unwrap();
    for path in ["directory/s", "s"] {
        let address = format!("unix:{}", run.join(path).display());
        let env = [("SURUS_ENGINE_PHP_FPM_ADDRESS", address.as_str())];
        let log = Surus::spawn(project.path(), &["--engine", "fpm"], &env);
        let log = log.err().unwrap();
        assert!(log.contains("symbolic link"), "{log}");
        let accepted = listener.accept().map(drop).unwrap_err();
        assert_eq!(accepted.kind(), std::io::ErrorKind::WouldBlock);
    }
}
