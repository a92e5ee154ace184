//! Tests how an executable unpacks itself: the rights of other users, and restarts after a kill.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{app, command, unpacked};
use crate::common::empty_root::can_chroot;
use crate::{Said, project, run, says};

fn check(base: &Path) -> Said {
    run(&mut command(&app(), base, &["check"]))
}

#[track_caller]
fn passes(said: &Said) {
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
}

/// The sizes of the files below a directory. Those that contain its path have one of their own.
fn sizes(root: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let inside = path.strip_prefix(root).unwrap().to_path_buf();
            if metadata.is_dir() {
                todo.push(path);
            } else {
                found.insert(inside, metadata.len());
            }
        }
    }
    found
}

#[test]
fn directory_is_of_the_user_alone() {
    let base = project(&[]);
    passes(&check(base.path()));
    let root = unpacked(base.path());
    let found = root.metadata().unwrap();
    assert_eq!(found.uid(), surus_sys::process::uid());
    // Root lets the group of PHP's user enter.
    let mode = found.mode() & 0o777;
    let is_root = surus_sys::process::is_root();
    assert_eq!(mode, if is_root { 0o750 } else { 0o700 });
    assert!(!root.join("partial").exists());
    let before = sizes(&root);
    passes(&check(base.path()));
    assert_eq!(sizes(&root), before);
}

