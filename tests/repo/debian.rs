//! Tests the scripts of the Debian packages, with commands of systemd that do nothing.

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
    let path = root().join("packaging/debian").join(script);
    let script = std::fs::read_to_string(path).unwrap();
    // As on a machine that runs systemd.
    let running = script.replace("/run/systemd/system", "/");
    assert_ne!(running, script);
    let programs = tempfile::tempdir().unwrap();
    symlink("/bin/true", programs.path().join("systemd-sysusers")).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let script = format!("{SYSTEMCTL}{running}");
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
