//! Tests that an idle server uses no CPU time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::booted::try_booted;
use crate::common::certificates::Authority;
use crate::site::Site;

/// How often the threads of a process blocked or were preempted.
fn switches(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_task = |path: std::path::PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
        let counts = counts.filter_map(|line| line.rsplit('\t').next()?.parse::<u64>().ok());
        counts.sum::<u64>()
    };
    tasks.flatten().map(|task| of_task(task.path())).sum()
}

/// The CPU time of a process.
fn nanoseconds(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_task = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        let first = text.split_whitespace().next();
        first.and_then(|time| time.parse::<u64>().ok()).unwrap_or(0)
    };
    tasks.flatten().map(|task| of_task(task.path())).sum()
}

/// The process and its descendants: keeper, front end, opener, master process and workers.
fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let children = task.unwrap().path().join("children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
        all.extend(children.flat_map(family));
    }
    all
}

/// The process and how often it woke, of those that woke within some seconds. A thread that ends
/// counts, too.
fn wakes(processes: &[u32]) -> Vec<(u32, u64, u64)> {
    let counted = || -> Vec<_> {
        let counts = processes
            .iter()
            .map(|pid| (switches(*pid), nanoseconds(*pid)));
        counts.collect()
    };
    let before = counted();
    // Longer than the shortest interval of any check.
    std::thread::sleep(Duration::from_secs(6));
    let after = counted();
    processes
        .iter()
        .zip(before.iter().zip(&after))
        .map(|(pid, (a, b))| (*pid, b.0.abs_diff(a.0), b.1.saturating_sub(a.1)))
        .filter(|(_, woken, _)| *woken > 0)
        .collect()
}

/// A connection of HTTP/2 whose request has been answered.
fn http_2(address: &str) -> TcpStream {
    // GET of a path with ten bytes, by http, and the authority `a` (RFC 7541, appendix A).
    let mut fields: Vec<u8> = vec![0x82, 0x86, 0x44, 10];
    fields.extend_from_slice(b"/hello.php\x41\x01a");
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // SETTINGS without any, and HEADERS that end section and stream 1.
    sent.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    sent.extend_from_slice(&[0, 0, fields.len() as u8, 1, 5, 0, 0, 0, 1]);
    sent.extend_from_slice(&fields);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&sent).unwrap();
    let mut answer = Vec::new();
    while !answer.windows(5).any(|part| part == b"hello") {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "{answer:x?}");
        answer.extend_from_slice(&piece[..read]);
    }
    stream
}

/// Also while clients keep their connections, used or not.
fn rests(site: &Site, what: &str) {
    for _ in 0..20 {
        assert_eq!(site.get("/hello.php").body, "hello");
    }
    let mut kept = TcpStream::connect(&site.surus.address).unwrap();
    kept.write_all(b"GET /hello.php HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert!(kept.read(&mut [0; 4096]).unwrap() > 0);
    let _http_2 = http_2(&site.surus.address);
    let _unused = TcpStream::connect(&site.surus.address).unwrap();
    let processes = family(site.surus.pid());
    assert!(processes.contains(&site.surus.front()) && processes.contains(&site.master()));
    assert!(site.workers().iter().all(|pid| processes.contains(pid)));
    // Threads that had work poll for a while, and memory is released 10 s after a request.
    let mut seen = Vec::new();
    while seen.last().is_none_or(|woken: &Vec<_>| !woken.is_empty()) {
        assert!(
            seen.len() < 6,
            "{what}: process, wakes, nanoseconds: {seen:?}"
        );
        seen.push(wakes(&processes));
    }
    println!("{what}: process, wakes, nanoseconds: {seen:?}");
    assert_eq!(site.get("/hello.php").body, "hello", "{what}");
}

#[test]
fn idle_server_wakes_no_thread() {
    let site = Site::start(&["--workers", "64"], &[]);
    rests(&site, "classic");
    let site = try_booted("rewind", crate::booted::BOOT, &["--workers", "16"], &[]).unwrap();
    rests(&site, "rewind");
}

/// Its certificates are read rarely while no client connects.
#[test]
fn idle_server_with_tls_wakes_no_thread() {
    let dir = tempfile::tempdir().unwrap();
    let issued = Authority::new("Test").issue(&["localhost"]);
    let (certificate, key) = issued.write(dir.path(), "server");
    let env = [
        ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
        ("SURUS_TLS_CERTIFICATE", certificate.to_str().unwrap()),
        ("SURUS_TLS_KEY", key.to_str().unwrap()),
    ];
    let site = Site::start(&["--workers", "2"], &env);
    rests(&site, "classic with TLS");
}
