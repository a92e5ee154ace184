//! Tests the processes of a server: their users and rights, and what happens when one crashes.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::common::executable::copy_executable;
use crate::common::{Surus, is_surus};
use crate::server::{
    assert_serves, children, descendants, get, hello, id_of, is_root, lives, start, status, until,
};

const NO_CAPABILITIES: &str = "0000000000000000";

pub fn front_end_started_by_root_has_no_privileges() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let surus = start(dir.path(), &[], &[]);
    assert_serves(&surus);
    let front = surus.front();
    assert_ne!(front, surus.pid());
    // Processes in a terminal's session can type into it (TIOCSTI): none of them reads requests or
    // runs PHP.
    for child in children(surus.pid()) {
        assert_eq!(status(child, "NSsid"), child.to_string(), "its own session");
    }
    // Of each thread, because credentials are per thread.
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
    // In /proc, root owns the files of processes that are not dumpable.
    let environ = std::fs::metadata(format!("/proc/{front}/environ")).unwrap();
    assert_eq!(environ.uid(), 0, "the front end is not dumpable");
    let limits = std::fs::read_to_string(format!("/proc/{front}/limits")).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core"))
        .unwrap();
    assert!(
        core.split_whitespace().filter(|word| *word == "1").count() == 2,
        "{core}"
    );

    // The keeper has no connection to the network: it has never accepted one. The front end has one
    // here, so that the look finds connections.
    let client = std::net::TcpStream::connect(&surus.address).unwrap();
    let port = client.local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    until("the connection is accepted", || {
        connections(front).contains(&address)
    });
    assert_eq!(connections(surus.pid()), Vec::<String>::new());
    assert_eq!(status(surus.pid(), "Threads"), "1");
    let log = surus.log();
    for step in [
        "privileges dropped",
        "Landlock restricts",
        "seccomp forbids",
        "the front end runs as a user that other services may have",
    ] {
        assert_eq!(log.matches(step).count(), 1, "{step}:\n{log}");
    }
    assert!(log.contains("reads=["), "what it reaches: {log}");
    // Each opener runs as PHP's user, with no other rights.
    let openers = children(surus.pid());
    let opener = openers
        .into_iter()
        .find(|pid| is_surus(*pid) && *pid != front)
        .unwrap();
    assert!(status(opener, "Uid").starts_with(&id_of("www-data").to_string()));
    assert_eq!(status(opener, "CapEff"), NO_CAPABILITIES);
    assert_eq!(status(opener, "NoNewPrivs"), "1");
}

/// The clients' addresses of a process's connections by TCP (proc_net_tcp(5)).
fn connections(pid: u32) -> Vec<String> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    let links: Vec<_> = links.map(|link| link.display().to_string()).collect();
    let table = ["tcp", "tcp6"].map(|name| std::fs::read_to_string(format!("/proc/net/{name}")));
    let mut found = Vec::new();
    for line in table
        .iter()
        .flatten()
        .flat_map(|table| table.lines().skip(1))
    {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (remote, state, inode) = (fields[2], fields[3], fields[9]);
        const LISTENS: &str = "0A";
        if state != LISTENS && links.contains(&format!("socket:[{inode}]")) {
            let (_, port) = remote.split_once(':').unwrap();
            found.push(format!(
                "127.0.0.1:{}",
                u16::from_str_radix(port, 16).unwrap()
            ));
        }
    }
    found
}

pub fn disabled_restrictions_are_off_and_logged() {
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

pub fn http_user_is_applied_and_root_is_rejected() {
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

/// Without `http.user`.
pub fn front_end_runs_as_www_data_if_neither_surus_exists_nor_php_runs_as_www_data() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let surus = start(dir.path(), &[], &[("SURUS_ENGINE_USER", "daemon")]);
    assert_serves(&surus);
    let own = surus_sys::process::find_user("surus", None).unwrap();
    let expected = own.map_or_else(|| id_of("www-data"), |user| user.uid);
    let uids = status(surus.front(), "Uid");
    let expected = expected.to_string();
    assert!(uids.split_whitespace().all(|uid| uid == expected), "{uids}");
}

pub fn exited_front_end_is_replaced_and_its_php_exits() {
    if !is_root() {
        return;
    }
    let dir = hello();
    let mut surus = start(dir.path(), &[], &[]);
    assert_serves(&surus);
    let (front, before) = (surus.front(), descendants(surus.pid()));
    assert!(
        before.len() >= 4,
        "front end, opener, master process, worker: {before:?}"
    );
    surus_sys::process::kill(front).unwrap();
    // Connections wait in the listener, which the keeper keeps open.
    until("another front end answers", || {
        get(&surus, "/") == Some((200, "hello".into()))
    });
    assert_ne!(surus.front(), front);
    for pid in before {
        until("the front end's children have exited", || !lives(pid));
    }
    assert_serves(&surus);
    assert!(
        surus.log().contains("the front end exited"),
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
    copy_executable(build, &binary);
    let minor = crate::common::php::minor();
    let program = format!("surus-php{minor}");
    copy_executable(&build.with_file_name(&program), &dir.path().join(&program));
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
    assert_eq!(children(surus.pid()).len(), 1, "the master process");
    assert!(!surus.log().contains("front end:"), "{}", surus.log());
    for signal in ["USR2", "QUIT"] {
        surus.signal(signal);
        if signal == "USR2" {
            surus.wait_for_log(|log| log.contains("reloaded"));
        }
    }
    assert!(surus.wait().success());
}
