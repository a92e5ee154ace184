//! Runs `lab` on a small experiment of its own, and on wrong files.
#![allow(clippy::unwrap_used)]

mod disturbed;
mod history;
mod loads;
mod render;
mod run;
mod several;
mod starting;
mod wrong_files;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A copy of `lab/tests/tiny` that a test may change.
struct Tiny {
    directory: tempfile::TempDir,
}

impl Tiny {
    fn new() -> Tiny {
        let directory = tempfile::tempdir().unwrap();
        let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny");
        let status = Command::new("cp")
            .arg("-r")
            .arg(tiny)
            .arg(directory.path().join("lab"))
            .status();
        assert!(status.unwrap().success());
        Tiny { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Replaces a text that is in a file.
    fn change(&self, name: &str, from: &str, to: &str) {
        let text = self.read(name);
        assert!(text.contains(from), "{name} has no {from}");
        std::fs::write(self.path(name), text.replacen(from, to, 1)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
        command.args(arguments).current_dir(self.directory.path());
        // Nothing of surus is measured, but a program must be there.
        command.args(["--surus", "/bin/true"]);
        command
    }

    fn lab(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What a successful command writes to stderr.
    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.lab(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        said
    }

    /// What a failing command writes to stderr.
    fn fail(&self, arguments: &[&str]) -> String {
        let output = self.lab(arguments);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn files_of_the_repository_are_valid() {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    let check = Command::new(env!("CARGO_BIN_EXE_lab"))
        .arg("check")
        .current_dir(lab.parent().unwrap())
        .output()
        .unwrap();
    assert!(
        check.status.success(),
        "{}",
        String::from_utf8_lossy(&check.stderr)
    );
}
