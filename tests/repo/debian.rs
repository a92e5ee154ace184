//! Tests the unit of systemd, and the scripts of the Debian packages, with commands of systemd that
//! do nothing.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use super::markdown::root;

/// In place of the program. A restart fails.
const SYSTEMCTL: &str = r#"
systemctl() { echo "systemctl $*"; [ "$1" != try-restart ]; }
"#;

/// Runs the script that dpkg runs after it has unpacked the files; `before` is the version that was
/// there.
fn configured(before: &str) -> Output {
    run("surus.postinst", &["configure", before])
}

/// Runs a script of dpkg's.
fn run(script: &str, args: &[&str]) -> Output {
    let script = text(&format!("debian/{script}"));
    // As on a machine that runs systemd.
    let running = script.replace("/run/systemd/system", "/");
    assert_ne!(running, script);
    execute(&running, args)
}

/// A file of the packages.
fn text(path: &str) -> String {
    std::fs::read_to_string(root().join("packaging").join(path)).unwrap()
}

fn execute(script: &str, args: &[&str]) -> Output {
    let programs = tempfile::tempdir().unwrap();
    symlink("/bin/true", programs.path().join("systemd-sysusers")).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let script = format!("{SYSTEMCTL}{script}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "postinst"]).args(args);
    shell.env("PATH", format!("{}:{path}", programs.path().display()));
    shell.output().unwrap()
}

#[test]
fn upgrade_is_complete_although_a_service_does_not_restart() {
    let output = configured("0.0.1");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("try-restart surus.service"), "{said}");
    assert!(errors.contains("journalctl -u surus"), "{errors}");
}

/// Otherwise a security update of PHP would not reach a running server.
#[test]
fn update_of_php_restarts_the_services() {
    let output = run(
        "surus-php.postinst",
        &["triggered", "/usr/lib/libphp8.2.so"],
    );
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert_eq!(
        said,
        "systemctl try-restart surus.service surus@*.service\n"
    );
    assert!(errors.contains("journalctl -u surus"), "{errors}");
    let output = run("surus-php.postinst", &["configure", ""]);
    assert!(output.status.success() && output.stdout.is_empty());
    let packaged = std::fs::read_to_string(root().join("scripts/deb")).unwrap();
    for changed in ["/usr/lib/libphp$php.so", "/usr/lib/php"] {
        let trigger = format!("\ninterest-noawait {changed}\n");
        assert!(packaged.contains(&trigger), "{trigger}");
    }
}

#[test]
fn new_installation_starts_nothing() {
    let output = configured("");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert_eq!(said, "systemctl daemon-reload\n");
}

/// `systemctl disable` names no instances, and a container runs no systemd.
#[test]
fn removal_leaves_no_links_of_services() {
    let script = text("debian/surus.prerm");
    for (running, action, are_left) in [
        ("/", "remove", false),
        ("/nonexistent", "remove", false),
        ("/", "upgrade", true),
    ] {
        let system = tempfile::tempdir().unwrap();
        let wants = system.path().join("multi-user.target.wants");
        std::fs::create_dir(&wants).unwrap();
        let add = |unit: &str| symlink("/nonexistent", wants.join(unit)).unwrap();
        let ours = ["surus.service", "surus@shop.service", "surus@blog.service"];
        ours.into_iter().for_each(add);
        add("other@shop.service");
        let script = script.replace("/run/systemd/system", running);
        let script = script.replace("/etc/systemd/system", system.path().to_str().unwrap());
        let output = execute(&script, &[action]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{errors}");
        let is_left = |unit: &str| wants.join(unit).is_symlink();
        for unit in ours {
            assert_eq!(is_left(unit), are_left, "{running} {action}: {unit}");
        }
        assert!(is_left("other@shop.service"));
    }
}

#[test]
fn unit_says_which_settings_php_or_surus_cannot_bear() {
    let unit = text("systemd/surus.service");
    for setting in [
        "MemoryDenyWriteExecute",
        "ProtectProc",
        "RestrictSUIDSGID",
        "SystemCallFilter",
    ] {
        let assignment = format!("{setting}=");
        let is_set = unit.lines().any(|line| line.starts_with(&assignment));
        assert!(!is_set, "{setting}");
        assert!(unit.contains(&format!("Not {setting}")), "{setting}");
    }
}
