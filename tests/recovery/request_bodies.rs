//! Tests what the body of a request leaves behind: resources, files of a killed worker.

use std::path::Path;

use crate::booted::{BOOT, boot_in};
use crate::common::{Surus, spool};
use crate::site::{Site, app, ask, kill, request, until};

#[test]
fn script_that_closes_the_body_of_its_request_does_not_end_the_worker() {
    let dir = app();
    let code = "<?php foreach (get_resources('stream') as $stream) { is_resource($stream) && \
        @fclose($stream); }
        // Reuses the freed memory, whatever its size.
        for ($n = 0; $n < 4000; $n++) $GLOBALS['more'][] = str_repeat('x', 8 + $n % 400);
        echo getmypid();";
    std::fs::write(dir.path().join("close.php"), code).unwrap();
    let site = boot_in(dir, "worker", BOOT, &["--workers", "1"], &[]).unwrap();
    let mut pids = Vec::new();
    for _ in 0..10 {
        let text = "POST /close.php HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\
            Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
        let answer = ask(&site.surus.address, text.as_bytes()).unwrap();
        assert_eq!(answer.status, 200);
        pids.push(answer.body);
    }
    pids.dedup();
    assert_eq!(pids.len(), 1, "{pids:?}");
}

#[test]
fn stream_of_request_body_ends_with_its_request() {
    let dir = app();
    let code =
        "<?php $old = $GLOBALS['kept'] ?? null; $GLOBALS['kept'] = fopen('php://input', 'r');
        echo $old ? gettype($old) : 'none', ' ', strlen(stream_get_contents($GLOBALS['kept']));";
    std::fs::write(dir.path().join("keep.php"), code).unwrap();
    let site = boot_in(dir, "worker", BOOT, &["--workers", "1"], &[]).unwrap();
    let post = |len: usize| {
        let request = request("POST", "/keep.php", &"x".repeat(len));
        site.ask(&request).unwrap().body
    };
    assert_eq!(post(10), "none 10");
    for len in [0, 100, 20_000, 200_000, 3] {
        assert_eq!(post(len), format!("resource (closed) {len}"));
    }
}

/// Names of files in `directory`.
pub fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

/// A server of one worker, with `code` as `script.php`.
fn started(engine: &str, code: &str, env: &[(&str, &str)]) -> Site {
    let dir = app();
    std::fs::write(dir.path().join("script.php"), format!("<?php {code}")).unwrap();
    match engine {
        "classic" => {
            let surus = Surus::spawn(dir.path(), &["--workers", "1"], env).unwrap();
            Site { surus, dir }
        }
        _ => boot_in(dir, engine, BOOT, &["--workers", "1"], env).unwrap(),
    }
}

const FORM: &str = "application/x-www-form-urlencoded";
const PARTS: &str = "multipart/form-data; boundary=b";

fn with_type(method: &str, path: &str, content_type: &str, body: &str) -> String {
    let ending = format!("\r\nContent-Type: {content_type}\r\n\r\n");
    request(method, path, body).replacen("\r\n\r\n", &ending, 1)
}

/// How PHP reads a body: a setting, the method, the type, and the length.
const READINGS: &[(&str, &str, &str, usize)] = &[
    ("", "POST", FORM, 30_000),
    ("", "POST", "application/json", 200_000),
    ("", "PUT", "application/json", 30_000),
    ("", "PUT", "application/json", 200_000),
    ("", "PATCH", FORM, 200_000),
    ("", "REPORT", "text/xml", 200_000),
    ("", "PUT", PARTS, 200_000),
    ("STREAM_BODY", "POST", FORM, 200_000),
    ("STREAM_BODY", "POST", "application/json", 200_000),
    ("STREAM_BODY", "PUT", "application/json", 200_000),
    ("UNREAD", "POST", FORM, 30_000),
    ("UNREAD", "POST", "application/json", 200_000),
    ("UNREAD", "POST", PARTS, 200_000),
];

