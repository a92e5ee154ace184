//! Starts servers for these tests, sends them requests, and inspects their processes.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::Surus;

pub fn is_root() -> bool {
    surus_sys::process::is_root()
}

pub fn id_of(user: &str) -> u32 {
    surus_sys::process::find_user(user, None)
        .unwrap()
        .unwrap()
        .uid
}

pub fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A directory with these files, readable by everyone.
pub fn app(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

pub fn hello() -> tempfile::TempDir {
    app(&[("index.php", "<?php echo 'hello';"), ("a.txt", "static")])
}

pub fn start(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Surus {
    let one = if args.contains(&"--workers") {
        &[][..]
    } else {
        &["--workers", "1"]
    };
    let args = [one, args].concat();
    Surus::spawn(dir, &args, env).unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
}

/// Status and body.
pub fn get(surus: &Surus, path: &str) -> Option<(u16, String)> {
    let answer = agent().get(format!("{}{path}", surus.url)).call();
    status_and_body(answer.ok()?)
}

/// The same, for a POST.
pub fn post(surus: &Surus, path: &str, body: &[u8]) -> Option<(u16, String)> {
    let answer = agent().post(format!("{}{path}", surus.url)).send(body);
    status_and_body(answer.ok()?)
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    ureq::Agent::new_with_config(config.build())
}

fn status_and_body(mut answer: http::Response<ureq::Body>) -> Option<(u16, String)> {
    let body = answer.body_mut().read_to_string().ok()?;
    Some((answer.status().as_u16(), body))
}

/// The answer to a request that is in time: where a short timeout ends other requests, this one may
/// miss it, too, on a busy machine. Then it is sent again.
pub fn in_time(ask: impl Fn() -> Option<(u16, String)>) -> Option<(u16, String)> {
    let began = Instant::now();
    loop {
        let answer = ask();
        let is_late = matches!(answer, Some((503 | 504, _)));
        if !is_late || began.elapsed() > Duration::from_secs(60) {
            return answer;
        }
    }
}

pub fn assert_serves(surus: &Surus) {
    assert_eq!(
        in_time(|| get(surus, "/")),
        Some((200, "hello".into())),
        "{}",
        surus.log()
    );
    assert_eq!(get(surus, "/a.txt"), Some((200, "static".into())));
}

pub fn status(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_default().trim().to_string()
}

pub fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let text: String = tasks
        .map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default())
        .collect();
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

pub fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// All processes that a server has started, and their children.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut all = children(pid);
    let below: Vec<u32> = all.iter().flat_map(|pid| descendants(*pid)).collect();
    all.extend(below);
    all
}
