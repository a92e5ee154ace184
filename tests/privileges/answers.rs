//! Tests the responses of a server with a keeper, on every engine and with files of several owners.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;

use crate::common::is_surus;
use crate::server::{
    app, assert_serves, children, get, hello, id_of, in_time, is_root, post, start, until,
};

pub fn files_readable_only_by_php_are_served() {
    if !is_root() {
        return;
    }
    let php = id_of("www-data");
    let dir = app(&[
        ("index.php", "<?php header('X-Accel-Redirect: /php.txt');"),
        ("php.txt", "php's"),
        ("root.txt", "root's"),
        (".htaccess", "Require all denied"),
    ]);
    std::fs::remove_file(dir.path().join(".htaccess")).unwrap();
    for (name, owner) in [("php.txt", php), ("root.txt", 0)] {
        let path = dir.path().join(name);
        chown(&path, Some(owner), None).unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    let private = dir.path().join("private");
    std::fs::create_dir(&private).unwrap();
    std::fs::write(private.join("script.php"), "<?php echo 'ran';").unwrap();
    std::fs::write(private.join("b.txt"), "below").unwrap();
    chown(&private, Some(php), None).unwrap();
    set_permissions(&private, Permissions::from_mode(0o700)).unwrap();
    symlink("private/b.txt", dir.path().join("link.txt")).unwrap();
    let surus = start(dir.path(), &[], &[]);
    for _ in 0..3 {
        let body = |path: &str| get(&surus, path).unwrap();
        assert_eq!(body("/php.txt"), (200, "php's".into()));
        assert_eq!(body("/"), (200, "php's".into()));
        assert_eq!(body("/private/script.php"), (200, "ran".into()));
        assert_eq!(body("/private/b.txt"), (200, "below".into()));
        assert_eq!(body("/link.txt"), (200, "below".into()));
        assert_eq!(body("/root.txt").0, 403);
    }
}

pub fn project_unreadable_to_the_front_end_is_served_and_reloaded() {
    if !is_root() {
        return;
    }
    let php = id_of("www-data");
    let home = app(&[]);
    chown(home.path(), Some(php), None).unwrap();
    for (version, text) in [("one", "first"), ("two", "second")] {
        let version = home.path().join(version);
        std::fs::create_dir(&version).unwrap();
        std::fs::write(version.join("index.php"), format!("<?php echo '{text}';")).unwrap();
        std::fs::write(version.join("a.txt"), text).unwrap();
    }
    let current = home.path().join("current");
    symlink("one", &current).unwrap();
    // Only PHP's user can enter it.
    set_permissions(home.path(), Permissions::from_mode(0o700)).unwrap();
    let surus = start(&current, &[], &[]);
    let both = || [get(&surus, "/"), get(&surus, "/a.txt")].map(|answer| answer.unwrap().1);
    assert_eq!(both(), ["first", "first"]);
    std::fs::remove_file(&current).unwrap();
    symlink("two", &current).unwrap();
    let reloaded = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("reload")
        .arg(&current)
        .output();
    let reloaded = reloaded.unwrap();
    assert!(reloaded.status.success(), "{reloaded:?}");
    assert_eq!(both(), ["second", "second"]);
    // The opener of the old generation exits with it.
    until("one opener is left", || {
        children(surus.pid())
            .into_iter()
            .filter(|pid| is_surus(*pid))
            .count()
            == 2
    });
    let shown = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("status")
        .arg(&current)
        .output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    assert!(shown.contains("generation 2"), "{shown}");
}

pub fn every_engine_serves_times_out_and_reloads_through_the_keeper() {
    let dir = app(&[
        ("index.php", "<?php echo 'hello';"),
        ("a.txt", "static"),
        (
            "who.php",
            "<?php echo posix_geteuid(), ' ', json_encode(posix_getgroups());",
        ),
        ("loop.php", "<?php while (true) {}"),
        (
            "count.php",
            "<?php echo strlen(file_get_contents('php://input'));",
        ),
    ]);
    for engine in ["classic", "cgi", "cli", "fpm", "builtin"] {
        let env = [
            ("SURUS_HTTP_REQUEST_TIMEOUT", "1s"),
            ("SURUS_ENGINE_KILL_TIMEOUT", "200ms"),
        ];
        let surus = start(dir.path(), &["--engine", engine, "--workers", "2"], &env);
        assert_serves(&surus);
        if is_root() {
            let php = id_of("www-data");
            let expected = format!("{php} [{php}]");
            let answer = in_time(|| get(&surus, "/who.php"));
            assert_eq!(answer, Some((200, expected)), "{engine}");
        }
        // A body in memory, and one in a spool file.
        for size in [1, 200_000] {
            let counted = in_time(|| post(&surus, "/count.php", &vec![b'x'; size]));
            assert_eq!(counted, Some((200, size.to_string())), "{engine}");
        }
        for _ in 0..3 {
            assert_eq!(get(&surus, "/loop.php").unwrap().0, 504, "{engine}");
        }
        assert_serves(&surus);
        let reload = Command::new(env!("CARGO_BIN_EXE_surus"))
            .arg("reload")
            .arg(dir.path())
            .output();
        assert!(
            reload.unwrap().status.success(),
            "{engine}: {}",
            surus.log()
        );
        assert_serves(&surus);
        assert!(
            !surus.log().contains("rejected a request"),
            "{}",
            surus.log()
        );
    }
}

pub fn php_fpm_unreachable_for_the_front_end_is_connected_by_the_keeper() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let fpm = tempfile::tempdir().unwrap();
    set_permissions(fpm.path(), Permissions::from_mode(0o755)).unwrap();
    let (socket, settings) = (fpm.path().join("fpm.sock"), fpm.path().join("fpm.conf"));
    // Only root can connect.
    let text = format!(
        "[global]\nerror_log = /dev/null\n[www]\nlisten = {}\nlisten.mode = 0600\nuser = www-data\n\
         pm = static\npm.max_children = 4\n",
        socket.display()
    );
    std::fs::write(&settings, text).unwrap();
    let program = format!("/usr/sbin/php-fpm{}", crate::common::php::minor());
    let mut server = Command::new(program)
        .args(["--nodaemonize", "--fpm-config"])
        .arg(&settings)
        .spawn()
        .unwrap();
    until("php-fpm listens", || socket.exists());
    let address = format!("unix:{}", socket.display());
    let env = [("SURUS_ENGINE_PHP_FPM_ADDRESS", address.as_str())];
    let second = start(dir.path(), &["--engine", "fpm"], &env);
    assert_serves(&second);
    drop(second);
    surus_sys::process::terminate(server.id()).unwrap();
    server.wait().unwrap();
}