#[test]
fn starts_at_once_unpack_the_same() {
    let base = project(&[]);
    let start = |number: u32| {
        let mut command = command(&app(), base.path(), &["check"]);
        // Each binds its socket to check it, which the others would take for a server.
        let socket = base.path().join(format!("{number}.sock"));
        command.env("SURUS_ADMIN_LISTEN", format!("unix:{}", socket.display()));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let all: Vec<_> = (0..4).map(start).collect();
    for started in all {
        let output = started.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let alone = project(&[]);
    passes(&check(alone.path()));
    let (together, alone) = (
        sizes(&unpacked(base.path())),
        sizes(&unpacked(alone.path())),
    );
    assert_eq!(together, alone);
}

#[test]
fn killed_start_is_completed_by_the_next() {
    let reference = project(&[]);
    passes(&check(reference.path()));
    let reference = sizes(&unpacked(reference.path()));
    let (mut killed, mut tries) = (0, 0);
    while killed < 3 {
        tries += 1;
        assert!(tries < 100, "no start was killed while it unpacked");
        let base = project(&[]);
        let mut command = command(&app(), base.path(), &["check"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut started = command.spawn().unwrap();
        let count = || {
            let root = fs::read_dir(base.path()).unwrap().next()?.unwrap().path();
            Some(fs::read_dir(root.join(".surus/lib")).ok()?.count())
        };
        // At another file each time.
        while count().is_none_or(|count| count < killed * 5) {
            if started.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        started.kill().unwrap();
        started.wait().unwrap();
        let root = unpacked(base.path());
        if root.join("complete").exists() {
            continue;
        }
        killed += 1;
        // Files with a name are whole.
        for (name, size) in sizes(&root) {
            let is_whole = reference.get(&name) == Some(&size);
            assert!(
                is_whole || name == Path::new("partial"),
                "{}",
                name.display()
            );
        }
        passes(&check(base.path()));
        assert_eq!(sizes(&root), reference);
    }
}

#[test]
fn missing_files_come_back_and_others_stay() {
    let base = project(&[]);
    passes(&check(base.path()));
    let root = unpacked(base.path());
    let reference = sizes(&root);
    fs::remove_dir_all(root.join(".surus/extensions")).unwrap();
    fs::remove_file(root.join("app/src/kept.php")).unwrap();
    passes(&check(base.path()));
    assert_eq!(sizes(&root), reference);
    fs::write(root.join("app/data.txt"), "of the application").unwrap();
    fs::write(root.join("app/src/kept.php"), "<?php return 1;").unwrap();
    passes(&check(base.path()));
    let kept = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    assert_eq!(kept("app/data.txt"), "of the application");
    assert_eq!(kept("app/src/kept.php"), "<?php return 1;");
    // Without the last file, the rest does not count.
    fs::remove_file(root.join("complete")).unwrap();
    passes(&check(base.path()));
    assert_eq!(kept("app/src/kept.php"), "<?php return 'kept';");
}

#[test]
fn directory_that_another_user_may_have_made_is_rejected() {
    let base = project(&[("elsewhere/keep", "")]);
    passes(&check(base.path().join("elsewhere").as_path()));
    let name = fs::read_dir(base.path().join("elsewhere")).unwrap();
    let name = name.map(|entry| entry.unwrap().file_name());
    let name = name.into_iter().find(|name| name != "keep").unwrap();
    let root = base.path().join(name);
    let rejected = |expected: &str| {
        let said = check(base.path());
        assert_eq!(said.status, 1, "{}", said.stdout);
        says(&said.stderr, &[expected, "SURUS_BUILD_DIR"]);
    };
    symlink("elsewhere", &root).unwrap();
    rejected("is not a directory that belongs to this user alone");
    fs::remove_file(&root).unwrap();
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, PermissionsExt::from_mode(0o770)).unwrap();
    rejected("is not a directory that belongs to this user alone");
    if surus_sys::process::is_root() {
        fs::set_permissions(&root, PermissionsExt::from_mode(0o700)).unwrap();
        chown(&root, Some(4321), None).unwrap();
        rejected("is not a directory that belongs to this user alone");
    }
    fs::remove_dir(&root).unwrap();
    fs::set_permissions(base.path(), PermissionsExt::from_mode(0o777)).unwrap();
    rejected("other users may exchange what is in");
    // As /tmp is.
    fs::set_permissions(base.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    passes(&check(base.path()));
}

#[test]
fn directory_that_cannot_be_used_is_named_with_the_remedy() {
    let base = project(&[("quote'd/keep", ""), ("file", "")]);
    let path = |name: &str| base.path().join(name);
    for (base, expected) in [
        (path("missing"), "No such file or directory"),
        (path("quote'd"), "characters that PHP's configuration"),
        (path("file"), "Not a directory"),
    ] {
        let said = check(&base);
        assert_eq!(said.status, 1, "{}", said.stdout);
        says(&said.stderr, &[expected, "SURUS_BUILD_DIR"]);
    }
}

/// Runs the app with a file system of these options at its base.
fn check_on(options: &str, after: &str) -> Option<Said> {
    if !can_chroot() {
        return None;
    }
    let base = project(&[]);
    let script = format!(
        "mount -t tmpfs -o {options} none \"$SURUS_BUILD_DIR\" && {after} && \"$0\" check
        status=$?; ls \"$SURUS_BUILD_DIR\"/surus*/ 2>/dev/null; exit $status"
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .arg(app())
        .env("SURUS_BUILD_DIR", base.path());
    Some(run(&mut command))
}

#[test]
fn full_disk_is_named_and_left_empty() {
    let Some(said) = check_on("size=4m,mode=755", "true") else {
        return;
    };
    assert_eq!(said.status, 1, "{}", said.stdout);
    says(
        &said.stderr,
        &[
            "the application needs ",
            " MiB in ",
            "No space left",
            "SURUS_BUILD_DIR",
        ],
    );
    assert!(
        !said.stdout.contains("app") && !said.stdout.contains("partial"),
        "{}",
        said.stdout
    );
}

#[test]
fn read_only_file_system_is_named() {
    let remount = "mount -o remount,ro none \"$SURUS_BUILD_DIR\"";
    let Some(said) = check_on("size=4m,mode=755", remount) else {
        return;
    };
    assert_eq!(said.status, 1, "{}", said.stdout);
    says(
        &said.stderr,
        &["cannot create ", "Read-only file system", "SURUS_BUILD_DIR"],
    );
}

#[test]
fn file_system_without_programs_is_named() {
    let Some(said) = check_on("noexec,mode=755", "true") else {
        return;
    };
    assert_eq!(said.status, 1, "{}", said.stdout);
    says(&said.stderr, &["is mounted with noexec", "SURUS_BUILD_DIR"]);
}
