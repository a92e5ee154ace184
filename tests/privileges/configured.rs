//! Tests that what a configuration gives PHP never reaches a process with root's rights.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::common::Surus;
use crate::server::{app, get, id_of, is_root, start, status, until};

/// Writes the rights of the process that loads it. `DROP` is a directory, `NAME` the way it came.
const LIBRARY: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void)
{
	char path[512], text[8192];
	snprintf(path, sizeof(path), "%s/%s-%d", DROP, NAME, (int)getpid());
	int from = open("/proc/self/status", O_RDONLY);
	int to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	ssize_t len = read(from, text, sizeof(text));
	if (len < 0 || write(to, text, (size_t)len) != len) {
		perror(path);
	}
	close(from);
	close(to);
}
"#;

fn compile(dir: &Path, name: &str) -> String {
    let (source, library) = (dir.join("library.c"), dir.join(format!("{name}.so")));
    std::fs::write(&source, LIBRARY).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"])
        .args([&library, &source]);
    cc.arg(format!("-DNAME=\"{name}\""));
    cc.arg(format!("-DDROP=\"{}\"", dir.join("drop").display()));
    assert!(cc.status().unwrap().success());
    library.display().to_string()
}

/// What has left the rights of its process in the directory, without the process ids.
fn loaded(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir.join("drop")).unwrap().flatten();
    let mut ways = Vec::new();
    for file in files {
        let name = file.file_name().into_string().unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_string()
        };
        for ids in ["Uid:", "Gid:"] {
            let ids = value(ids);
            let is_roots = ids.split_whitespace().any(|id| id == "0");
            assert!(!ids.is_empty() && !is_roots, "{name}: {text}");
        }
        assert_eq!(value("CapPrm:"), "0000000000000000", "{name}");
        ways.extend(name.split('-').next().map(String::from));
    }
    ways.sort();
    ways.dedup();
    ways
}

const ENGINES: [&str; 9] = [
    "classic", "worker", "standby", "fork", "rewind", "fpm", "cgi", "cli", "builtin",
];

/// PHP's warnings about the libraries may follow.
fn assert_says_hello(surus: &Surus, engine: &str) {
    let (status, body) = get(surus, "/").unwrap();
    assert!(status == 200 && body.contains("hello"), "{engine} {body}");
}

/// Another user owns the configuration and names everything by which PHP finds code.
pub fn replaceable_configuration_runs_no_code_as_root() {
    if !is_root() {
        return;
    }
    let dir = app(&[]);
    let drop = dir.path().join("drop");
    std::fs::create_dir(&drop).unwrap();
    set_permissions(&drop, Permissions::from_mode(0o1777)).unwrap();
    let [preload, extension, zend, by_ini, scanned] =
        ["preload", "extension", "zend", "ini", "scanned"].map(|name| compile(dir.path(), name));
    let write = |name: &str| {
        let file = dir.path().join(format!("{name}.php"));
        let text = format!(
            "<?php @copy('/proc/self/status', '{}/{name}-' . getmypid());",
            drop.display()
        );
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let [prepended, preloaded] = ["prepended", "preloaded"].map(write);
    let ini = dir.path().join("ini");
    for (name, library) in [("php.ini", &by_ini), ("scanned/a.ini", &scanned)] {
        let file = ini.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, format!("extension={library}\n")).unwrap();
    }
    let hostile = [
        format!(
            "[env]\nLD_PRELOAD = '{preload}'\n\
             [php]\nextension = '{extension}'\nzend_extension = '{zend}'\n\
             auto_prepend_file = '{prepended}'\n'opcache.enable_cli' = true\n\
             'opcache.preload' = '{preloaded}'\n'opcache.preload_user' = 'root'\n"
        ),
        format!(
            "[env]\nPHPRC = '{0}'\nPHP_INI_SCAN_DIR = '{0}/scanned'\n",
            ini.display()
        ),
    ];
    for engine in ENGINES {
        let is_booted = ["worker", "standby", "fork", "rewind"].contains(&engine);
        let text = match is_booted {
            true => "<?php surus_serve(function () { echo 'hello'; });",
            false => "<?php echo 'hello';",
        };
        let project = app(&[("index.php", text)]);
        for (text, expected) in hostile.iter().zip([
            &["extension", "prepended", "zend"][..],
            &["ini", "scanned"][..],
        ]) {
            let file = project.path().join("surus.toml");
            std::fs::write(&file, text).unwrap();
            chown(&file, Some(id_of("daemon")), None).unwrap();
            let surus = start(project.path(), &["--engine", engine], &[]);
            assert_says_hello(&surus, engine);
            let ways = loaded(dir.path());
            // They would have run as root otherwise: each has run at all.
            let is_surus_php = is_booted || engine == "classic";
            let other = match expected.contains(&"extension") {
                false => None,
                true if is_surus_php || engine == "fpm" => Some("preloaded"),
                true => Some("preload"),
            };
            for way in expected.iter().copied().chain(other) {
                assert!(
                    ways.iter().any(|one| *one == way),
                    "{engine} {way}: {ways:?}"
                );
            }
            surus.signal("USR2");
            surus.wait_for_log(|log| log.contains("reloaded"));
            assert_says_hello(&surus, engine);
            std::mem::drop(surus);
            loaded(dir.path());
            for file in std::fs::read_dir(&drop).unwrap().flatten() {
                std::fs::remove_file(file.path()).unwrap();
            }
        }
    }
}

