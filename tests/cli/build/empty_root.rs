//! Tests executables in an empty root, in which there is nothing else of this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::build;
use crate::common::Surus;
use crate::common::empty_root::{can_chroot, static_surus};
use crate::common::executable::copy_executable;
use crate::get;
use crate::{project, says};

/// Starts `/shop` of the root as a user without a name, after a command of the shell.
fn start(root: &Path, before: &str, args: &[&str]) -> Result<Surus, String> {
    let script = format!("{before}\nexec chroot --userspec=4321:4321 \"$0\" /shop \"$@\"");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-ec", &script])
        .arg(root)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .args(args);
    Surus::start(command, &[], &[])
}

#[test]
fn executable_serves_in_an_empty_root() {
    let Some(surus) = static_surus() else { return };
    if !can_chroot() {
        return;
    }
    let built = project(&[]);
    let app = built.path().join("shop");
    let said = build(&["--surus", surus.to_str().unwrap()], &app);
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
    let proc = "mkdir \"$0/proc\" && mount --bind /proc \"$0/proc\"";
    for (before, args, engine) in [
        // Nothing but a directory for what is unpacked.
        ("", &[][..], "classic"),
        (
            proc,
            &["--engine", "rewind", "--script", "boot.php"],
            "rewind",
        ),
        (proc, &["--engine", "fork", "--script", "boot.php"], "fork"),
    ] {
        let root = project(&[("tmp/keep", "")]);
        fs::remove_file(root.path().join("tmp/keep")).unwrap();
        fs::set_permissions(root.path().join("tmp"), PermissionsExt::from_mode(0o1777)).unwrap();
        copy_executable(&app, &root.path().join("shop"));
        let surus = start(root.path(), before, args);
        let surus = surus.unwrap_or_else(|log| panic!("{engine}: {log}"));
        for _ in 0..3 {
            let (status, page) = get(&surus, "/");
            assert_eq!(status, 200, "{engine}: {page}");
            says(
                &page,
                &[
                    "hello from /tmp/surus",
                    "/app/public 77M",
                    engine,
                    // From its time zones, in summer.
                    "2026-07-01T12:00:00+02:00",
                    // A character set that libc loads on demand.
                    "c6fccbdc",
                    "with a session",
                ],
            );
        }
        assert_eq!(get(&surus, "/style.css"), (200, "p { color: teal }".into()));
        assert_eq!(get(&surus, "/surus.toml").0, 404);
    }
}
