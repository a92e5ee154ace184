//! Tests that an executable that is not as it was built says so instead of running.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use super::{app, command};
use crate::common::executable::copy_executable;
use crate::{Said, project, run, says};

/// Starts a changed copy of the app. The change is made by another process where a file that is
/// still open for writing could not be started.
fn start(change: impl FnOnce(&Path)) -> (Said, tempfile::TempDir) {
    let dir = project(&[("base/keep", "")]);
    let copy = dir.path().join("copy");
    copy_executable(&app(), &copy);
    let changed = dir.path().join("changed");
    fs::rename(copy, &changed).unwrap();
    change(&changed);
    // Not the file that was open here.
    let started = dir.path().join("started");
    copy_executable(&changed, &started);
    let said = run(&mut command(&started, &dir.path().join("base"), &["check"]));
    (said, dir)
}

fn is_refused(change: impl FnOnce(&Path), expected: &str) {
    let (said, dir) = start(change);
    assert_eq!(said.status, 1, "{}", said.stdout);
    says(&said.stderr, &[expected, "copy it again"]);
    let entries = fs::read_dir(dir.path().join("base")).unwrap().count();
    assert_eq!(entries, 1, "something was unpacked");
}

fn open(path: &Path) -> fs::File {
    OpenOptions::new()
        .write(true)
        .read(true)
        .open(path)
        .unwrap()
}

/// Where the record is, by its mark in the program.
fn record(path: &Path) -> u64 {
    let program = fs::read(path).unwrap();
    let mark = &surus_sys::appended::record()[..surus_sys::appended::MARK_LENGTH];
    let at = program.windows(mark.len()).position(|bytes| bytes == mark);
    at.unwrap() as u64
}

fn flip(path: &Path, at: u64) {
    let file = open(path);
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn truncated_executable_is_refused() {
    for missing in [1, 100, 1 << 20] {
        is_refused(
            |path| {
                let length = path.metadata().unwrap().len();
                open(path).set_len(length - missing).unwrap();
            },
            "this program is truncated",
        );
    }
    // All of what was appended.
    is_refused(
        |path| {
            let surus = Path::new(env!("CARGO_BIN_EXE_surus"));
            let length = surus.metadata().unwrap().len();
            open(path).set_len(length).unwrap();
        },
        "this program is truncated",
    );
}

#[test]
fn executable_with_more_bytes_is_refused() {
    is_refused(
        |path| {
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(b"x").unwrap();
        },
        "this program was changed",
    );
}

#[test]
fn changed_bytes_are_refused() {
    is_refused(
        |path| flip(path, path.metadata().unwrap().len() - 100),
        "this program is damaged",
    );
    is_refused(
        |path| {
            let surus = Path::new(env!("CARGO_BIN_EXE_surus"));
            flip(path, surus.metadata().unwrap().len() + 1000);
        },
        "this program is damaged",
    );
}

#[test]
fn changed_record_is_refused() {
    // Start, length and checksum.
    for (field, expected) in [
        (16, "this program"),
        (24, "this program"),
        (40, "this program is damaged"),
    ] {
        is_refused(|path| flip(path, record(path) + field), expected);
    }
}

#[test]
fn stripped_executable_is_refused() {
    let is_there = Command::new("strip").arg("--version").output().is_ok();
    if !is_there {
        eprintln!("skipped: strip is not installed");
        return;
    }
    let (said, _dir) = start(|path| {
        let stripped = Command::new("strip").arg(path).status();
        assert!(stripped.unwrap().success());
    });
    assert_eq!(said.status, 1, "{}", said.stdout);
    says(&said.stderr, &["this program is truncated"]);
}
