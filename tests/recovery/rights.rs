//! Tests that a front end of root serves no file that PHP's user cannot read.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::Surus;
use crate::site::{Site, app, ask, is_root, request, until};

/// A group that contains only PHP's user.
const GROUP: u32 = 47_110;

fn file(path: &Path, mode: u32, group: u32) {
    std::fs::write(path, "content").unwrap();
    chown(path, Some(0), Some(group)).unwrap();
    set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A site with such files, and a `surus` that knows PHP's user as a member of the group.
fn site() -> Site {
    let dir = app();
    let path = dir.path();
    file(&path.join("all.txt"), 0o644, 0);
    file(&path.join("root.txt"), 0o600, 0);
    file(&path.join("roots-group.txt"), 0o640, 0);
    file(&path.join("group.txt"), 0o640, GROUP);
    for (name, mode, group) in [("private", 0o700, 0), ("shared", 0o750, GROUP)] {
        let below = path.join(name);
        std::fs::create_dir(&below).unwrap();
        file(&below.join("all.txt"), 0o644, 0);
        file(&below.join("index.html"), 0o644, 0);
        chown(&below, Some(0), Some(group)).unwrap();
        set_permissions(&below, Permissions::from_mode(mode)).unwrap();
    }
    let send = "<?php header($_GET['by'].': '.$_GET['file']);";
    std::fs::write(path.join("send.php"), send).unwrap();
    let groups = path.join("writable/groups");
    let known = std::fs::read_to_string("/etc/group").unwrap();
    std::fs::write(&groups, format!("{known}readers:x:{GROUP}:www-data\n")).unwrap();
    let mut surus = Command::new("unshare");
    let becomes = "mount --bind \"$1\" /etc/group && shift && exec \"$@\"";
    surus.args(["-m", "sh", "-c", becomes, "sh"]).arg(&groups);
    surus.arg(env!("CARGO_BIN_EXE_surus"));
    let surus = Surus::spawn_by(surus, path, &["--workers", "1"], &[])
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    Site { surus, dir }
}

#[test]
fn files_are_sent_with_the_rights_of_phps_user() {
    if !is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let site = site();
    let root = site.dir.path().canonicalize().unwrap();
    for (name, status) in [
        ("all.txt", 200),
        ("group.txt", 200),
        ("shared/all.txt", 200),
        ("shared/", 200),
        ("root.txt", 403),
        ("roots-group.txt", 403),
        ("private/all.txt", 403),
        ("private/", 403),
        ("private", 403),
    ] {
        let mut urls = vec![format!("/{name}")];
        if name.ends_with(".txt") {
            urls.push(format!("/send.php?by=X-Accel-Redirect&file=/{name}"));
            let path = root.join(name);
            urls.push(format!("/send.php?by=X-Sendfile&file={}", path.display()));
        }
        for url in urls {
            // Twice, because allowed files are cached.
            for _ in 0..2 {
                let answer = site.get(&url);
                assert_eq!(answer.status, status, "{url}: {answer:?}");
                assert_eq!(answer.body == "content", status == 200, "{url}");
            }
        }
    }
}

#[test]
fn revoked_file_permissions_take_effect() {
    if !is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let site = site();
    assert_eq!(site.get("/all.txt").status, 200);
    // A change of a file's permissions is detected by its time; a directory is checked within a
    // second.
    let mode = |name: &str, mode| {
        set_permissions(site.dir.path().join(name), Permissions::from_mode(mode)).unwrap();
    };
    mode("all.txt", 0o600);
    assert_eq!(site.get("/all.txt").status, 403);
    mode("all.txt", 0o644);
    assert_eq!(site.get("/all.txt").status, 200);
    assert_eq!(site.get("/shared/all.txt").status, 200);
    mode("shared", 0o700);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(site.get("/shared/all.txt").status, 403);
    // Of the directories above the site, too.
    mode("", 0o700);
    until("nothing is sent any more", || {
        ask(
            &site.surus.address,
            request("GET", "/all.txt", "").as_bytes(),
        )
        .unwrap()
        .status
            == 403
    });
}
