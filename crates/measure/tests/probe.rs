//! The probe: CPU time, memory and context switches of processes, and which of them listen.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use surus_measure::probe::Sample;
use surus_measure::{Probe, Usage, probe};

#[test]
fn cpu_time_near_the_resolution_of_the_clock_is_not_divided() {
    let usage = |cpu| Usage {
        pids: vec![1],
        programs: vec!["init".into()],
        ended: Vec::new(),
        samples: vec![Sample {
            at: 1.0,
            cpu,
            pss: None,
            switches: (0, 0),
            processes: 1,
        }],
    };
    assert_eq!(usage(0.01).cpu_per(10), None);
    assert_eq!(usage(0.5).cpu_per(10), Some(50_000.0));
    assert_eq!(usage(0.5).cpu_per(0), None);
    let mut ended = usage(0.5);
    ended.ended = vec![1];
    assert_eq!(ended.cpu_per(10), None, "a part of its time is lost");
}

#[test]
fn probe_counts_cpu_and_memory_of_a_child_that_works() {
    let mut child = Command::new("sh")
        .args(["-c", "while :; do :; done"])
        .spawn()
        .unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let mut probe = Probe::begin(vec![pid]).unwrap();
    // Until the kernel has given it 100 ms, however busy the machine is.
    while probe.sample().cpu < 0.1 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let usage = probe.end();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((usage.processes(), usage.pids.as_slice()), (1, &[pid][..]));
    assert!(
        usage.peak_pss().is_some_and(|bytes| bytes > 10_000),
        "{usage:?}"
    );
    assert!(
        Probe::begin(vec![pid]).is_none(),
        "a process that has exited"
    );
}

#[test]
fn probe_counts_context_switches_of_a_process_that_sleeps_and_of_one_that_works() {
    let start = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).spawn().unwrap()
    };
    // It is one process: the numbers of one that ends are lost.
    let mut sleeper = Command::new("tail")
        .args(["-f", "-s", "0.01", "--pid=1", "/dev/null"])
        .spawn()
        .unwrap();
    let mut worker = start("while :; do :; done");
    let pids = [&sleeper, &worker].map(|child| i32::try_from(child.id()).unwrap());
    let [mut sleeps, mut works] = pids.map(|pid| Probe::begin(vec![pid]).unwrap());
    // Each sleep is a voluntary switch.
    while sleeps.sample().switches.0 < 100 || works.sample().cpu < 0.1 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (sleeps, works) = (sleeps.end(), works.end());
    for child in [&mut sleeper, &mut worker] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let ((voluntary, _), (by_itself, _)) = (sleeps.switches(), works.switches());
    assert!(voluntary >= 100, "{sleeps:?}");
    assert!(
        by_itself < 50,
        "a loop does not give its CPU away: {works:?}"
    );
    // They count from when the probe began.
    assert_eq!(sleeps.samples[0].switches, (0, 0));
}

#[test]
fn listening_process_is_found_by_its_port_and_by_its_socket() {
    let own = i32::try_from(std::process::id()).unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let port = address.port();
    assert_eq!(probe::listeners(address), [own]);
    // A connection to it does not listen.
    let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let server = tcp.accept().unwrap();
    let from = client.local_addr().unwrap();
    assert!(probe::listeners(from).is_empty());
    drop((client, server));
    drop(tcp);
    assert!(probe::listeners(address).is_empty());

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let _unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert_eq!(probe::unix_listeners(&path), [own]);
    // By a path from here, and by another name of its directory.
    let up = std::env::current_dir().unwrap().components().count() - 1;
    let relative = Path::new(&"../".repeat(up)).join(path.strip_prefix("/").unwrap());
    assert_eq!(probe::unix_listeners(&relative), [own]);
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path(), &link).unwrap();
    assert_eq!(probe::unix_listeners(&link.join("socket")), [own]);
}

