//! Tests paths that PHP's user replaces by a symbolic link just before root uses them.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::Surus;
use crate::server::{app, assert_serves, get, hello, id_of, is_root, start, until};

pub fn socket_replaced_by_a_link_at_its_creation_changes_no_other_file() {
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
                // Only once the socket exists: a link in its place makes the bind fail.
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

pub fn document_root_replaced_by_a_link_unreadable_to_php_is_rejected() {
    if !is_root() {
        return;
    }
    let dir = app(&[]);
    let project = dir.path().join("project");
    let public = project.join("public");
    // Only root may enter the outer directory; everyone may enter the inner one.
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
    // The old directory is served at most until the path is looked up again.
    until("the new directory is denied", || {
        let (status, body) = get(&surus, "/a.txt").unwrap();
        assert!(
            status == 403 || (status, &*body) == (200, "static"),
            "{status} {body}"
        );
        status == 403
    });
    let (status, body) = get(&surus, "/secret.txt").unwrap();
    assert!(!body.contains("secret"), "{status} {body}");
}

/// A directory of PHP's user inside a directory of root, next to a directory `vault` that only root
/// can write to.
fn run_of_php() -> tempfile::TempDir {
    let dir = app(&[]);
    for (name, owner) in [("vault", 0), ("php", id_of("www-data"))] {
        let path = dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        chown(&path, Some(owner), None).unwrap();
    }
    dir
}

/// The output of `surus check` about a socket at this path.
fn check_socket(project: &Path, setting: &str, socket: &Path) -> (bool, String) {
    let checked = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("check")
        .arg(project)
        .env(setting, format!("unix:{}", socket.display()))
        .output()
        .unwrap();
    let said = [checked.stdout, checked.stderr].concat();
    (
        checked.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// Changes whenever a file is created in or removed from a directory.
fn changed(dir: &Path) -> (i64, i64) {
    let found = std::fs::metadata(dir).unwrap();
    (found.mtime(), found.mtime_nsec())
}

pub fn socket_below_a_link_of_another_user_is_rejected() {
    if !is_root() {
        return;
    }
    let (project, dir) = (hello(), run_of_php());
    let vault = dir.path().join("vault");
    let before = changed(&vault);
    // PHP's user can place it there, regardless of its owner.
    let link = dir.path().join("php/link");
    symlink(&vault, &link).unwrap();
    for owner in [0, id_of("www-data")] {
        std::os::unix::fs::lchown(&link, Some(owner), None).unwrap();
        let (works, said) = check_socket(project.path(), "SURUS_HTTP_LISTEN", &link.join("s"));
        assert!(!works, "{said}");
        assert!(
            said.contains(&link.display().to_string()) && said.contains("symbolic link"),
            "{said}"
        );
    }
    let listen = format!("unix:{}", link.join("new/admin").display());
    let log = Surus::spawn(
        project.path(),
        &[],
        &[("SURUS_ADMIN_LISTEN", listen.as_str())],
    );
    let log = log.err().unwrap();
    assert!(log.contains("symbolic link"), "{log}");
    assert_eq!(changed(&vault), before);
    // A link that only root can place, such as /var/run, is followed.
    let roots = dir.path().join("roots");
    symlink("vault", &roots).unwrap();
    let (works, said) = check_socket(project.path(), "SURUS_HTTP_LISTEN", &roots.join("s"));
    assert!(works, "{said}");
}

pub fn socket_below_directories_of_another_user_is_created() {
    if !is_root() {
        return;
    }
    let (project, other, dir) = (hello(), hello(), run_of_php());
    let socket = dir.path().join("php/s");
    let listen = format!("unix:{}", socket.display());
    for _ in 0..2 {
        let mut surus = start(project.path(), &["--listen", &listen], &[]);
        assert_serves(&surus);
        let curl = Command::new("curl")
            .args(["-s", "http://localhost/", "--unix-socket"])
            .arg(&socket)
            .output();
        assert_eq!(curl.unwrap().stdout, b"hello");
        let (works, said) = check_socket(other.path(), "SURUS_HTTP_LISTEN", &socket);
        assert!(!works && said.contains("another process does"), "{said}");
        // The second start replaces the socket of a killed server.
        surus.signal("KILL");
        surus.wait();
        // The front end detects the keeper's exit by itself.
        until("nothing listens", || {
            std::os::unix::net::UnixStream::connect(&socket).is_err()
        });
        assert!(socket.exists());
    }
}

pub fn directory_replaced_by_a_link_at_bind_creates_no_socket_elsewhere() {
    if !is_root() {
        return;
    }
    let (project, dir) = (hello(), run_of_php());
    let vault = dir.path().join("vault");
    let [run, was, link] = ["run", "was", "link"].map(|name| dir.path().join("php").join(name));
    std::fs::create_dir(&run).unwrap();
    let before = changed(&vault);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = std::fs::rename(&run, &was);
                let _ = symlink(&vault, &link);
                let _ = std::fs::rename(&link, &run);
                let _ = std::fs::remove_file(&run);
                let _ = std::fs::rename(&was, &run);
            }
        });
        for _ in 0..20 {
            let (_, said) = check_socket(project.path(), "SURUS_HTTP_LISTEN", &run.join("s"));
            println!("{said}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(changed(&vault), before);
}
