//! Tests that PHP's processes cannot open each other's memory.

use std::process::{Child, Command, Stdio};

use crate::server::{app, assert_serves, children, descendants, get, is_root, start, status};

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

fn as_php() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=www-data", "--regid=www-data", "--clear-groups"]);
    command
}

fn attacker(master: u32) -> Child {
    as_php()
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
        let next: u32 = descendants(surus.pid())
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
        assert!(!log.contains("cannot rewind this process"), "{log}");
    }
}

/// Without descriptors, the opener could open no file, and the master process fork no worker.
pub fn limits_of_opener_and_master_process_cannot_be_changed_by_php() {
    if !is_root() {
        return;
    }
    for engine in ["classic", "rewind"] {
        let text = match engine {
            "classic" => "<?php echo 'hello';",
            _ => "<?php surus_serve(function () { echo 'hello'; });",
        };
        let dir = app(&[("index.php", text), ("a.txt", "static")]);
        let surus = start(dir.path(), &["--engine", engine], &[]);
        let mut tried = 0;
        for pid in descendants(surus.pid()) {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if !["surus opener", "surus master"].contains(&name.trim()) {
                continue;
            }
            let changed = as_php()
                .args(["prlimit", "--nofile=0:0", "--pid", &pid.to_string()])
                .output()
                .unwrap();
            assert!(!changed.status.success(), "{engine} {name}");
            let why = String::from_utf8_lossy(&changed.stderr);
            assert!(why.contains("not permitted"), "{engine} {name} {why}");
            tried += 1;
        }
        assert_eq!(tried, 2, "{engine}");
        assert_serves(&surus);
    }
}