pub fn every_process_of_surus_php_runs_as_phps_user() {
    if !is_root() {
        return;
    }
    let php = id_of("www-data");
    for engine in ["classic", "worker", "standby", "fork", "rewind"] {
        let text = match engine {
            "classic" => "<?php echo 'hello';",
            _ => "<?php surus_serve(function () { echo 'hello'; });",
        };
        let project = app(&[("index.php", text)]);
        let surus = start(project.path(), &["--engine", engine], &[]);
        assert_eq!(get(&surus, "/"), Some((200, "hello".into())), "{engine}");
        let all = crate::server::descendants(surus.pid());
        let name = |pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let master = all.iter().find(|pid| name(**pid) == "surus master\n");
        let master = *master.unwrap();
        for set in ["Uid", "Gid"] {
            let ids = status(master, set);
            let ids: Vec<_> = ids.split_whitespace().map(String::from).collect();
            let saved = ids[2].clone();
            // Its saved group is one without a name, so that scripts cannot open its memory or
            // change its limits.
            let mut others = ids.iter().enumerate().filter(|(index, _)| *index != 2);
            assert!(
                others.all(|(_, id)| *id == php.to_string()) && saved != "0",
                "{engine} {ids:?}"
            );
            assert_eq!(saved == php.to_string(), set == "Uid", "{engine} {ids:?}");
        }
        assert_eq!(status(master, "CapPrm"), "0000000000000000");
        // Scripts of the same user can read neither its memory nor its environment.
        let environ = std::fs::metadata(format!("/proc/{master}/environ")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&environ), 0, "{engine}");
        // A script can stop it, which is noticed and mended.
        surus_sys::process::kill(master).unwrap();
        until("another master process serves", || {
            get(&surus, "/") == Some((200, "hello".into()))
        });
    }
}

