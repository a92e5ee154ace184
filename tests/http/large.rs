//! Tests that memory does not grow with the size of a request or response body: 2 GiB, or
//! `LARGE_MIB`.

use std::process::{Command, Stdio};

use crate::common::Surus;

#[test]
fn large_bodies_do_not_increase_memory() {
    let mib = std::env::var("LARGE_MIB").map_or(2048, |mib| mib.parse::<u64>().unwrap());
    assert!(
        mib >= 100,
        "LARGE_MIB={mib} is below the memory that is allowed"
    );
    let size = mib << 20;
    let dir = tempfile::tempdir().unwrap();
    let script = |name: &str, php: &str| std::fs::write(dir.path().join(name), php).unwrap();
    script("hello.php", "<?php echo 'hello';");
    script(
        "up.php",
        "<?php
        $in = fopen('php://input', 'rb');
        for ($n = 0; !feof($in); $n += strlen(fread($in, 1 << 20)));
        echo $n, ' ', memory_get_peak_usage() > 8 << 20 ? 1 : 0;",
    );
    script(
        "down.php",
        &format!(
            "<?php for ($i = 0, $piece = str_repeat('x', 1 << 20); $i < {mib}; $i++) echo $piece;"
        ),
    );
    Command::new("chmod")
        .args(["-R", "a+rX"])
        .arg(dir.path())
        .status()
        .unwrap();
    let surus = Surus::spawn(
        dir.path(),
        &["--workers", "1", "-d", "post_max_size=4G"],
        &[("SURUS_HTTP_MAX_BODY_SIZE", "3G")],
    )
    .unwrap();

    let get = |path: &str, stdin: Stdio, args: &[&str]| {
        let url = format!("{}{path}", surus.url);
        let output = Command::new("curl")
            .args(["-sS", "--fail", &url])
            .args(args)
            .stdin(stdin)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(get("/hello.php", Stdio::null(), &[]), "hello");
    let (template, worker) = processes(surus.pid());
    let (ours_before, worker_before) = (peak_memory(surus.front()), peak_memory(worker));

    #[allow(clippy::zombie_processes)] // it ends with its pipe
    let zeros = || {
        let head = Command::new("head")
            .args(["-c", &size.to_string(), "/dev/zero"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Stdio::from(head.stdout.unwrap())
    };
    // The length is unknown in advance, so that only counting can determine it.
    assert_eq!(get("/up.php", zeros(), &["-T", "-"]), format!("{size} 0"));
    let received = get(
        "/down.php",
        Stdio::null(),
        &["-o", "/dev/null", "-w", "%{size_download}"],
    );
    assert_eq!(received, size.to_string());

    assert_eq!(
        processes(surus.pid()),
        (template, worker),
        "the same worker did it all"
    );
    let grown = peak_memory(surus.front()).saturating_sub(ours_before);
    assert!(grown < 24 << 20, "surus grew by {} MiB", grown >> 20);
    let grown = peak_memory(worker).saturating_sub(worker_before);
    assert!(grown < 16 << 20, "the worker grew by {} MiB", grown >> 20);
}

/// The prototype process and its only worker.
fn processes(surus: u32) -> (u32, u32) {
    let child = |pid: u32| {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children
            .split_whitespace()
            .next()
            .map(|pid| pid.parse::<u32>().unwrap())
    };
    let all_threads = |pid: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let children = tasks
            .map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap());
        children
            .collect::<String>()
            .split_whitespace()
            .map(|pid| pid.parse::<u32>().unwrap())
            .find(|pid| !crate::common::is_surus(*pid))
            .unwrap()
    };
    let template = all_threads(surus);
    (template, child(template).unwrap())
}

/// The peak resident memory of a process in bytes.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim()
        .strip_suffix("kB")
        .unwrap()
        .trim()
        .parse::<u64>()
        .unwrap()
        << 10
}
