//! The keeper, its front and their signals, seen from outside.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Surus, is_surus};

pub fn is_root() -> bool {
    surus_sys::process::is_root()
}

pub fn id_of(user: &str) -> u32 {
    surus_sys::process::find_user(user, None)
        .unwrap()
        .unwrap()
        .uid
}

pub fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A directory that everybody may read, with these files.
pub fn app(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

pub fn hello() -> tempfile::TempDir {
    app(&[("index.php", "<?php echo 'hello';"), ("a.txt", "static")])
}

pub fn start(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Surus {
    let one = if args.contains(&"--workers") {
        &[][..]
    } else {
        &["--workers", "1"]
    };
    let args = [one, args].concat();
    Surus::spawn(dir, &args, env).unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
}

/// Status and body.
pub fn get(surus: &Surus, path: &str) -> Option<(u16, String)> {
    let agent = ureq::Agent::new_with_config(
        ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build(),
    );
    let mut answer = agent.get(format!("{}{path}", surus.url)).call().ok()?;
    let body = answer.body_mut().read_to_string().ok()?;
    Some((answer.status().as_u16(), body))
}

pub fn assert_serves(surus: &Surus) {
    assert_eq!(
        get(surus, "/"),
        Some((200, "hello".into())),
        "{}",
        surus.log()
    );
    assert_eq!(get(surus, "/a.txt"), Some((200, "static".into())));
}

fn status(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_default().trim().to_string()
}

pub fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let text: String = tasks
        .map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default())
        .collect();
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

pub fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// All that a server has started, and what that has.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut all = children(pid);
    let below: Vec<u32> = all.iter().flat_map(|pid| descendants(*pid)).collect();
    all.extend(below);
    all
}

const NO_CAPABILITIES: &str = "0000000000000000";

pub fn front_of_root_has_no_privileges() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let surus = start(dir.path(), &[], &[]);
    assert_serves(&surus);
    let front = surus.front();
    assert_ne!(front, surus.pid());
    // What shares the session of a terminal can type into it (TIOCSTI): no such process reads
    // requests or runs PHP.
    for child in children(surus.pid()) {
        assert_eq!(status(child, "NSsid"), child.to_string(), "its own session");
    }
    // Of each thread, since credentials are theirs.
    for task in std::fs::read_dir(format!("/proc/{front}/task")).unwrap() {
        let task = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let uids = status(task, "Uid");
        let uids: Vec<u32> = uids
            .split_whitespace()
            .map(|id| id.parse().unwrap())
            .collect();
        assert!(
            uids.iter().all(|uid| *uid == uids[0] && *uid != 0),
            "{uids:?}"
        );
        assert_ne!(uids[0], id_of("www-data"), "PHP has a user of its own");
        let gids = status(task, "Gid") + " " + &status(task, "Groups");
        assert!(gids.split_whitespace().all(|gid| gid != "0"), "{gids}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status(task, set), NO_CAPABILITIES, "{set}");
        }
        assert_eq!(status(task, "NoNewPrivs"), "1");
        assert_eq!(status(task, "Seccomp"), "2");
    }
    // What root owns in /proc belongs to a process that is not dumpable.
    let environ = std::fs::metadata(format!("/proc/{front}/environ")).unwrap();
    assert_eq!(environ.uid(), 0, "the front is not dumpable");
    let limits = std::fs::read_to_string(format!("/proc/{front}/limits")).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core"))
        .unwrap();
    assert!(
        core.split_whitespace().filter(|word| *word == "1").count() == 2,
        "{core}"
    );

    // The keeper holds no connection, and meets no network: it has never accepted one.
    assert_eq!(status(surus.pid(), "Threads"), "1");
    let log = surus.log();
    for step in [
        "privileges dropped",
        "Landlock restricts",
        "seccomp forbids",
    ] {
        assert_eq!(log.matches(step).count(), 1, "{step}:\n{log}");
    }
    assert!(log.contains("reads=["), "what it reaches: {log}");
    // Each opener is PHP's user, with nothing else.
    let openers = children(surus.pid());
    let opener = openers
        .into_iter()
        .find(|pid| is_surus(*pid) && *pid != front)
        .unwrap();
    assert!(status(opener, "Uid").starts_with(&id_of("www-data").to_string()));
    assert_eq!(status(opener, "CapEff"), NO_CAPABILITIES);
    assert_eq!(status(opener, "NoNewPrivs"), "1");
}

