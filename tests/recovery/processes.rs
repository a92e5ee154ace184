//! Tests processes that crash or are stopped.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::site::{Site, children, kill, lives, until};

#[test]
fn killing_a_busy_worker_costs_only_its_request() {
    let site = Site::start(&["--workers", "3"], &[]);
    let others = [
        site.begun("/nap.php?ms=1500"),
        site.begun("/nap.php?ms=1500"),
    ];
    let before: BTreeSet<u32> = site.workers().into_iter().collect();
    // The worker of the test is the one that uses CPU time.
    let victim = site.begun("/loop.php");
    let busy = *before
        .iter()
        .max_by_key(|pid| cpu(**pid))
        .expect("there are workers");
    until("it has used some", || {
        cpu(busy) > 5 || before.iter().any(|pid| cpu(*pid) > 5)
    });
    let busy = *before.iter().max_by_key(|pid| cpu(**pid)).unwrap();
    kill(busy, "KILL");
    assert_eq!(victim.join().unwrap().unwrap().status, 502);
    for other in others {
        assert_eq!(other.join().unwrap().unwrap().body, "rested");
    }
    assert_eq!(site.get("/hello.php").body, "hello");
}

fn cpu(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let mut fields = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(11);
    fields
        .next()
        .and_then(|ticks| ticks.parse().ok())
        .unwrap_or(0)
}

#[test]
fn killing_idle_workers_costs_nothing() {
    let site = Site::start(&["--workers", "2"], &[]);
    for pid in site.workers() {
        kill(pid, "KILL");
    }
    for _ in 0..20 {
        assert_eq!(site.get("/hello.php").body, "hello");
    }
    until("both are replaced", || site.workers().len() == 2);
}

#[test]
fn killing_the_master_process_costs_no_request() {
    kill_the_master(&Site::start(&["--workers", "2"], &[]));
}

/// Running requests complete, and new ones are answered.
pub fn kill_the_master(site: &Site) {
    let master = site.master();
    let running = [
        site.begun("/nap.php?ms=1000"),
        site.begun("/nap.php?ms=1000"),
    ];
    kill(master, "KILL");
    let load = site.load(4, "/hello.php");
    for task in running {
        assert_eq!(task.join().unwrap().unwrap().body, "rested");
    }
    until("there is another", || {
        site.master() != master && lives(site.master())
    });
    std::thread::sleep(Duration::from_millis(500));
    load.wait_for(11);
    let answers = load.stop();
    assert!(
        answers.iter().all(|status| *status == Some(200)),
        "{answers:?}"
    );
}

#[test]
fn killing_surus_leaves_no_php_process() {
    let mut site = Site::start(&["--workers", "3"], &[]);
    let processes: Vec<u32> = site.workers().into_iter().chain([site.master()]).collect();
    let looping = site.begun("/loop.php");
    let napping = site.begun("/nap.php?ms=30000");
    site.surus.signal("KILL");
    site.surus.wait();
    for pid in processes {
        until("PHP has ended", || !lives(pid));
    }
    assert!(looping.join().unwrap().is_err() && napping.join().unwrap().is_err());
}

#[test]
fn external_php_processes_end_however_surus_ends() {
    for engine in ["fpm", "builtin", "cgi", "cli"] {
        for signals in [&["KILL"][..], &["TERM", "TERM"]] {
            let mut site = Site::start(&["--engine", engine, "--workers", "2"], &[]);
            let looping = site.begun("/loop.php");
            let mut processes = children(site.surus.pid());
            let grandchildren: Vec<u32> = processes.iter().flat_map(|pid| children(*pid)).collect();
            processes.extend(grandchildren);
            assert!(!processes.is_empty(), "{engine}");
            for (n, signal) in signals.iter().enumerate() {
                if n > 0 {
                    site.surus.wait_for_log(|log| log.contains("shutting down"));
                    // One that comes at once repeats the first.
                    std::thread::sleep(Duration::from_millis(1500));
                }
                site.surus.signal(signal);
            }
            site.surus.wait();
            for pid in processes {
                until("PHP has ended", || !lives(pid));
            }
            // A second TERM may leave time for an error response.
            let answer = looping.join().unwrap();
            assert!(answer.is_err() || answer.unwrap().status >= 500, "{engine}");
        }
    }
}

