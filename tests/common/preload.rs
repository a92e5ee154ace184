//! Libraries of the tests that precede libc in the processes of Surus or PHP.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Preload {
    _dir: tempfile::TempDir,
    library: PathBuf,
}

impl Preload {
    /// The library of a source file below `tests`.
    pub fn compile(source: &str) -> Preload {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("preloaded.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests")
            .join(source);
        let mut cc = Command::new("cc");
        // Bound at load time, because a lazy look-up writes to memory that must not change.
        cc.args([
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Werror",
            "-Wl,-z,now",
            "-o",
        ]);
        assert!(cc.arg(&library).arg(source).status().unwrap().success());
        // The workers may run as another user.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Preload { _dir: dir, library }
    }

    /// The value of LD_PRELOAD.
    pub fn path(&self) -> &str {
        self.library.to_str().unwrap()
    }
}
