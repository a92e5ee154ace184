//! Tests slowly reading clients and slow scripts, and what they cost others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use crate::site::{READ_TIMEOUT, Site, Tmpfs, descriptors, request, until};

/// More than fits into the sockets: numbered lines, so that a changed order is noticed.
const LINES: usize = 2 << 20;
const LONG: &str =
    "<?php for ($i = 0; $i < 1 << 20; $i++) printf(\"%015d\\n%015d\\n\", 2 * $i, 2 * $i + 1);";

/// A client that has requested `/long.php` and reads only its first 1,000 bytes.
struct Trickler(TcpStream, Vec<u8>);

impl Trickler {
    fn begin(site: &Site, path: &str) -> Trickler {
        let mut stream = TcpStream::connect(&site.surus.address).unwrap();
        stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
        stream
            .write_all(request("GET", path, "").as_bytes())
            .unwrap();
        let mut first = vec![0; 1000];
        stream.read_exact(&mut first).unwrap();
        Trickler(stream, first)
    }

    /// Reads the rest as fast as it comes.
    fn finish(mut self) -> Vec<u8> {
        self.0.read_to_end(&mut self.1).unwrap();
        self.1
    }
}

/// The lines of a chunked response.
fn lines(answer: &[u8]) -> Vec<u8> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let mut rest = &answer[end.unwrap() + 4..];
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let length = std::str::from_utf8(&rest[..line]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return body;
        }
        body.extend_from_slice(&rest[line + 2..][..length]);
        rest = &rest[line + 2 + length + 2..];
    }
}

fn is_whole(answer: &[u8]) -> bool {
    let body = lines(answer);
    let numbered = |(i, line): (usize, &[u8])| line == format!("{i:015}\n").as_bytes();
    body.len() == 16 * LINES && body.chunks(16).enumerate().all(numbered)
}

/// The unnamed files that a process has open.
fn spooled(pid: u32, spool: &Path) -> usize {
    let spool = spool.canonicalize().unwrap();
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
        .filter(|file| file.starts_with(&spool))
        .count()
}

fn with_long(args: &[&str], spool: &Path, env: &[(&str, &str)]) -> Site {
    let mut env = env.to_vec();
    env.push(("SURUS_HTTP_TEMP_DIR", spool.to_str().unwrap()));
    let site = Site::start(args, &env);
    std::fs::write(site.dir.path().join("long.php"), LONG).unwrap();
    assert!(site.get("/hello.php").body.contains("hello"));
    site
}

#[test]
fn slowly_reading_clients_occupy_no_worker() {
    for engine in ["classic", "fpm", "builtin", "cgi"] {
        let spool = crate::common::spool();
        let site = with_long(&["--workers", "2", "--engine", engine], spool.path(), &[]);
        let before = descriptors(site.surus.front());
        let slow = [0; 2].map(|_| Trickler::begin(&site, "/long.php"));
        // Both workers are free once PHP has written everything, long before the clients read it.
        let answer = site.get("/hello.php");
        // Without a known length, it is chunked.
        assert!(answer.body.contains("hello"), "{engine}");
        until("both wait in files", || {
            spooled(site.surus.front(), spool.path()) == 2
        });
        for slow in slow {
            assert!(is_whole(&slow.finish()), "{engine}");
        }
        until("the files are removed", || {
            spooled(site.surus.front(), spool.path()) == 0
        });
        assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0);
        if engine == "classic" {
            until("no descriptor is left over", || {
                descriptors(site.surus.front()) <= before
            });
        }
    }
}

/// Beyond the limit or a full disk, PHP waits for the client.
#[test]
fn response_beyond_the_buffer_or_disk_arrives_complete() {
    for (limit, size, uses_disk) in [
        ("1G", 3 << 20, true),
        ("5M", 64 << 20, true),
        ("0", 64 << 20, false),
    ] {
        for engine in ["classic", "fpm"] {
            let place = tempfile::tempdir().unwrap();
            let spool = place.path().join("spool");
            let Some(disk) = Tmpfs::mount(&spool, size) else {
                eprintln!("skipped: no right to mount");
                return;
            };
            let site = with_long(
                &["--workers", "1", "--engine", engine],
                &spool,
                &[("SURUS_HTTP_MAX_RESPONSE_BUFFER", limit)],
            );
            let slow = Trickler::begin(&site, "/long.php");
            let mut took = 0;
            let max = (5 << 20).min(u64::from(size));
            if uses_disk {
                until("the disk is in use", || {
                    took = took.max(disk.used());
                    took > max / 2
                });
            }
            std::thread::sleep(Duration::from_secs(1));
            assert!(disk.used() <= max, "{} bytes", disk.used());
            assert!(is_whole(&slow.finish()), "{limit} {engine}");
            assert_eq!(site.get("/hello.php").body, "hello");
            until("the disk is empty again", || disk.used() == 0);
        }
    }
}