pub fn restrictions_that_are_switched_off_are_off_and_said_so() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let off = [
        ("SURUS_HTTP_LANDLOCK", "false"),
        ("SURUS_HTTP_SECCOMP", "false"),
    ];
    let surus = start(dir.path(), &[], &off);
    assert_serves(&surus);
    assert_eq!(status(surus.front(), "Seccomp"), "0");
    let log = surus.log();
    assert!(
        log.contains("Landlock is switched off (http.landlock)"),
        "{log}"
    );
    assert!(
        log.contains("seccomp is switched off (http.seccomp)"),
        "{log}"
    );
}

pub fn front_user_is_the_configured_one_and_root_is_refused() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let surus = start(dir.path(), &[], &[("SURUS_HTTP_USER", "www-data")]);
    assert_serves(&surus);
    assert!(status(surus.front(), "Uid").starts_with(&id_of("www-data").to_string()));
    assert!(surus.log().contains("set http.user"), "{}", surus.log());
    drop(surus);
    for (user, why) in [
        ("root", "http.user is root"),
        ("nobody-has-this", "no user `nobody-has-this`"),
    ] {
        let log = Surus::spawn(dir.path(), &[], &[("SURUS_HTTP_USER", user)])
            .err()
            .unwrap();
        assert!(log.contains(why) && log.contains("http.user"), "{log}");
    }
}

pub fn dead_front_is_replaced_and_its_php_ends() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let mut surus = start(dir.path(), &[], &[]);
    assert_serves(&surus);
    let (front, before) = (surus.front(), descendants(surus.pid()));
    assert!(
        before.len() >= 4,
        "front, opener, template, worker: {before:?}"
    );
    surus_sys::process::kill(front).unwrap();
    // Connections wait in the listener, which the keeper has.
    until("another front answers", || {
        get(&surus, "/") == Some((200, "hello".into()))
    });
    assert_ne!(surus.front(), front);
    for pid in before {
        until("what the front had started has ended", || !lives(pid));
    }
    assert_serves(&surus);
    assert!(
        surus.log().contains("the front has died"),
        "{}",
        surus.log()
    );
    surus.signal("TERM");
    assert!(surus.wait().success());
}

pub fn killed_keeper_leaves_no_process() {
    let dir = hello();
    for engine in ["classic", "fpm", "builtin"] {
        let mut surus = start(dir.path(), &["--engine", engine], &[]);
        assert_serves(&surus);
        let all = descendants(surus.pid());
        assert!(!all.is_empty());
        surus.signal("KILL");
        surus.wait();
        for pid in all {
            until("it has ended", || !lives(pid));
        }
    }
}

