//! Writes an executable for a test in another process.
//!
//! A file that is open for writing cannot be executed (ETXTBSY). A file that this process has open
//! is also open in every child that another test starts at that moment, until the child calls exec.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

pub fn write_executable(path: &Path, text: &str) {
    let mut shell = Command::new("/bin/sh")
        .args(["-c", r#"cat >"$1" && chmod 755 "$1""#, "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = shell.stdin.take().unwrap();
    pipe.write_all(text.as_bytes()).unwrap();
    drop(pipe);
    assert!(shell.wait().unwrap().success());
}

pub fn copy_executable(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(copied.success(), "{}", from.display());
}
