//! PHP's user exchanges what root is about to use for a symbolic link.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::processes::{app, assert_serves, get, hello, id_of, is_root, start};

pub fn socket_exchanged_for_a_link_at_its_creation_changes_no_other_file() {
    if !is_root() {
        return;
    }
    let project = hello();
    let dir = app(&[("shadow", "root's")]);
    let shadow = dir.path().join("shadow");
    set_permissions(&shadow, Permissions::from_mode(0o600)).unwrap();
    let run = dir.path().join("run");
    std::fs::create_dir(&run).unwrap();
    let (socket, link) = (run.join("s"), run.join("link"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = symlink(&shadow, &link);
                // Only once the socket is there: a link in its place makes the bind fail.
                if std::fs::symlink_metadata(&socket).is_ok_and(|found| !found.is_symlink()) {
                    let _ = std::fs::rename(&link, &socket);
                }
            }
        });
        for _ in 0..20 {
            let _ = std::fs::remove_file(&socket);
            let listen = format!("unix:{}", socket.display());
            let checked = Command::new(env!("CARGO_BIN_EXE_surus"))
                .args(["check", "--listen", &listen])
                .arg(project.path())
                .output();
            println!("{}", String::from_utf8_lossy(&checked.unwrap().stdout));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let found = std::fs::metadata(&shadow).unwrap();
    assert_eq!((found.mode() & 0o7777, found.gid()), (0o600, 0));
}

fn reload(project: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("reload")
        .arg(project)
        .output()
        .unwrap()
}

pub fn document_root_exchanged_for_a_link_that_php_may_not_follow_is_refused() {
    if !is_root() {
        return;
    }
    let dir = app(&[]);
    let project = dir.path().join("project");
    let public = project.join("public");
    // Only root may enter the outer directory, everybody the inner one.
    let vault = dir.path().join("vault");
    let inner = vault.join("inner");
    for made in [&public, &inner] {
        std::fs::create_dir_all(made).unwrap();
        std::fs::write(made.join("index.php"), "<?php echo 'hello';").unwrap();
    }
    std::fs::write(public.join("a.txt"), "static").unwrap();
    std::fs::write(inner.join("secret.txt"), "secret").unwrap();
    set_permissions(&vault, Permissions::from_mode(0o700)).unwrap();
    chown(&project, Some(id_of("www-data")), None).unwrap();
    let surus = start(&project, &[], &[]);
    assert_serves(&surus);
    std::fs::rename(&public, project.join("was")).unwrap();
    symlink(&inner, &public).unwrap();
    let reloaded = reload(&project);
    let said = String::from_utf8_lossy(&reloaded.stderr);
    assert!(!reloaded.status.success(), "{reloaded:?}");
    assert!(
        said.contains("engine.user") || surus.log().contains("engine.user"),
        "{said}{}",
        surus.log()
    );
    assert_eq!(get(&surus, "/a.txt"), Some((200, "static".into())));
    let (status, body) = get(&surus, "/secret.txt").unwrap();
    assert!(!body.contains("secret"), "{status} {body}");
}