#[test]
fn files_of_a_killed_surus_are_removed_by_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let homes = || {
        let entries = std::fs::read_dir(directory.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| name.starts_with("surus-php-"))
            .collect::<Vec<_>>()
    };
    let start = || {
        let temporary = [("TMPDIR", directory.path().to_str().unwrap())];
        Site::start(&["--engine", "cgi", "--workers", "1"], &temporary)
    };
    // A process of another program, whatever its name.
    std::fs::create_dir(directory.path().join("surus-php-notes")).unwrap();
    let mut killed = start();
    killed.surus.signal("KILL");
    killed.surus.wait();
    assert_eq!(homes().len(), 2, "{:?}", homes());

    let first = start();
    assert_eq!(homes().len(), 2, "{:?}", homes());
    let second = start();
    assert_eq!(
        homes().len(),
        3,
        "one that lives was removed: {:?}",
        homes()
    );
    assert_eq!(first.get("/hello.php").status, 200);
    drop((first, second));
    until("homes are removed", || homes() == ["surus-php-notes"]);
}

#[test]
fn killing_surus_and_the_master_process_leaves_no_php_process() {
    let mut site = Site::start(&["--workers", "2"], &[]);
    let processes: Vec<u32> = site.workers();
    let _looping = site.begun("/loop.php");
    let master = site.master();
    kill(master, "KILL");
    site.surus.signal("KILL");
    site.surus.wait();
    for pid in processes {
        until("PHP has ended", || !lives(pid));
    }
}

#[test]
fn stopped_worker_is_replaced_after_its_deadline() {
    let site = Site::start(
        &["--workers", "1"],
        &[
            ("SURUS_HTTP_REQUEST_TIMEOUT", "5s"),
            ("SURUS_ENGINE_KILL_TIMEOUT", "300ms"),
        ],
    );
    // On a busy machine, it may not begin, or not be stopped, by its deadline.
    let stopped = (0..20).find_map(|_| {
        until("there is a worker", || !site.workers().is_empty());
        let worker = site.workers()[0];
        let began = Instant::now();
        let held = site.try_begun("/gate.php").ok()?;
        kill(worker, "STOP");
        if began.elapsed() < Duration::from_secs(5) {
            return Some((worker, held));
        }
        kill(worker, "CONT");
        None
    });
    let (worker, held) = stopped.expect("it is stopped");
    assert_eq!(held.join().unwrap().unwrap().status, 504);
    assert_eq!(site.get_in_time("/hello.php").body, "hello");
    assert!(!site.workers().contains(&worker));
}

#[test]
fn crashing_workers_are_replaced_with_backoff() {
    let site = Site::start(&["--workers", "2"], &[]);
    let mut seen = BTreeSet::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        for pid in site.workers() {
            if seen.insert(pid) {
                kill(pid, "KILL");
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(
        (4..30).contains(&seen.len()),
        "{} processes in 3 seconds",
        seen.len()
    );
    assert_eq!(site.get("/hello.php").body, "hello");
}

#[test]
fn queue_time_is_measured() {
    for engine in ["classic", "fpm"] {
        let admin = tempfile::tempdir().unwrap();
        let socket = admin.path().join("admin");
        let listen = format!("unix:{}", socket.display());
        let site = Site::start(
            &["--engine", engine, "--workers", "1"],
            &[("SURUS_ADMIN_LISTEN", &listen)],
        );
        let value = |name: &str| -> f64 {
            let metrics = crate::site::metrics(&socket);
            let line = metrics.lines().find(|line| line.starts_with(name));
            let line = line.unwrap_or_else(|| panic!("no {name} in:\n{metrics}"));
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        let began = Instant::now();
        let running = site.begun("/gate.php");
        let waiting = [site.begin("/gate.php"), site.begin("/gate.php")];
        until("two wait", || value("surus_queue_length") == 2.0);
        let wait = Duration::from_millis(400);
        std::thread::sleep(wait);
        site.open_gate();
        for one in [running].into_iter().chain(waiting) {
            assert_eq!(one.join().unwrap().unwrap().status, 200);
        }
        assert_eq!(value("surus_queue_duration_seconds_count"), 3.0);
        let waited = value("surus_queue_duration_seconds_sum");
        let expected = 2.0 * wait.as_secs_f64()..3.0 * began.elapsed().as_secs_f64();
        assert!(expected.contains(&waited), "{engine}: {waited}");
    }
}
