//! Faults of the process of the queues and of its siblings, and its rights.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::super::database::Kind;
use super::super::plain::Plain;
use super::super::site::{ids_of, is_root};
use super::super::work::{Work, descendants, signal};
use super::{By, SERVE, assert_serves, page, queue_process, serve, spawn_with, until};
use crate::common::Surus;

#[test]
fn killed_process_of_the_queues_is_replaced_and_pages_notice_nothing() {
    if !is_root() {
        return;
    }
    let plain = Plain::new(Kind::Sqlite, "lease = '3s'\n[work]\nserve = true\n");
    let mut surus = serve(&plain, By::Root);
    let front = surus.front();
    for number in 0..2 {
        plain.push(number, "wait");
        until(&surus, || plain.count(&format!("begins {number}")) > 0);
        let before = queue_process(&surus).unwrap();
        signal(before, "KILL");
        until(&surus, || {
            queue_process(&surus).is_some_and(|pid| pid != before)
        });
        assert_serves(&surus);
        plain.go(true);
        until(&surus, || plain.table.is_empty());
        plain.go(false);
    }
    assert_eq!(surus.front(), front);
    assert!(
        surus.log().contains("the process of the queues exited"),
        "{}",
        surus.log()
    );
    surus.signal("TERM");
    assert!(surus.wait().success(), "{}", surus.log());
}

#[test]
fn job_that_kills_the_process_of_the_queues_is_buried_and_no_other() {
    if !is_root() {
        return;
    }
    let settings = "lease = '3s'\n[work]\nserve = true\nmax_losses = 2\n";
    let plain = Plain::new(Kind::Sqlite, settings);
    let surus = serve(&plain, By::Root);
    plain.push(0, "wait");
    until(&surus, || plain.count("begins 0") == 1);
    plain.push(1, "kill surus");
    let exits = |surus: &Surus| {
        surus
            .log()
            .matches("the process of the queues exited")
            .count()
    };
    until(&surus, || exits(&surus) == 1);
    plain.go(true);
    plain.push(2, "");
    until(&surus, || plain.table.is_empty());
    // Surus may be killed after a job is done and before the broker knows it.
    assert!(plain.count("done 0") >= 1 && plain.count("done 2") >= 1);
    // With another job, and as the only suspect until it is enough.
    assert_eq!(
        (plain.count("begins 1"), exits(&surus)),
        (3, 3),
        "{}",
        surus.log()
    );
    let failed = plain.table.failed();
    let (_, payload, why) = &failed[0];
    assert!(
        failed.len() == 1 && payload.contains("kill surus"),
        "{failed:?}"
    );
    assert!(
        why.contains("the only suspect 2 times when the process of the queues was killed"),
        "{why}"
    );
}

#[test]
fn hanging_process_of_the_queues_is_killed_after_its_grace_period() {
    if !is_root() {
        return;
    }
    let grace = "[work]\nserve = true\nshutdown_timeout = '1s'\n";
    let plain = Plain::new(Kind::Sqlite, grace);
    let mut surus = serve(&plain, By::Root);
    let Some(mut debugger) = hold(queue_process(&surus).unwrap()) else {
        eprintln!("skipped: ptrace(2) is not permitted");
        return;
    };
    surus.signal("TERM");
    surus.wait_for_log(|log| log.contains("the process of the queues did not exit in time"));
    assert!(surus.wait().success(), "{}", surus.log());
    debugger.wait().unwrap();
}

#[test]
fn stopped_process_of_the_queues_is_resumed() {
    if !is_root() {
        return;
    }
    let plain = Plain::new(Kind::Sqlite, SERVE);
    let mut surus = serve(&plain, By::Root);
    let process = queue_process(&surus).unwrap();
    for number in 0..3 {
        signal(process, "STOP");
        plain.push(number, "");
        until(&surus, || plain.count(&format!("done {number}")) == 1);
    }
    surus.wait_for_log(|log| log.contains("the process of the queues was stopped"));
    assert_eq!(queue_process(&surus), Some(process));
    signal(process, "STOP");
    surus.signal("TERM");
    assert!(surus.wait().success(), "{}", surus.log());
    assert!(
        !surus.log().contains("did not exit in time"),
        "{}",
        surus.log()
    );
}

#[test]
fn killed_front_end_leaves_running_jobs_alone() {
    if !is_root() {
        return;
    }
    let plain = Plain::new(Kind::Sqlite, SERVE);
    let surus = serve(&plain, By::Root);
    let (front, queues) = (surus.front(), queue_process(&surus));
    plain.push(0, "wait");
    until(&surus, || plain.count("begins 0") == 1);
    signal(front, "KILL");
    until(&surus, || page(&surus, "/").as_deref() == Some("hello"));
    assert_ne!(surus.front(), front);
    plain.go(true);
    until(&surus, || plain.table.is_empty());
    assert_eq!(queue_process(&surus), queues);
    assert_eq!((plain.count("begins 0"), plain.count("done 0")), (1, 1));
}

#[test]
fn process_of_the_queues_has_the_rights_of_php_and_ends_with_the_keeper() {
    if !is_root() {
        return;
    }
    let plain = Plain::new(Kind::Sqlite, SERVE);
    let mut surus = serve(&plain, By::Root);
    let pid = queue_process(&surus).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().to_string()
    };
    let (user, _) = ids_of("www-data");
    assert_eq!(field("Uid:"), format!("{user}\t{user}\t{user}\t{user}"));
    assert_eq!(field("NoNewPrivs:"), "1");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(field("NSsid:"), pid.to_string(), "no terminal");
    // Not the listeners of pages, and nothing else of the keeper.
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    let links: Vec<_> = links.map(|link| link.display().to_string()).collect();
    let port: u16 = surus.address.rsplit(':').next().unwrap().parse().unwrap();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let listener = table.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let is_it = fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "0A";
        is_it.then(|| format!("socket:[{}]", fields[9]))
    });
    assert!(!links.contains(&listener.unwrap()), "{links:?}");
    let all = descendants(surus.pid());
    surus.signal("KILL");
    surus.wait();
    for pid in all {
        until(&surus, || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        });
    }
}

#[test]
fn jobs_run_as_root_if_php_does() {
    if !is_root() {
        return;
    }
    let plain = Plain::new(Kind::Sqlite, SERVE);
    let as_root = [("SURUS_ENGINE_USER", "root")];
    let mut surus = spawn_with(&plain, By::Root, &as_root).unwrap();
    plain.push(0, "");
    until(&surus, || plain.count("done 0") == 1);
    surus.signal("TERM");
    assert!(surus.wait().success(), "{}", surus.log());
    let notes = ("SURUS_ENV_NOTES", plain.notes.to_str().unwrap());
    let work = Work::start(&plain.site, &[], &[as_root[0], notes]);
    work.wait_for_log(|log| log.contains("jobs run as root (engine.user)"));
    plain.push(1, "");
    work.wait_until(|| plain.count("done 1") == 1);
}

/// Holds a process as a debugger does, until it exits. None if that is not permitted.
fn hold(pid: u32) -> Option<Child> {
    let code = "import ctypes, os, sys\n\
        pid, attach = int(sys.argv[1]), 16\n\
        if ctypes.CDLL(None).ptrace(attach, pid, None, None) == 0:\n    \
            os.waitpid(pid, 0)\n    \
            print('held', flush=True)\n    \
            os.waitpid(pid, 0)\n";
    let mut python = Command::new("python3")
        .args(["-c", code, &pid.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(python.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    match line.as_str() {
        "held\n" => Some(python),
        _ => {
            python.wait().unwrap();
            None
        }
    }
}
