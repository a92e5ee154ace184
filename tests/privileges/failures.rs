//! Tests the keeper when one of its processes crashes, hangs, or starts in an unexpected place.

use std::fs::{Permissions, set_permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Surus, is_surus};
use crate::server::{
    app, assert_serves, children, descendants, get, hello, id_of, is_root, lives, start, until,
};

fn send(pid: u32, signal: &str) {
    let sent = Command::new("kill")
        .args(["-s", signal, &pid.to_string()])
        .status();
    assert!(sent.unwrap().success(), "{signal} {pid}");
}

/// The opener of a server.
fn opener(surus: &Surus) -> Option<u32> {
    let front = surus.front();
    let mut openers = children(surus.pid()).into_iter();
    openers.find(|pid| is_surus(*pid) && *pid != front && lives(*pid))
}

pub fn exited_opener_is_replaced_and_a_stopped_one_resumed() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let surus = start(dir.path(), &[], &[]);
    let number = std::cell::Cell::new(0);
    // A new name each time, because the front end caches for a second which files are readable.
    let ask = || {
        number.set(number.get() + 1);
        let name = format!("{}.txt", number.get());
        std::fs::write(dir.path().join(&name), "static").unwrap();
        get(&surus, &format!("/{name}")).unwrap()
    };
    // Meanwhile, files return 503, and PHP responds.
    let serves_again = || {
        until("files are served again", || {
            let (status, body) = ask();
            assert!(status == 503 || body == "static", "{}", surus.log());
            assert_eq!(get(&surus, "/"), Some((200, "hello".into())));
            status == 200
        });
    };
    serves_again();
    let first = opener(&surus).unwrap();
    send(first, "KILL");
    serves_again();
    until("there is another", || {
        opener(&surus).is_some_and(|pid| pid != first)
    });
    let second = opener(&surus).unwrap();
    // The keeper notices it, also while nothing asks for files.
    send(second, "STOP");
    surus.wait_for_log(|log| log.contains("was stopped (SIGSTOP); resumed"));
    serves_again();
    assert_eq!(opener(&surus), Some(second));
    // Every serving generation has an opener.
    let reloaded = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("reload")
        .arg(dir.path())
        .output();
    assert!(reloaded.unwrap().status.success());
    for pid in children(surus.pid()) {
        if is_surus(pid) && pid != surus.front() {
            // The one before the reload may be ending by itself.
            let kill = Command::new("kill")
                .args(["-s", "KILL", &pid.to_string()])
                .status();
            assert!(kill.unwrap().success() || !lives(pid));
        }
    }
    serves_again();
}

pub fn hanging_front_end_is_killed_after_the_grace_period() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let env = [("SURUS_HTTP_SHUTDOWN_TIMEOUT", "1s")];
    let mut surus = start(dir.path(), &[], &env);
    assert_serves(&surus);
    let all = descendants(surus.pid());
    send(surus.front(), "STOP");
    surus.signal("TERM");
    let pid = surus.pid();
    until("it ends", || !lives(pid));
    surus.wait();
    for pid in all {
        until("its processes have ended", || !lives(pid));
    }
    assert!(
        surus.log().contains("http.shutdown_timeout"),
        "{}",
        surus.log()
    );
}

/// A process that is held as by a debugger: no signal but SIGKILL reaches it.
struct Held(Child);

impl Held {
    /// With `exit`, the process also does not exit when it is killed.
    fn new(pid: u32, how: &[&str]) -> Held {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("hold");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/privileges/hold.c");
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-Werror", "-o"]);
        assert!(cc.arg(&program).arg(source).status().unwrap().success());
        let mut hold = Command::new(&program);
        hold.arg(pid.to_string()).args(how).stdout(Stdio::piped());
        let mut holder = hold.spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(holder.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "held\n", "{pid}");
        Held(holder)
    }
}

/// Lets the process go on.
impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The log has these words if killed processes live on.
const LEFT: &str = "the keeper stops waiting";

