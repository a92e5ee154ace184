//! Tests that PHP's processes cannot open each other's memory.

use std::process::{Child, Command, Stdio};

use crate::server::{app, children, get, is_root, start, status};

/// Reads what only a process that may open the memory of another can read, of a process and its
/// children, until that succeeds. Files of a process that is exiting can be opened, and are empty.
const ATTACK: &str = r#"
    $master = $argv[1];
    while (is_dir("/proc/$master")) {
        $pids = @file_get_contents("/proc/$master/task/$master/children");
        foreach (explode(' ', "$pids$master") as $pid) {
            foreach (['maps', 'environ'] as $file) {
                $opened = $pid ? @fopen("/proc/$pid/$file", 'r') : false;
                if ($opened && (string) @fread($opened, 64) !== '') {
                    exit(3);
                }
            }
        }
    }
"#;

fn attacker(master: u32) -> Child {
    Command::new("setpriv")
        .args(["--reuid=www-data", "--regid=www-data", "--clear-groups"])
        .args(["php", "-n", "-r", ATTACK, "--", &master.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

pub fn memory_of_workers_cannot_be_opened_by_other_workers() {
    if !is_root() {
        return;
    }
    let dir = app(&[(
        "index.php",
        "<?php surus_serve(function () { echo getmypid(); });",
    )]);
    for engine in ["rewind", "fork"] {
        // Every request has another worker start.
        let surus = start(
            dir.path(),
            &["--engine", engine],
            &[("SURUS_ENGINE_MAX_REQUESTS", "1")],
        );
        let worker: u32 = get(&surus, "/").unwrap().1.parse().unwrap();
        let parent = |pid: u32| -> u32 { status(pid, "PPid").parse().unwrap() };
        let next: u32 = crate::server::descendants(surus.pid())
            .into_iter()
            .find(|pid| {
                std::fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|name| name.trim() == "surus master")
            })
            .unwrap();
        let master = if children(next).is_empty() {
            parent(next)
        } else {
            next
        };
        let mut attackers = [attacker(master), attacker(master)];
        let mut last = worker;
        for _ in 0..500 {
            let now = get(&surus, "/").unwrap().1.parse().unwrap();
            assert_ne!(now, last, "{engine}: another worker");
            last = now;
        }
        for attacker in &mut attackers {
            let ended = attacker.try_wait().unwrap();
            attacker.kill().ok();
            attacker.wait().unwrap();
            assert!(ended.is_none(), "{engine}: an attacker ended: {ended:?}");
        }
        let log = surus.log();
        assert!(!log.contains("cannot be rewound"), "{log}");
    }
}