/// What only root can read would be left out silently otherwise, `disable_functions` for example.
pub fn ini_file_unreadable_to_php_is_rejected_with_its_name() {
    if !is_root() {
        return;
    }
    let project = app(&[("index.php", "<?php echo 'hello';")]);
    let settings = app(&[("php.ini", "memory_limit=111M\n"), ("more.ini", "")]);
    let named = settings.path().join("php.ini");
    let scanned = settings.path().join("more.ini");
    let path = settings.path().to_str().unwrap();
    for (file, env) in [
        (&named, ("SURUS_ENGINE_INI_FILE", named.to_str().unwrap())),
        (&scanned, ("PHP_INI_SCAN_DIR", path)),
    ] {
        set_permissions(file, Permissions::from_mode(0o600)).unwrap();
        let log = Surus::spawn(project.path(), &["--engine", "classic"], &[env]);
        let log = log.err().unwrap_or_else(|| panic!("{}", file.display()));
        assert!(
            log.contains("cannot read") && log.contains(&file.display().to_string()),
            "{log}"
        );
        set_permissions(file, Permissions::from_mode(0o644)).unwrap();
        let surus = start(project.path(), &["--engine", "classic"], &[env]);
        assert_eq!(get(&surus, "/"), Some((200, "hello".into())));
    }
}

/// An installed PHP would leave them out without a word.
pub fn ini_file_unreadable_to_an_installed_php_is_rejected_with_its_name() {
    if !is_root() {
        return;
    }
    let settings = app(&[("php.ini", "memory_limit=111M\n"), ("more.ini", "")]);
    let path = settings.path().display();
    let named = format!("[engine]\nini_file = '{path}/php.ini'\n");
    let directory = format!("[env]\nPHPRC = '{path}'\n");
    let scanned = format!("[env]\nPHP_INI_SCAN_DIR = ':{path}'\n");
    let project = app(&[("index.php", "<?php echo 'hello ', ini_get('memory_limit');")]);
    for engine in ["cgi", "cli", "builtin", "fpm"] {
        for (text, file, limit) in [
            (&named, "php.ini", Some("111M")),
            (&directory, "php.ini", Some("111M")),
            (&scanned, "more.ini", None),
        ] {
            if engine == "fpm" && *text == named {
                continue; // its master process reads it as root
            }
            let file = settings.path().join(file);
            std::fs::write(project.path().join("surus.toml"), text).unwrap();
            set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
            let log = Surus::spawn(project.path(), &["--engine", engine], &[]);
            let log = log.err().unwrap_or_else(|| panic!("{engine} {text}"));
            assert!(
                log.contains("cannot read") && log.contains(&file.display().to_string()),
                "{engine} {log}"
            );
            set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
            let surus = start(project.path(), &["--engine", engine], &[]);
            let (_, body) = get(&surus, "/").unwrap();
            assert!(body.starts_with("hello"), "{engine} {body}");
            assert!(
                limit.is_none_or(|limit| body.contains(limit)),
                "{engine} {body}"
            );
        }
    }
}

/// Another php.ini, without these `disable_functions`, would be read instead.
pub fn unreadable_directory_of_the_php_ini_is_rejected_with_its_name() {
    let directory = format!("/etc/php/{}/fpm", crate::common::php::minor());
    if !is_root() || !Path::new(&directory).is_dir() {
        return;
    }
    let project = app(&[("index.php", "<?php echo 'hello';")]);
    // In a mount namespace, because the directory is the system's.
    let script = "mount -t tmpfs -o mode=0700 none \"$1\" || exit 99\n\
                  exec \"$2\" serve \"$3\" --engine classic --listen 127.0.0.1:0";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", &directory]);
    command.arg(env!("CARGO_BIN_EXE_surus")).arg(project.path());
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(99) || log.contains("unshare failed") {
        eprintln!("skipped: no mount namespace");
        return;
    }
    assert!(!output.status.success(), "{log}");
    assert!(
        log.contains("cannot read") && log.contains(&format!("{directory}/php.ini")),
        "{log}"
    );
}