/// Servers for the readings with each setting.
fn each_reading(
    engine: &str,
    code: &str,
    env: &[(&str, &str)],
    test: impl Fn(&Site, &str, &str, usize),
) {
    for (setting, variable) in [
        ("", ("SURUS_HTTP_STREAM_BODY", "false")),
        ("STREAM_BODY", ("SURUS_HTTP_STREAM_BODY", "true")),
        ("UNREAD", ("SURUS_PHP_ENABLE_POST_DATA_READING", "0")),
    ] {
        let env = [&[variable], env].concat();
        let site = started(engine, code, &env);
        let of_setting = READINGS.iter().filter(|reading| reading.0 == setting);
        for (_, method, content_type, len) in of_setting {
            test(&site, method, content_type, *len);
        }
    }
}

#[test]
fn body_of_killed_worker_leaves_no_file() {
    let code = "$n = strlen(file_get_contents('php://input'));
        file_put_contents($_GET['began'].'.new', $n);
        rename($_GET['began'].'.new', $_GET['began']);
        sleep(60);";
    for engine in ["classic", "worker", "rewind"] {
        let uploads = spool();
        let env = [("SURUS_PHP_UPLOAD_TMP_DIR", uploads.path().to_str().unwrap())];
        each_reading(engine, code, &env, |site, method, content_type, len| {
            let case = format!("{engine} {method} {content_type} {len}");
            let began = site.dir.path().join("writable/began");
            let path = format!("/script.php?began={}", began.display());
            let request = with_type(method, &path, content_type, &"x".repeat(len));
            let address = site.surus.address.clone();
            let asked = std::thread::spawn(move || ask(&address, request.as_bytes()));
            until(&format!("the script begins, {case}"), || began.exists());
            let read = std::fs::read_to_string(&began).unwrap();
            assert_eq!(read, len.to_string(), "{case}");
            std::fs::remove_file(&began).unwrap();
            assert_eq!(files(uploads.path()), [""; 0], "{case}");
            kill(site.workers()[0], "KILL");
            assert_eq!(asked.join().unwrap().unwrap().status, 502, "{case}");
        });
        assert_eq!(files(uploads.path()), [""; 0], "{engine}");
    }
}

#[test]
fn script_reads_each_body_whole_and_twice() {
    let code = "$a = fopen('php://input', 'r'); $first = fread($a, 3);
        $all = file_get_contents('php://input');
        echo strlen($all), ' ', rtrim($all, 'x') === 'a=', ' ',
            $first.stream_get_contents($a) === $all;";
    // A directory that is missing has PHP's default in its place.
    let env = [("SURUS_PHP_UPLOAD_TMP_DIR", "/nonexistent")];
    for engine in ["classic", "worker", "rewind"] {
        each_reading(engine, code, &env, |site, method, content_type, len| {
            let body = format!("a={}", "x".repeat(len - 2));
            let request = with_type(method, "/script.php", content_type, &body);
            for _ in 0..3 {
                let answer = site.ask(&request).unwrap().body;
                let case = format!("{engine} {method} {content_type}");
                assert_eq!(answer, format!("{len} 1 1"), "{case}");
            }
        });
    }
}

#[test]
fn fields_of_too_large_form_are_not_read() {
    let code = "echo count($_POST), ' ', strlen(file_get_contents('php://input'));";
    let env = [("SURUS_PHP_POST_MAX_SIZE", "1000")];
    for engine in ["classic", "worker", "rewind"] {
        each_reading(engine, code, &env, |site, method, content_type, len| {
            let body = format!("a={}", "x".repeat(len - 2));
            let request = with_type(method, "/script.php", content_type, &body);
            let answer = site.ask(&request).unwrap().body;
            let case = format!("{engine} {method} {content_type} {len}: {answer}");
            assert!(answer.ends_with(&format!("0 {len}")), "{case}");
        });
    }
}
