//! Tests signals to a server: to the keeper, to one process, to process 1, and inherited
//! dispositions.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::Surus;
use crate::common::executable::copy_executable;
use crate::server::{
    app, assert_serves, children, get, hello, id_of, is_root, lives, start, until,
};

fn sleeping() -> tempfile::TempDir {
    app(&[
        ("index.php", "<?php echo 'hello';"),
        ("a.txt", "static"),
        ("nap.php", NAP),
    ])
}

const NAP: &str = "<?php error_log('lies down'); usleep(1500000); echo 'rested';";

pub fn quit_drains() {
    let dir = sleeping();
    let mut surus = start(dir.path(), &["--workers", "2"], &[]);
    let nap = nap(&surus);
    surus.signal("QUIT");
    assert_eq!(nap.join().unwrap(), "rested");
    assert!(surus.wait().success());
}

/// Ctrl-C in a terminal sends it to all processes of the foreground group.
pub fn interrupt_of_the_process_group_drains() {
    for name in ["INT", "QUIT", "TERM"] {
        let dir = sleeping();
        let mut command = Command::new("setsid");
        command.arg(env!("CARGO_BIN_EXE_surus"));
        let mut surus = Surus::spawn_by(command, dir.path(), &["--workers", "2"], &[])
            .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
        let nap = nap(&surus);
        let group = format!("-{}", surus.pid());
        let sent = Command::new("kill")
            .args(["-s", name, "--", &group])
            .status();
        assert!(sent.unwrap().success());
        assert_eq!(nap.join().unwrap(), "rested", "{name}");
        assert!(surus.wait().success(), "{name}: {}", surus.log());
    }
}