/// The configuration is root's, but names what PHP's user can change.
pub fn php_fpm_with_code_of_php_runs_it_without_root() {
    if !is_root() {
        return;
    }
    let dir = app(&[]);
    let php = id_of("www-data");
    let drop = dir.path().join("drop");
    std::fs::create_dir(&drop).unwrap();
    set_permissions(&drop, Permissions::from_mode(0o1777)).unwrap();
    let [zend, preload] = ["zend", "preload"].map(|name| compile(dir.path(), name));
    let preloaded = dir.path().join("preloaded.php");
    let text = format!(
        "<?php @copy('/proc/self/status', '{}/preloaded-' . getmypid());",
        drop.display()
    );
    std::fs::write(&preloaded, text).unwrap();
    let ini = dir.path().join("ini");
    std::fs::create_dir(&ini).unwrap();
    let settings = format!(
        "opcache.preload={}\nopcache.preload_user=root\n",
        preloaded.display()
    );
    for name in ["a.ini", "php.ini"] {
        std::fs::write(ini.join(name), &settings).unwrap();
        chown(ini.join(name), Some(php), None).unwrap();
    }
    chown(&ini, Some(php), None).unwrap();
    let route = "[engine]\nname = 'classic'\n[[route]]\nprefix = '/f/'\nengine = 'fpm'\n";
    let option = format!("zend_extension={zend}");
    for (text, args, way) in [
        (
            format!("[env]\nPHP_INI_SCAN_DIR = ':{}'\n", ini.display()),
            &["--engine", "fpm"][..],
            "preloaded",
        ),
        (
            format!("[env]\nPHPRC = '{}'\n", ini.display()),
            &["--engine", "fpm"],
            "preloaded",
        ),
        (
            format!("[env]\nLD_PRELOAD = '{preload}'\n"),
            &["--engine", "fpm"],
            "preload",
        ),
        (
            format!(
                "[php]\n'opcache.preload' = '{}'\n'opcache.preload_user' = 'root'\n",
                preloaded.display()
            ),
            &["--engine", "fpm"],
            "preloaded",
        ),
        (
            format!("{route}[php]\nzend_extension = '{zend}'\n"),
            &[],
            "zend",
        ),
        (String::new(), &["--engine", "fpm", "-d", &option], "zend"),
    ] {
        let project = app(&[("index.php", "<?php echo 'hello';")]);
        std::fs::write(project.path().join("surus.toml"), &text).unwrap();
        let surus = start(project.path(), args, &[]);
        assert_says_hello(&surus, &text);
        let ways = loaded(dir.path());
        assert!(ways.iter().any(|one| one == way), "{text} {ways:?}");
        std::mem::drop(surus);
        for file in std::fs::read_dir(&drop).unwrap().flatten() {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
}

/// Libraries may read files that variables name, and files in HOME, when they are loaded.
pub fn variables_of_the_configuration_reach_php_and_no_process_of_root() {
    if !is_root() {
        return;
    }
    let report = "<?php echo json_encode([getenv('ODD'), getenv('COIN'), getenv('HOME'),
        getenv('USER'), getenv('EMPTY'), getenv('SURUS_POOL_0')]);";
    let text = "[env]\nODD = 'a \"b\" ; ${HOME} \\ [x] = \u{e9}'\nCOIN = '$HOME'\nEMPTY = ''\n";
    let project = app(&[("index.php", report), ("surus.toml", text)]);
    // php-fpm overwrites its environment in memory by its title.
    let environment = project.path().join("environment");
    let program = project.path().join("php-fpm");
    let script = format!(
        "#!/bin/sh\nenv > {0}\nPATH=$PATH:/usr/sbin\n\
         exec $(command -v php-fpm{1} || command -v php-fpm) \"$@\"\n",
        environment.display(),
        crate::common::php::minor()
    );
    std::fs::write(&program, script).unwrap();
    set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let env = [
        ("HOME", "/root"),
        ("SURUS_ENGINE_PHP_FPM", program.to_str().unwrap()),
    ];
    for (home, expected) in [("", "/var/www"), ("HOME = '/custom'\n", "/custom")] {
        let file = project.path().join("surus.toml");
        std::fs::write(file, format!("{text}{home}")).unwrap();
        let surus = start(project.path(), &["--engine", "fpm"], &env);
        let (_, body) = get(&surus, "/").unwrap();
        let found: Vec<serde_json::Value> = serde_json::from_str(&body).unwrap();
        let odd = "a \"b\" ; ${HOME} \\ [x] = \u{e9}";
        let expected = serde_json::json!([odd, "$HOME", expected, "www-data", "", false]);
        assert_eq!(serde_json::Value::from(found), expected);
        let of_root = std::fs::read_to_string(&environment).unwrap();
        let of_root: Vec<_> = of_root
            .lines()
            .filter_map(|pair| pair.split_once('='))
            .collect();
        assert!(of_root.contains(&("HOME", "/root")), "{of_root:?}");
        for name in ["ODD", "COIN", "EMPTY"] {
            assert!(of_root.iter().all(|(other, _)| *other != name), "{name}");
        }
    }
}