/// A script can hold a write to its memory, and with it the front end (http.slow_request). The
/// front end exits once PHP's processes have.
pub fn php_of_a_killed_front_end_that_does_not_exit_is_killed() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let env = [("SURUS_HTTP_SHUTDOWN_TIMEOUT", "1s")];
    let mut surus = start(dir.path(), &[], &env);
    assert_serves(&surus);
    let front = surus.front();
    let others: Vec<u32> = descendants(surus.pid())
        .into_iter()
        .filter(|pid| *pid != front)
        .collect();
    assert!(others.len() >= 3, "opener, master process, worker");
    let held = Held::new(front, &["exit"]);
    surus.signal("TERM");
    until("PHP's processes are killed", || {
        !others.iter().any(|pid| lives(*pid))
    });
    drop(held);
    let pid = surus.pid();
    until("it ends", || !lives(pid) && !lives(front));
    assert!(!surus.wait().success());
    surus.wait_for_log(|log| log.contains("http.shutdown_timeout"));
    assert!(!surus.log().contains(LEFT), "{}", surus.log());
}

/// A master process that a debugger holds does not notice that its front end has exited.
pub fn php_that_outlives_its_front_end_is_killed() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let surus = start(dir.path(), &[], &[]);
    assert_serves(&surus);
    let (front, before) = (surus.front(), descendants(surus.pid()));
    let mut started = children(surus.pid()).into_iter();
    let master = started.find(|pid| !is_surus(*pid)).unwrap();
    let _held = Held::new(master, &[]);
    send(front, "KILL");
    until("another front end answers", || {
        get(&surus, "/") == Some((200, "hello".into()))
    });
    for pid in before {
        until("its processes have ended", || !lives(pid));
    }
    assert!(!surus.log().contains(LEFT), "{}", surus.log());
    assert_serves(&surus);
}

pub fn reload_signals_during_the_start_do_not_end_the_front_end() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let surus = start(dir.path(), &[], &[]);
    assert_serves(&surus);
    send(surus.front(), "KILL");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        surus.signal("HUP");
        std::thread::sleep(Duration::from_millis(1));
    }
    until("another front end answers", || {
        get(&surus, "/") == Some((200, "hello".into()))
    });
    let log = surus.log();
    assert_eq!(log.matches("the front end exited").count(), 1, "{log}");
}

pub fn inherited_descriptors_do_not_reach_the_front_end() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let mut command = Command::new("sh");
    let script = "exec 7</etc/shadow; exec \"$@\"";
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_surus")]);
    let surus = Surus::spawn_by(command, dir.path(), &["--workers", "1"], &[]);
    let surus = surus.unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    assert_serves(&surus);
    let has = |pid: u32| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let mut links = open.flatten().map(|entry| std::fs::read_link(entry.path()));
        links.any(|link| link.is_ok_and(|link| link.ends_with("etc/shadow")))
    };
    assert!(has(surus.pid()), "the keeper keeps what it was given");
    for pid in descendants(surus.pid()) {
        assert!(!has(pid), "{pid}");
    }
}

pub fn server_of_root_in_a_namespace_without_other_users_is_one_process() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", env!("CARGO_BIN_EXE_surus")]);
    let surus = Surus::spawn_by(command, dir.path(), &["--workers", "1"], &[]);
    let surus = surus.unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    assert_serves(&surus);
    assert_eq!(surus.front(), surus.pid());
    let log = surus.log();
    assert!(log.contains("no user but root"), "{log}");
}

pub fn check_tests_the_spool_as_the_front_ends_user() {
    if !is_root() {
        return;
    }
    let dir = app(&[("index.php", "<?php echo 'hello';")]);
    let spool = tempfile::tempdir().unwrap();
    let check = |mode: u32| {
        set_permissions(spool.path(), Permissions::from_mode(mode)).unwrap();
        let said = Command::new(env!("CARGO_BIN_EXE_surus"))
            .arg("check")
            .arg(dir.path())
            .env("SURUS_HTTP_TEMP_DIR", spool.path())
            .env("SURUS_HTTP_USER", "nobody")
            .output();
        let said = said.unwrap();
        (
            said.status.success(),
            String::from_utf8_lossy(&said.stdout).into_owned(),
        )
    };
    let (works, said) = check(0o700);
    let uid = format!("as uid {}", id_of("nobody"));
    assert!(
        !works && said.contains("http.temp_dir") && said.contains(&uid),
        "{said}"
    );
    let (_, said) = check(0o1777);
    assert!(!said.contains("http.temp_dir"), "{said}");
}