#[test]
fn flushed_output_is_sent_immediately_without_the_disk() {
    let spool = crate::common::spool();
    let site = with_long(&["--workers", "1"], spool.path(), &[]);
    // Each line is written when the one before it has arrived.
    let code = "<?php while (ob_get_level()) ob_end_flush();
        for ($i = 0; $i < 40; $i++) {
            echo \"line $i\\n\"; flush();
            while (!file_exists(__DIR__.\"/got-$i\")) { usleep(1000); clearstatcache(); }
        }";
    std::fs::write(site.dir.path().join("events.php"), code).unwrap();
    let mut stream = TcpStream::connect(&site.surus.address).unwrap();
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    stream
        .write_all(request("GET", "/events.php", "").as_bytes())
        .unwrap();
    let mut seen = 0;
    let mut answer = String::new();
    let mut piece = [0; 4096];
    loop {
        let n = stream.read(&mut piece).expect("the next line");
        if n == 0 {
            break;
        }
        assert_eq!(spooled(site.surus.front(), spool.path()), 0);
        answer.push_str(&String::from_utf8_lossy(&piece[..n]));
        while answer.contains(&format!("line {seen}\n")) {
            std::fs::write(site.dir.path().join(format!("got-{seen}")), "").unwrap();
            seen += 1;
        }
    }
    assert_eq!(seen, 40);
}

#[test]
fn script_of_a_slow_client_that_closes_is_aborted() {
    let spool = crate::common::spool();
    let site = with_long(&["--workers", "1"], spool.path(), &[]);
    let seen = site.dir.path().join("writable/seen");
    let code = format!(
        "<?php
        ignore_user_abort(true);
        for ($i = 0; $i < 400 && !connection_aborted(); $i++) {{
            echo str_repeat('x', 1 << 20);
            usleep(20000);
        }}
        file_put_contents('{}', $i);",
        seen.display()
    );
    std::fs::write(site.dir.path().join("on.php"), code).unwrap();
    let slow = Trickler::begin(&site, "/on.php");
    until("the disk is in use", || {
        spooled(site.surus.front(), spool.path()) == 1
    });
    drop(slow);
    until("PHP has seen it", || {
        std::fs::read_to_string(&seen).is_ok_and(|said| !said.is_empty())
    });
    let rounds: u32 = std::fs::read_to_string(&seen).unwrap().parse().unwrap();
    assert!(rounds < 300, "{rounds}");
    until("the file is removed", || {
        spooled(site.surus.front(), spool.path()) == 0
    });
}

#[test]
fn script_that_ends_during_the_sweep_has_no_queue_timeout() {
    // On a busy machine, requests may wait that long for the CPU.
    let served = [300, 1500, 5000].into_iter().any(are_all_served);
    assert!(served, "requests were rejected");
}

/// Whether no request is rejected while scripts run for little longer than the queue timeout. False
/// if too few were served.
fn are_all_served(timeout: u64) -> bool {
    let text = format!("{timeout}ms");
    let wait = [("SURUS_ENGINE_QUEUE_TIMEOUT", text.as_str())];
    let site = Site::start(&["--workers", "64"], &wait);
    let nap = format!("<?php usleep(1000 * {timeout} + mt_rand(0, 60000)); echo 'rested';");
    std::fs::write(site.dir.path().join("nap.php"), nap).unwrap();
    let load = site.load(60, "/nap.php");
    std::thread::sleep(Duration::from_millis(13 * timeout));
    let statuses = load.stop();
    statuses.len() > 200 && statuses.iter().all(|status| *status == Some(200))
}
