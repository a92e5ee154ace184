//! Tests that core dumps, which contain memory, are off.

use super::log::get;
use crate::common::Surus;

/// The limits of a process (proc(5)), by the line that begins with `name`.
fn limit(pid: u32, name: &str) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
    line[name.len()..]
        .split_whitespace()
        .take(2)
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn core_dumps_of_surus_and_php_are_off_unless_configured() {
    const CORE: &str = "Max core file size";
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let ours = limit(std::process::id(), CORE);
    for entry in surus::engines::CATALOGUE
        .iter()
        .filter(|entry| !entry.boots_script())
    {
        for (setting, expected) in [("false", "1 1"), ("true", ours.as_str())] {
            // A process per request exits with it, so it prints its own limits.
            let code = r"<?php
                $limits = file_get_contents('/proc/self/limits');
                preg_match('/Max core file size +(\S+) +(\S+)/', $limits, $m);
                echo $m[1], ' ', $m[2];";
            std::fs::write(dir.path().join("limit.php"), code).unwrap();
            let environment = [("SURUS_ENGINE_CORE_DUMPS", setting)];
            let args = ["--engine", entry.name, "--workers", "1"];
            let surus = Surus::spawn(dir.path(), &args, &environment).unwrap();
            assert_eq!(limit(surus.pid(), CORE), expected, "surus");
            let answer = get(&surus.address, "/limit.php");
            assert!(answer.contains(expected), "{}: {answer}", entry.name);
        }
    }
}