#[test]
fn server_on_the_same_port_of_another_address_is_another_server() {
    let own = i32::try_from(std::process::id()).unwrap();
    let listen = |address: &str| std::net::TcpListener::bind(address).unwrap();
    let port_of = |listener: &std::net::TcpListener| listener.local_addr().unwrap().port();
    let found = |host: &str, port| {
        let host: std::net::IpAddr = host.parse().unwrap();
        let found = probe::listeners((host, port).into());
        assert!(found.is_empty() || found == [own], "{found:?}");
        !found.is_empty()
    };
    let one = listen("127.0.0.2:0");
    let port = port_of(&one);
    assert!(found("127.0.0.2", port) && found("::ffff:127.0.0.2", port));
    assert!(!found("127.0.0.3", port) && !found("::1", port));
    // A wildcard listens on all addresses.
    let all = listen("0.0.0.0:0");
    let port = port_of(&all);
    assert!(found("127.0.0.3", port) && !found("::1", port));
    let both = listen("[::]:0");
    let port = port_of(&both);
    assert!(found("127.0.0.3", port) && found("::1", port));
    let mapped = listen("[::ffff:127.0.0.2]:0");
    let port = port_of(&mapped);
    assert!(found("127.0.0.2", port) && !found("127.0.0.3", port));
    let six = listen("[::1]:0");
    let port = port_of(&six);
    assert!(found("::1", port) && !found("127.0.0.1", port));
}

/// A process that ends when it is killed.
fn sleeper() -> Child {
    Command::new("sleep").arg("600").spawn().unwrap()
}

#[test]
fn root_that_ends_during_the_run_is_named_and_leaves_no_cpu_per_request() {
    for is_reaped in [false, true] {
        let (mut stays, mut ends) = (sleeper(), sleeper());
        let pids = [&stays, &ends].map(|child| child.id().cast_signed());
        let probe = Probe::begin(pids.to_vec()).unwrap();
        // Until its exec, a child has the name of its parent.
        ends.kill().unwrap();
        match is_reaped {
            true => drop(ends.wait().unwrap()),
            false => while probe::is_running(pids[1]) {},
        }
        let usage = probe.end();
        assert_eq!(usage.ended, [pids[1]], "{usage:?}");
        let ended = usage.names_of_ended();
        assert!(ended.ends_with(&format!(" ({})", pids[1])), "{ended}");
        assert!(usage.names().contains(&format!("({}), ", pids[0])));
        assert_eq!(usage.cpu_per(1), None);
        stays.kill().unwrap();
        for child in [&mut stays, &mut ends] {
            child.wait().unwrap();
        }
    }
}

#[test]
fn programs_of_the_roots_are_named() {
    let own = std::process::id().cast_signed();
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    let usage = Probe::begin(vec![own]).unwrap().end();
    assert_eq!(usage.names(), format!("{} ({own})", name.trim()));
    assert!(usage.ended.is_empty() && usage.names_of_ended().is_empty());
}

/// Starts 50 processes that use 5 ms each when a line comes. Says how many microseconds they have
/// used by their own clocks. Waits for all at the next line, and then lives on.
const MANY_SHORT: &str = r#"
import os, sys, time
sys.stdin.readline()
report, to_report = os.pipe()
stay, end = os.pipe()
for _ in range(50):
    if os.fork() == 0:
        os.close(end)
        while time.process_time() < 0.005:
            pass
        os.write(to_report, b"%8d" % (time.process_time() * 1e6))
        os.read(stay, 1)
        os._exit(0)
used = 0
for _ in range(50):
    used += int(os.read(report, 8))
print(used, flush=True)
sys.stdin.readline()
os.close(end)
for _ in range(50):
    os.wait()
print("waited", flush=True)
sys.stdin.readline()
"#;

#[test]
fn time_of_many_processes_that_use_little_is_counted_in_full() {
    let mut parent = Command::new("python3")
        .args(["-c", MANY_SHORT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut commands = parent.stdin.take().unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let begin = || Probe::begin(vec![parent.id().cast_signed()]).unwrap();
    let (mut probe, mut after_all) = (begin(), begin());
    commands.write_all(b"begin\n").unwrap();
    let used = lines.next().unwrap().unwrap().parse::<f64>().unwrap() / 1e6;
    assert!(used >= 0.25, "50 processes used {used} s");
    // The parent uses some, too, and each child before its clock is read again.
    let running = probe.sample();
    assert!(
        running.processes == 51 && running.cpu >= used,
        "{running:?}"
    );
    commands.write_all(b"wait\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "waited");
    // Ticks lose up to 20 ms, but not of each child.
    let waited = after_all.sample();
    assert!(waited.processes == 1, "{waited:?}");
    assert!(waited.cpu >= used - 0.02, "{waited:?}, {used} s before");
    let earlier = begin().sample().cpu;
    assert!(earlier < 0.05, "used before the probe began: {earlier} s");
    drop(commands);
    parent.wait().unwrap();
}