/// timeout(1), npm and foreman pass on what the process group has got.
pub fn repeated_signal_drains_as_one_does() {
    let dir = sleeping();
    let mut surus = start(dir.path(), &["--workers", "2"], &[]);
    let nap = nap(&surus);
    for name in ["INT", "TERM", "INT"] {
        surus.signal(name);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(nap.join().unwrap(), "rested");
    assert!(surus.wait().success());
}

pub fn stray_signals_end_nothing() {
    const STRAY: [&str; 9] = [
        "ALRM", "VTALRM", "PROF", "IO", "PWR", "STKFLT", "XCPU", "XFSZ", "RTMIN",
    ];
    let dir = sleeping();
    let mut surus = start(dir.path(), &["--workers", "2"], &[]);
    let (keeper, front) = (surus.pid(), surus.front());
    let nap = nap(&surus);
    for name in STRAY {
        for pid in [keeper, front] {
            let pid = pid.to_string();
            let sent = Command::new("kill").args(["-s", name, &pid]).status();
            assert!(sent.unwrap().success(), "{name}");
        }
        assert_serves(&surus);
    }
    assert_eq!(nap.join().unwrap(), "rested");
    assert_eq!(surus.front(), front);
    surus.signal("TERM");
    assert!(surus.wait().success());
}

/// A request in flight.
fn nap(surus: &Surus) -> std::thread::JoinHandle<String> {
    let url = surus.url.clone();
    let begun = || surus.log().matches("lies down").count();
    let before = begun();
    let nap = std::thread::spawn(move || {
        let mut answer = ureq::get(format!("{url}/nap.php")).call().unwrap();
        answer.body_mut().read_to_string().unwrap()
    });
    until("it runs", || begun() > before);
    nap
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
    until("a later request is in the new file", || {
        ask("/?last").unwrap();
        read(&access).contains("/?last")
    });
    assert!(!read(&old).contains("/?last"));
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
    assert!(!socket.exists());
}

pub fn failed_start_leaves_no_socket() {
    let dir = app(&[("index.php", "<?php throw new Exception('no luck');")]);
    let sockets = tempfile::tempdir().unwrap();
    let [http, admin] = ["http", "admin"].map(|name| sockets.path().join(name));
    let surus = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("serve")
        .arg(dir.path())
        .args(["--engine", "worker", "--workers", "1", "--script"])
        .arg(dir.path().join("index.php"))
        .arg("--listen")
        .arg(format!("unix:{}", http.display()))
        .env("SURUS_ADMIN_LISTEN", format!("unix:{}", admin.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&surus.stderr);
    assert!(
        !surus.status.success() && said.contains("no luck"),
        "{said}"
    );
    assert!(!http.exists() && !admin.exists(), "{said}");
}

pub fn process_1_reaps_orphans_and_exits_on_a_signal() {
    if is_root() {
        process_1(&[], &[]);
    }
}

pub fn unprivileged_process_1_reaps_orphans_and_forwards_signals() {
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
        ("nap.php", NAP),
        (
            "orphan.php",
            "<?php shell_exec('(sleep 0.1 &) > /dev/null 2>&1'); echo 'left';",
        ),
    ]);
    let build = Path::new(env!("CARGO_BIN_EXE_surus"));
    let program = format!("surus-php{}", crate::common::php::minor());
    // The build directory may be closed to other users.
    for name in ["surus", &program] {
        copy_executable(&build.with_file_name(name), &dir.path().join(name));
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
    send("USR1");
    surus.wait_for_log(|log| log.contains("logs reopened"));
    let nap = nap(&surus);
    send("QUIT");
    assert_eq!(nap.join().unwrap(), "rested");
    until("process 1 has ended", || !lives(init));
}

/// What a parent process may pass on: a shell ignores `INT` and `QUIT` for its background jobs,
/// nohup(1) ignores `HUP`, and some programs block signals or ignore `CHLD`.
const LEFT: [&str; 2] = [
    "--ignore-signal=INT,QUIT,TERM,HUP,USR1,USR2,CHLD",
    "--block-signal=INT,QUIT,TERM,HUP,USR1,USR2,CHLD",
];

pub fn signals_ignored_or_blocked_by_the_starter_work() {
    let dir = app(&[
        ("index.php", "<?php echo 'hello';"),
        ("a.txt", "static"),
        (
            "child.php",
            "<?php echo shell_exec('grep -E \"Sig(Blk|Ign)\" /proc/self/status');",
        ),
    ]);
    let build = Path::new(env!("CARGO_BIN_EXE_surus"));
    let program = format!("surus-php{}", crate::common::php::minor());
    // The build directory may be closed to other users.
    for name in ["surus", &program] {
        copy_executable(&build.with_file_name(name), &dir.path().join(name));
    }
    let runtime = tempfile::tempdir().unwrap();
    let env = [("XDG_RUNTIME_DIR", runtime.path().to_str().unwrap())];
    let mut starters = vec![vec![]];
    if is_root() {
        let uid = id_of("nobody");
        chown(runtime.path(), Some(uid), None).unwrap();
        set_permissions(runtime.path(), Permissions::from_mode(0o700)).unwrap();
        starters.push(vec![
            "setpriv".to_owned(),
            format!("--reuid={uid}"),
            format!("--regid={uid}"),
            "--clear-groups".to_owned(),
        ]);
    }
    for starter in starters {
        for left in LEFT {
            for engine in ["classic", "cgi"] {
                inherits(&starter, left, engine, dir.path(), &env);
            }
        }
    }
}

fn inherits(starter: &[String], left: &str, engine: &str, dir: &Path, env: &[(&str, &str)]) {
    println!("{starter:?} {left} {engine}");
    let mut command = Command::new("env");
    command.arg(left).args(starter).arg(dir.join("surus"));
    let args = ["--workers", "1", "--engine", engine];
    let mut surus = Surus::spawn_by(command, dir, &args, env)
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    assert_serves(&surus);
    let (_, sees) = get(&surus, "/child.php").unwrap();
    // SIGPIPE is ignored on classic, as under php-fpm; popen(3) ignores signals of the C library.
    let expected = (1 << 12) | (0b11 << 31);
    for line in sees.lines() {
        let set = u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
        assert_eq!(set & !expected, 0, "{line}");
    }
    assert_eq!(sees.lines().count(), 2, "{sees}");
    surus.signal("USR2");
    surus.wait_for_log(|log| log.contains("reloaded"));
    if surus.front() != surus.pid() {
        let front = surus.front();
        surus_sys::process::kill(front).unwrap();
        until("another front end answers", || {
            surus.front() != front && get(&surus, "/") == Some((200, "hello".into()))
        });
    }
    surus.signal("QUIT");
    let pid = surus.pid();
    until("it ends", || !lives(pid));
    assert!(surus.wait().success(), "{}", surus.log());
}
