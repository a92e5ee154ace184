//! Tests `.htaccess` files that take long to read or to parse, while other requests are answered.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::Surus;
use crate::common::preload::Preload;

/// More than Surus has threads.
const WAITING: usize = 64;

/// The status of a response.
fn get(address: &str, path: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    // For ever, if a request that waits keeps others waiting.
    let limit = Duration::from_secs(120);
    stream.set_read_timeout(Some(limit)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap_or_default();
    status.parse().unwrap_or_else(|_| panic!("{answer}"))
}

fn get_later(surus: &Surus, path: &str) -> JoinHandle<u16> {
    let (address, path) = (surus.address.clone(), path.to_owned());
    std::thread::spawn(move || get(&address, &path))
}

/// Creates a directory with `a.txt` and this `.htaccess` file.
fn put(directory: &Path, rules: &str) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("a.txt"), "a").unwrap();
    fs::write(directory.join(".htaccess"), rules).unwrap();
}

fn project() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.path().join("page.php"), "<?php echo 'page';").unwrap();
    put(&dir.path().join("fast"), "Options -Indexes");
    dir
}

#[test]
fn file_that_the_disk_returns_slowly_makes_no_other_request_wait() {
    let library = Preload::compile("http/htaccess/slow_read.c");
    let dir = project();
    let slow = dir.path().join("slow");
    put(&slow, "Require all denied");
    let marks = tempfile::tempdir().unwrap();
    fs::set_permissions(marks.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (hold, held) = (marks.path().join("hold"), marks.path().join("held"));
    fs::write(&hold, "").unwrap();
    let real = slow.canonicalize().unwrap();
    let settings = [
        ("LD_PRELOAD", library.path()),
        ("HELD_DIRECTORY", real.to_str().unwrap()),
        ("HOLD", hold.to_str().unwrap()),
        ("HELD", held.to_str().unwrap()),
    ];
    let surus = Surus::spawn(
        dir.path(),
        &["--workers", "1", "--engine", "classic"],
        &settings,
    )
    .unwrap();
    assert_eq!(get(&surus.address, "/fast/a.txt"), 200);
    let waiting: Vec<_> = (0..WAITING)
        .map(|_| get_later(&surus, "/slow/a.txt"))
        .collect();
    while !held.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..20 {
        assert_eq!(get(&surus.address, "/fast/a.txt"), 200);
        assert_eq!(get(&surus.address, "/page.php"), 200);
        assert_eq!(get(&surus.address, "/none.txt"), 404);
    }
    assert!(hold.exists());
    fs::remove_file(&hold).unwrap();
    for request in waiting {
        // A request gives up after half a minute.
        assert!([403, 503].contains(&request.join().unwrap()));
    }
    assert_eq!(get(&surus.address, "/slow/a.txt"), 403);
}

#[test]
fn files_at_the_limits_of_their_cost_are_read_for_many_requests() {
    let dir = project();
    // As many patterns as a file may have, and more.
    let pattern = "RewriteRule ^(?!a{99}) -\n";
    for n in 0..6 {
        let count = if n % 2 == 0 { 200 } else { 5000 };
        let rules = format!(
            "RewriteEngine On\n{}RewriteRule ^ - [F]",
            pattern.repeat(count)
        );
        put(&dir.path().join(format!("costly{n}")), &rules);
    }
    let surus = Surus::spawn(dir.path(), &["--workers", "1", "--engine", "classic"], &[]).unwrap();
    let costly: Vec<_> = (0..WAITING)
        .map(|n| get_later(&surus, &format!("/costly{}/a.txt", n % 6)))
        .collect();
    for _ in 0..20 {
        assert_eq!(get(&surus.address, "/page.php"), 200);
        assert_eq!(get(&surus.address, "/fast/a.txt"), 200);
    }
    for request in costly {
        assert!([403, 503].contains(&request.join().unwrap()));
    }
    for n in 0..6 {
        assert_eq!(get(&surus.address, &format!("/costly{n}/a.txt")), 403);
    }
}