pub fn server_of_a_user_is_one_process() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let (uid, binary) = (id_of("nobody"), dir.path().join("surus"));
    // The build directory may be closed to other users.
    let build = Path::new(env!("CARGO_BIN_EXE_surus"));
    std::fs::copy(build, &binary).unwrap();
    let minor = crate::common::php::minor();
    let program = format!("surus-php{minor}");
    std::fs::copy(build.with_file_name(&program), dir.path().join(&program)).unwrap();
    let mut command = Command::new("setpriv");
    let (user, group) = (format!("--reuid={uid}"), format!("--regid={uid}"));
    command.args([&user, &group, "--clear-groups"]).arg(&binary);
    let runtime = dir.path().join("run");
    std::fs::create_dir(&runtime).unwrap();
    chown(&runtime, Some(uid), None).unwrap();
    set_permissions(&runtime, Permissions::from_mode(0o700)).unwrap();
    let env = [("XDG_RUNTIME_DIR", runtime.to_str().unwrap())];
    let mut surus = Surus::spawn_by(command, dir.path(), &["--workers", "1"], &env)
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    assert_serves(&surus);
    assert_eq!(surus.front(), surus.pid());
    assert_eq!(children(surus.pid()).len(), 1, "the template");
    assert!(!surus.log().contains("front:"), "{}", surus.log());
    for signal in ["USR2", "QUIT"] {
        surus.signal(signal);
        if signal == "USR2" {
            surus.wait_for_log(|log| log.contains("reloaded"));
        }
    }
    assert!(surus.wait().success());
}

pub fn files_that_only_php_may_read_are_served() {
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

pub fn project_that_the_front_may_not_enter_is_served_and_reloaded() {
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
    // Only PHP's user may pass through.
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
    // The opener of the old version goes with it.
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

fn sleeping() -> tempfile::TempDir {
    app(&[
        ("index.php", "<?php echo 'hello';"),
        ("a.txt", "static"),
        ("nap.php", "<?php usleep(1500000); echo 'rested';"),
    ])
}

pub fn quit_drains() {
    let dir = sleeping();
    let mut surus = start(dir.path(), &["--workers", "2"], &[]);
    let url = surus.url.clone();
    let nap = std::thread::spawn(move || {
        let mut answer = ureq::get(format!("{url}/nap.php")).call().unwrap();
        answer.body_mut().read_to_string().unwrap()
    });
    std::thread::sleep(Duration::from_millis(500));
    surus.signal("QUIT");
    assert_eq!(nap.join().unwrap(), "rested");
    assert!(surus.wait().success());
}

pub fn usr2_reloads() {
    let dir = hello();
    let surus = start(dir.path(), &[], &[]);
    assert_serves(&surus);
    surus.signal("USR2");
    surus.wait_for_log(|log| log.contains("reloaded"));
    assert_serves(&surus);
}

pub fn usr1_reopens_renamed_logs() {
    let dir = hello();
    let logs = tempfile::tempdir().unwrap();
    let (log, access) = (
        logs.path().join("surus.log"),
        logs.path().join("access.log"),
    );
    let socket = logs.path().join("http.sock");
    let mut surus = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("serve")
        .arg(dir.path())
        .args(["--workers", "1", "--listen"])
        .arg(format!("unix:{}", socket.display()))
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&access).unwrap())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let ask = |path: &str| {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket)?;
        use std::io::{Read, Write};
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    until("it serves", || {
        ask("/?before").is_ok_and(|answer| answer.ends_with("hello"))
    });
    until("it is logged", || read(&access).contains("/?before"));
    let old = logs.path().join("access.log.1");
    std::fs::rename(&access, &old).unwrap();
    std::fs::rename(&log, logs.path().join("surus.log.1")).unwrap();
    let pid = surus.id().to_string();
    let signal = |name: &str| {
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    };
    signal("USR1");
    until("the log is there again", || {
        read(&log).contains("logs reopened")
    });
    until("both are written again", || {
        ask("/?after").unwrap();
        read(&access).contains("/?after")
    });
    assert!(!read(&old).contains("/?after ") || read(&access).contains("/?after"));
    let elsewhere = logs.path().join("elsewhere");
    std::fs::remove_file(&access).unwrap();
    symlink(&elsewhere, &access).unwrap();
    signal("USR1");
    until("the link is refused", || {
        read(&log).contains("cannot reopen the log")
    });
    assert!(!elsewhere.exists());
    assert_eq!(read(&log).matches("logs reopened").count(), 1);
    signal("TERM");
    assert!(surus.wait().unwrap().success());
}

pub fn process_1_reaps_orphans_and_ends_by_a_signal() {
    if is_root() {
        process_1(&[], &[]);
    }
}

