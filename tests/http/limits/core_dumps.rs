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
    // Command-line PHP of `roadrunner` is started as that of `cli`.
    let engines = surus::engines::CATALOGUE.iter();
    for entry in engines.filter(|entry| entry.runs_scripts()) {
        for (setting, expected) in [("false", "1 1"), ("true", ours.as_str())] {
            // A process per request exits with it, so it prints its own limits.
            let print = r"
                $limits = file_get_contents('/proc/self/limits');
                preg_match('/Max core file size +(\S+) +(\S+)/', $limits, $m);
                echo $m[1], ' ', $m[2];";
            let code = match entry.boots_script() {
                true => format!("<?php surus_serve(function () {{ {print} }});"),
                false => format!("<?php {print}"),
            };
            let script = dir.path().join("limit.php");
            std::fs::write(&script, code).unwrap();
            let environment = [("SURUS_ENGINE_CORE_DUMPS", setting)];
            let script = script.to_str().unwrap();
            let args = ["--engine", entry.name, "--workers", "1", "--script", script];
            let surus = Surus::spawn(dir.path(), &args, &environment).unwrap();
            assert_eq!(limit(surus.pid(), CORE), expected, "surus");
            let answer = get(&surus.address, "/limit.php");
            assert!(answer.contains(expected), "{}: {answer}", entry.name);
        }
    }
}
