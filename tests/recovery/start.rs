//! Tests the start: what prevents it, and as which user PHP then runs.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Surus;
use crate::site::{Site, app, is_root, kill, lives, until};

#[test]
fn failed_boot_prints_php_error_and_exits_with_1() {
    let dir = app();
    std::fs::write(
        dir.path().join("preload.php"),
        "<?php\n\nthrow new LogicException('these words');",
    )
    .unwrap();
    let preload = format!(
        "opcache.preload={}",
        dir.path().join("preload.php").display()
    );
    let output = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("serve")
        .arg(dir.path())
        .args([
            "--listen",
            "127.0.0.1:0",
            "-d",
            &preload,
            "-d",
            "opcache.preload_user=root",
            "-d",
            "opcache.enable=1",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("Uncaught LogicException: these words"),
        "{text}"
    );
}

/// Root without the capability to change its user, as in many containers.
#[test]
fn front_end_that_cannot_change_its_user_stops_the_start() {
    if !is_root() {
        return;
    }
    let dir = app();
    let stops_before_a_timeout = || {
        let began = Instant::now();
        let output = Command::new("setpriv")
            .args(["--bounding-set=-setuid,-setgid", "--"])
            .arg(env!("CARGO_BIN_EXE_surus"))
            .arg("serve")
            .arg(dir.path())
            .args(["--listen", "127.0.0.1:0", "--workers", "2"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.contains("root lacks CAP_SETGID and CAP_SETUID"),
            "{text}"
        );
        began.elapsed() < Duration::from_secs(20)
    };
    // A busy machine may take longer, but not every time.
    assert!((0..3).any(|_| stops_before_a_timeout()));
}

#[test]
fn hanging_boot_ends_with_surus() {
    let dir = app();
    let pid_file = dir.path().join("writable/pid");
    std::fs::write(
        dir.path().join("preload.php"),
        format!(
            "<?php file_put_contents('{}', getmypid()); while (true) usleep(1000);",
            pid_file.display()
        ),
    )
    .unwrap();
    let preload = format!(
        "opcache.preload={}",
        dir.path().join("preload.php").display()
    );
    let mut surus = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("serve")
        .arg(dir.path())
        .args([
            "--listen",
            "127.0.0.1:0",
            "-d",
            &preload,
            "-d",
            "opcache.preload_user=root",
            "-d",
            "opcache.enable=1",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut pid = String::new();
    until("PHP has begun to start", || {
        pid = std::fs::read_to_string(&pid_file).unwrap_or_default();
        !pid.is_empty()
    });
    surus.kill().unwrap();
    surus.wait().unwrap();
    let pid = pid.parse().unwrap();
    until("PHP has ended", || !lives(pid));
}

#[test]
fn php_runs_as_another_user_with_a_clean_environment() {
    let site = Site::start(
        &["--workers", "1"],
        &[("SURUS_ENV_SECRET", "hush-hush"), ("CARGO", "leaks")],
    );
    let who: serde_json::Value = serde_json::from_str(&site.get("/who.php").body).unwrap();
    if is_root() {
        assert_eq!(who[0], "www-data");
    }
    assert_eq!(who[1], true);
    assert_eq!(who[2], "hush-hush", "[env] reaches PHP");
    assert_eq!(
        (&who[3], &who[4]),
        (&false.into(), &false.into()),
        "the rest does not"
    );
    for pid in site
        .workers()
        .into_iter()
        .chain([site.master(), site.surus.pid()])
    {
        let cmdline = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!String::from_utf8_lossy(&cmdline).contains("hush"));
    }
}

/// The first worker, and one that has replaced it.
#[test]
fn php_is_in_the_groups_of_its_user() {
    if !is_root() {
        return;
    }
    // A user of more than one group, if there is one.
    let groups = std::fs::read_to_string("/etc/group").unwrap();
    let members = groups.lines().filter_map(|line| line.rsplit(':').next());
    let member = members.flat_map(|names| names.split(',')).find(|name| {
        let name = name.trim();
        !name.is_empty() && name != "root"
    });
    let user = member.unwrap_or("www-data");
    let said = Command::new("id").args(["-G", user]).output().unwrap();
    let sorted = |text: &str| {
        let numbers = text.split_whitespace().map(|gid| gid.parse().unwrap());
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort();
        numbers
    };
    let expected = sorted(&String::from_utf8(said.stdout).unwrap());
    assert!(!expected.is_empty(), "{user}");
    let env = [("SURUS_ENGINE_USER", user)];
    let site = Site::start(&["--workers", "1"], &env);
    for _ in 0..2 {
        let worker = site.workers()[0];
        let status = std::fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
        assert_eq!(sorted(line.unwrap()), expected, "{user}");
        kill(worker, "KILL");
        until("another worker", || {
            site.workers().iter().any(|pid| *pid != worker) && site.get("/who.php").status == 200
        });
    }
}

#[test]
fn admin_socket_is_accessible_to_its_owner_only() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("admin/surus.sock");
    let listen = format!("unix:{}", socket.display());
    let _site = Site::start(&["--workers", "1"], &[("SURUS_ADMIN_LISTEN", &listen)]);
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&socket), 0o600);
    assert_eq!(mode(socket.parent().unwrap()), 0o700);
}