pub fn process_1_that_is_not_root_reaps_orphans_and_passes_signals_on() {
    if !is_root() {
        return;
    }
    let runtime = tempfile::tempdir().unwrap();
    let uid = id_of("nobody");
    chown(runtime.path(), Some(uid), None).unwrap();
    set_permissions(runtime.path(), Permissions::from_mode(0o700)).unwrap();
    let (user, group) = (format!("--reuid={uid}"), format!("--regid={uid}"));
    let env = [("XDG_RUNTIME_DIR", runtime.path().to_str().unwrap())];
    process_1(&["setpriv", &user, &group, "--clear-groups"], &env);
}

/// Starts a server as process 1 of a namespace, by a command that becomes it.
fn process_1(by: &[&str], env: &[(&str, &str)]) {
    let dir = app(&[
        ("index.php", "<?php echo 'hello';"),
        ("a.txt", "static"),
        (
            "orphan.php",
            "<?php shell_exec('(sleep 0.1 &) > /dev/null 2>&1'); echo 'left';",
        ),
    ]);
    let build = Path::new(env!("CARGO_BIN_EXE_surus"));
    let program = format!("surus-php{}", crate::common::php::minor());
    // The build directory may be closed to other users.
    for name in ["surus", &program] {
        std::fs::copy(build.with_file_name(name), dir.path().join(name)).unwrap();
    }
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
        .args(by);
    command.arg(dir.path().join("surus"));
    let surus = Surus::spawn_by(command, dir.path(), &["--workers", "1"], env)
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    let init = children(surus.pid())[0];
    for _ in 0..5 {
        assert_eq!(get(&surus, "/orphan.php"), Some((200, "left".into())));
    }
    std::thread::sleep(Duration::from_millis(300));
    until("no zombie is left", || {
        !children(init).into_iter().any(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.contains(") Z ")
        })
    });
    let send = |name: &str| {
        let sent = Command::new("kill")
            .args(["-s", name, &init.to_string()])
            .status();
        assert!(sent.unwrap().success());
    };
    send("USR2");
    surus.wait_for_log(|log| log.contains("reloaded"));
    assert_serves(&surus);
    send("QUIT");
    until("process 1 has ended", || !lives(init));
}

pub fn every_engine_answers_is_interrupted_and_reloads_through_the_keeper() {
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
            ("SURUS_HTTP_TIMEOUT", "1s"),
            ("SURUS_ENGINE_KILL_AFTER", "200ms"),
        ];
        let surus = start(dir.path(), &["--engine", engine, "--workers", "2"], &env);
        assert_serves(&surus);
        if is_root() {
            let php = id_of("www-data");
            let expected = format!("{php} [{php}]");
            assert_eq!(get(&surus, "/who.php"), Some((200, expected)), "{engine}");
        }
        // In memory, and in a file of the spool.
        for size in [1, 200_000] {
            let sent = ureq::post(format!("{}/count.php", surus.url)).send(vec![b'x'; size]);
            let counted = sent.unwrap().body_mut().read_to_string().unwrap();
            assert_eq!(counted, size.to_string(), "{engine}");
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
        assert!(!surus.log().contains("refused what"), "{}", surus.log());
    }
}

pub fn php_fpm_that_the_front_may_not_connect_to_is_connected_to_by_the_keeper() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let fpm = tempfile::tempdir().unwrap();
    set_permissions(fpm.path(), Permissions::from_mode(0o755)).unwrap();
    let (socket, settings) = (fpm.path().join("fpm.sock"), fpm.path().join("fpm.conf"));
    // For root alone.
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
    let env = [("SURUS_ENGINE_ADDRESS", address.as_str())];
    let second = start(dir.path(), &["--engine", "fpm"], &env);
    assert_serves(&second);
    drop(second);
    surus_sys::process::terminate(server.id()).unwrap();
    server.wait().unwrap();
}
