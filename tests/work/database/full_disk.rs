//! A disk without room: the database is waited for, and no job is lost or runs twice.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

use super::super::operate::metrics;
use super::super::plain::Plain;
use super::super::site::{ids_of, is_root};
use super::super::table::Table;
use super::Kind;

/// A file system of 256 KiB, with a file that takes what is left.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// None without the permission to mount.
    fn mount(at: PathBuf) -> Option<SmallDisk> {
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k", "none"]);
        let is_mounted = mount.arg(&at).status().unwrap().success();
        is_mounted.then_some(SmallDisk(at))
    }

    fn fill(&self) {
        // The last write fails, with what fits before it.
        let _ = fs::write(self.0.join("full"), vec![0; 1 << 20]);
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("full")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn sqlite_on_a_full_disk_is_waited_for_and_said_once() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let Some(disk) = SmallDisk::mount(directory.path().join("disk")) else {
        eprintln!("not tested: nothing can be mounted here");
        return;
    };
    let plain = Plain::with("", |_| Table::create(Kind::Sqlite, &disk.0));
    let (user, group) = ids_of("www-data");
    for path in [&disk.0, &PathBuf::from(&plain.table.name)] {
        chown(path, Some(user), Some(group)).unwrap();
    }
    let work = plain.start(&["--workers", "1"]);
    plain.push(0, "wait");
    work.wait_until(|| plain.count("begins 0") == 1);
    plain.push(1, "");
    disk.fill();
    plain.go(true);
    work.wait_for_log(|log| log.contains("cannot settle a job; trying again"));
    let failures = || {
        let text = metrics(&work);
        let line = r#"surus_broker_errors_total{queue="default",operation="settle"} "#;
        let found = text.lines().find_map(|text| text.strip_prefix(line));
        found.map_or(0, |number| number.parse().unwrap())
    };
    work.wait_until(|| failures() >= 3);
    let log = work.log();
    assert!(log.contains("full"), "{log}");
    assert_eq!(log.matches("cannot settle a job").count(), 1, "{log}");
    disk.make_room();
    work.wait_until(|| plain.table.is_empty());
    for number in 0..2 {
        assert_eq!(plain.count(&format!("begins {number}")), 1);
        assert_eq!(plain.count(&format!("done {number}")), 1);
    }
}