#[test]
fn admin_socket_in_use_stops_the_start_and_names_the_setting() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("surus.sock");
    let listen = format!("unix:{}", socket.display());
    let env = [("SURUS_ADMIN_LISTEN", listen.as_str())];
    let site = Site::start(&["--workers", "1"], &env);
    let other = app();
    let log = Surus::spawn(other.path(), &["--workers", "1"], &env);
    let log = log.err().unwrap();
    for words in [
        socket.to_str().unwrap(),
        "admin.listen",
        "for `surus status`",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert_eq!(site.get("/hello.php").body, "hello");
    assert!(socket.exists());
}

#[test]
fn second_server_of_a_project_fails_and_names_the_first() {
    let runtime = tempfile::tempdir().unwrap();
    let env = [("XDG_RUNTIME_DIR", runtime.path().to_str().unwrap())];
    let site = Site::start(&["--workers", "1"], &env);
    let second = Surus::spawn(site.dir.path(), &["--workers", "1"], &env);
    let log = second.err().unwrap();
    assert!(log.contains("surus serves this project already"), "{log}");
    assert_eq!(site.get("/hello.php").body, "hello");
}

/// Sends a request through a unix socket.
fn ask_at(socket: &std::path::Path) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(socket).ok()?;
    let request = "GET /hello.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.split_once("\r\n\r\n").map(|(_, body)| body.into())
}

#[test]
fn tcp_and_unix_socket_are_served_together() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("http.sock");
    let listen = format!("unix:{}", socket.display());
    let mut site = Site::start(&["--listen", &listen, "--workers", "1"], &[]);
    assert_eq!(site.get("/hello.php").body, "hello");
    assert_eq!(ask_at(&socket).as_deref(), Some("hello"));
    site.surus.signal("TERM");
    assert!(site.surus.wait().success());
    assert!(!socket.exists());
}

#[test]
fn stale_socket_of_a_killed_surus_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("http.sock");
    let listen = format!("unix:{}", socket.display());
    let mut site = Site::start(&["--listen", &listen, "--workers", "1"], &[]);
    kill(site.surus.pid(), "KILL");
    site.surus.wait();
    assert!(socket.exists());
    assert_eq!(ask_at(&socket), None);
    let _next = Site::start(&["--listen", &listen, "--workers", "1"], &[]);
    assert_eq!(ask_at(&socket).as_deref(), Some("hello"));
}

#[test]
fn unix_socket_of_root_admits_the_group_of_php() {
    use std::os::unix::fs::MetadataExt;
    if !is_root() {
        return; // There is no other group then
    }
    let group = |name: &str| {
        let output = Command::new("getent").args(["group", name]).output();
        let line = String::from_utf8(output.unwrap().stdout).unwrap();
        line.split(':').nth(2).unwrap().parse::<u32>().unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("http.sock");
    let listen = format!("unix:{}", socket.display());
    for (env, mode, owner) in [
        (&[][..], 0o660, "www-data"),
        (&[("SURUS_ENGINE_GROUP", "nogroup")], 0o660, "nogroup"),
        (&[("SURUS_HTTP_SOCKET_MODE", "0606")], 0o606, "www-data"),
    ] {
        let site = Site::start(&["--listen", &listen, "--workers", "1"], env);
        let found = std::fs::metadata(&socket).unwrap();
        assert_eq!(found.mode() & 0o777, mode, "{env:?}");
        assert_eq!((found.uid(), found.gid()), (0, group(owner)), "{env:?}");
        drop(site);
    }
}