/// A copy of the sockets would accept connections for a php-fpm that has exited.
pub fn keeper_keeps_no_socket_of_an_unprivileged_php_fpm() {
    if !is_root() {
        return;
    }
    let project = app(&[("index.php", "<?php echo 'hello';"), ("surus.toml", "")]);
    chown(project.path(), Some(id_of("daemon")), None).unwrap();
    let surus = start(project.path(), &["--engine", "fpm"], &[]);
    assert_says_hello(&surus, "fpm");
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let of_fpm: Vec<_> = sockets
        .lines()
        .filter(|line| line.ends_with("/0.sock"))
        .filter_map(|line| line.split_whitespace().nth(6))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    assert!(!of_fpm.is_empty(), "{sockets}");
    for fd in std::fs::read_dir(format!("/proc/{}/fd", surus.pid())).unwrap() {
        let leads_to = std::fs::read_link(fd.unwrap().path()).unwrap_or_default();
        let leads_to = leads_to.to_string_lossy().into_owned();
        assert!(!of_fpm.contains(&leads_to), "{leads_to}");
    }
}

/// The deadline of these requests is far away.
pub fn killed_requests_of_a_stopped_php_fpm_hold_no_slot() {
    if !is_root() {
        return;
    }
    let stop = "<?php posix_kill(posix_getppid(), 19); posix_kill(getmypid(), 9);";
    let holding = "<?php posix_kill(posix_getppid(), 19); proc_open('sleep 600', [], $pipes);
        posix_kill(getmypid(), 9);";
    let project = app(&[
        ("index.php", "<?php echo 'hello';"),
        ("stop.php", stop),
        ("holding.php", holding),
        ("surus.toml", ""),
    ]);
    chown(project.path(), Some(id_of("daemon")), None).unwrap();
    let env = [("SURUS_HTTP_REQUEST_TIMEOUT", "3600s")];
    let surus = start(project.path(), &["--engine", "fpm", "--workers", "1"], &env);
    for path in ["/stop.php", "/holding.php"] {
        let (status, _) = get(&surus, path).unwrap();
        assert_eq!(status, 502, "{path} {}", surus.log());
        until("another php-fpm serves", || {
            get(&surus, "/").is_some_and(|(status, _)| status == 200)
        });
    }
}

pub fn stopped_php_fpm_is_replaced() {
    if !is_root() {
        return;
    }
    let project = app(&[("index.php", "<?php echo 'hello';"), ("surus.toml", "")]);
    chown(project.path(), Some(id_of("daemon")), None).unwrap();
    let surus = start(project.path(), &["--engine", "fpm"], &[]);
    assert_says_hello(&surus, "fpm");
    let title = |pid: &u32| {
        let title = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        title.starts_with(b"php-fpm: master")
    };
    let all = crate::server::descendants(surus.pid());
    let master = *all.iter().find(|pid| title(pid)).unwrap();
    let mut kill = Command::new("kill");
    assert!(
        kill.args(["-STOP", &master.to_string()])
            .status()
            .unwrap()
            .success()
    );
    surus.wait_for_log(|log| log.contains("was stopped (SIGSTOP); killed"));
    until("another one serves", || {
        !title(&master) && get(&surus, "/").is_some_and(|(status, _)| status == 200)
    });
}
