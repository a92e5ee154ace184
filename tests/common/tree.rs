//! Lays out directories for tests.
#![allow(dead_code, clippy::unwrap_used)]

use std::fs;
use std::path::Path;

/// Copies a file or directory tree. Follows symbolic links, of which Debian's packages have many.
pub fn copy(from: &Path, to: &Path) {
    let failed = |error| -> ! {
        let (from, to) = (from.display(), to.display());
        panic!("could not copy {from} to {to}: {error}. Some packages let only root read them.")
    };
    if !from.is_dir() {
        fs::create_dir_all(to.parent().unwrap())
            .and_then(|()| fs::copy(from, to))
            .unwrap_or_else(|error| failed(error));
        return;
    }
    fs::create_dir_all(to).unwrap_or_else(|error| failed(error));
    for entry in fs::read_dir(from).unwrap_or_else(|error| failed(error)) {
        let entry = entry.unwrap();
        // A link into a package that is only recommended may dangle.
        if entry.path().exists() {
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    }
}

/// Copies the PHP files of the Composer package into a directory.
pub fn copy_library(to: &Path) {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("php");
    for part in ["src", "lambda"] {
        copy(&package.join(part), &to.join(part));
    }
}
