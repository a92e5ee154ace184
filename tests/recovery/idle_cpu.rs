//! Tests that an idle server uses no CPU time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::booted::{BOOT, try_booted};
use crate::common::Surus;
use crate::common::certificates::Authority;
use crate::site::{PATIENT, Site, app, children, until};

/// The directories of the threads of a process; none if it has ended.
fn tasks(pid: u32) -> impl Iterator<Item = PathBuf> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    tasks.map(|task| task.path())
}

/// How often the threads of a process blocked or were preempted.
fn switches(pid: u32) -> u64 {
    let of_task = |path: PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
        let counts = counts.filter_map(|line| line.rsplit('\t').next()?.parse::<u64>().ok());
        counts.sum::<u64>()
    };
    tasks(pid).map(of_task).sum()
}

/// The CPU time of a process.
fn nanoseconds(pid: u32) -> u64 {
    let of_task = |path: PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        let first = text.split_whitespace().next();
        first.and_then(|time| time.parse::<u64>().ok()).unwrap_or(0)
    };
    tasks(pid).map(of_task).sum()
}

/// The process and its descendants: keeper, front end, opener, master process and workers.
fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    for task in tasks(pid) {
        let children = std::fs::read_to_string(task.join("children")).unwrap_or_default();
        let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
        all.extend(children.flat_map(family));
    }
    all
}

/// The processes of a server that woke within some seconds, each with the number of wakes and its
/// CPU time in nanoseconds. A thread or process that ends counts, too.
fn wakes(server: u32) -> Vec<(u32, u64, u64)> {
    let processes = family(server);
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
    settles(site, what);
}

/// Waits until no process of the server wakes any more.
fn settles(site: &Site, what: &str) {
    // Threads that had work poll for a while, and memory is released 10 s after a request.
    let mut seen = Vec::new();
    while seen.last().is_none_or(|woken: &Vec<_>| !woken.is_empty()) {
        assert!(
            seen.len() < 6,
            "{what}: process, wakes, nanoseconds: {seen:?}"
        );
        seen.push(wakes(site.surus.pid()));
    }
    println!("{what}: process, wakes, nanoseconds: {seen:?}");
    assert_eq!(site.get("/hello.php").body, "hello", "{what}");
}

#[test]
fn idle_server_wakes_no_thread() {
    let site = Site::start(&["--workers", "64"], &[]);
    rests(&site, "classic");
    let site = try_booted("rewind", BOOT, &["--workers", "16"], &[]).unwrap();
    rests(&site, "rewind");
}

/// The process that has started another one.
fn parent(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let found = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    found.unwrap().trim().parse().unwrap()
}

/// Makes the pool of the default site grow to two workers, and waits until it has one again.
fn grow_and_shrink(site: &Site) {
    let worker: u32 = site.get("/pid.php").body.parse().unwrap();
    let master = parent(worker);
    assert!(children(master).contains(&worker));
    let held = [site.begin("/gate.php"), site.begin("/gate.php")];
    until("the pool has grown", || children(master).len() == 2);
    site.open_gate();
    for request in held {
        assert_eq!(request.join().unwrap().unwrap().body, "rested");
    }
    until("the pool has shrunk", || children(master).len() == 1);
}

/// The server has a pool that has shrunk, and a site for each engine that the other test lacks. Its
/// certificates are read rarely while no client connects.
#[test]
fn idle_server_with_sites_tls_and_http_3_wakes_no_thread() {
    const ENGINES: [&str; 3] = ["fork", "standby", "worker"];
    let dir = app();
    std::fs::write(dir.path().join("boot.php"), format!("<?php {BOOT}")).unwrap();
    let booted = ENGINES.map(|engine| {
        format!(
            "[[site]]\nhost = '{engine}'\nengine.name = '{engine}'\n\
             engine.script = 'boot.php'\nengine.workers = 1\n"
        )
    });
    let adaptive = "[[site]]\ndefault = true\nengine.name = 'classic'\n\
                    engine.min_workers = 1\nengine.max_workers = 2\n";
    let settings = [adaptive, &booted.concat()].concat();
    std::fs::write(dir.path().join("surus.toml"), settings).unwrap();
    let certificates = tempfile::tempdir().unwrap();
    let issued = Authority::new("Test").issue(&["localhost"]);
    let (certificate, key) = issued.write(certificates.path(), "server");
    let env = [
        ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
        ("SURUS_TLS_CERTIFICATE", certificate.to_str().unwrap()),
        ("SURUS_TLS_KEY", key.to_str().unwrap()),
        ("SURUS_HTTP_H3", "true"),
        ("SURUS_HTTP_REQUEST_TIMEOUT", "10m"),
    ];
    let surus = Surus::spawn(dir.path(), &[], &[&PATIENT, &env[..]].concat());
    let surus = surus.unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    let site = Site { surus, dir };
    for engine in ENGINES {
        let request =
            format!("GET /hello.php HTTP/1.1\r\nHost: {engine}\r\nConnection: close\r\n\r\n");
        let answer = site.ask(&request).unwrap();
        assert_eq!(answer.body, "hello", "{engine}: {}", site.surus.log());
    }
    grow_and_shrink(&site);
    settles(&site, "sites");
}
