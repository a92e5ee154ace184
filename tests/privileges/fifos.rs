//! Tests that the keeper waits for no FIFO that PHP's user has made in place of a file.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::server::{app, get, id_of, is_root, start, until};

fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
    chown(path, Some(id_of("www-data")), None).unwrap();
}

/// PHP itself skips it.
pub fn fifo_among_ini_files_does_not_block_the_keeper() {
    if !is_root() {
        return;
    }
    for engine in ["fpm", "cgi", "cli", "builtin", "classic"] {
        let conf = app(&[("a.ini", "memory_limit=111M\n")]);
        let text = format!("[env]\nPHP_INI_SCAN_DIR = ':{}'\n", conf.path().display());
        let project = app(&[
            ("index.php", "<?php echo ini_get('memory_limit');"),
            ("surus.toml", &text),
        ]);
        chown(conf.path(), Some(id_of("www-data")), None).unwrap();
        let surus = start(project.path(), &["--engine", engine], &[]);
        make_fifo(&conf.path().join("b.ini"));
        std::os::unix::fs::symlink("missing", conf.path().join("c.ini")).unwrap();
        surus.signal("USR2");
        surus.wait_for_log(|log| log.contains("reloaded"));
        assert_eq!(get(&surus, "/"), Some((200, "111M".into())), "{engine}");
    }
}

/// Runs `surus serve`, which must end by itself; returns what it prints.
fn refusal(project: &Path, args: &[&str], env: &[(&str, &str)]) -> String {
    let mut serve = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("serve")
        .arg(project)
        .args(["--listen", "127.0.0.1:0"])
        .args(args)
        .envs(env.iter().copied())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..6000 {
        if serve.try_wait().unwrap().is_some() {
            let output = serve.wait_with_output().unwrap();
            return String::from_utf8_lossy(&output.stderr).into_owned();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    serve.kill().unwrap();
    serve.wait().unwrap();
    panic!("surus does not end: {args:?} {env:?}");
}

pub fn fifo_named_as_a_file_is_rejected_by_root() {
    if !is_root() {
        return;
    }
    let conf = app(&[]);
    let project = app(&[("index.php", "<?php echo 'hello';")]);
    let fifo = conf.path().join("php.ini");
    make_fifo(&fifo);
    let name = fifo.to_str().unwrap();
    for setting in [
        "SURUS_ENGINE_INI_FILE",
        "SURUS_ENGINE_SURUS_PHP",
        "SURUS_ENGINE_DYNAMIC_LOADER",
        "SURUS_TLS_CERTIFICATE",
    ] {
        let env = [(setting, name), ("SURUS_TLS_KEY", name)];
        let env = if setting.contains("TLS") {
            &env[..]
        } else {
            &env[..1]
        };
        let log = refusal(project.path(), &["--engine", "classic"], env);
        assert!(log.contains(name), "{setting} {log}");
    }
    let log = refusal(
        project.path(),
        &["--engine", "cgi"],
        &[("SURUS_ENGINE_INI_FILE", name)],
    );
    assert!(log.contains("not a regular file"), "{log}");
    // Of the directory that PHPRC names, PHP reads the php.ini.
    std::fs::write(
        project.path().join("surus.toml"),
        format!("[env]\nPHPRC = '{}'\n", conf.path().display()),
    )
    .unwrap();
    let log = refusal(project.path(), &["--engine", "cgi"], &[]);
    assert!(
        log.contains("not a regular file") && log.contains(name),
        "{log}"
    );
}

/// Surus reads it to know whether the script boots.
pub fn fifo_required_by_the_script_does_not_block_the_start() {
    if !is_root() {
        return;
    }
    let project = app(&[
        ("index.php", "<?php require __DIR__ . '/boot.php';"),
        ("a.txt", "static"),
    ]);
    make_fifo(&project.path().join("boot.php"));
    let surus = start(project.path(), &[], &[]);
    until("files are served", || {
        get(&surus, "/a.txt") == Some((200, "static".into()))
    });
}
