//! Finds a static surus and the right to chroot, for tests that run packages in an empty root.
#![allow(dead_code, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// A static surus, as `make static` builds it. Without one, the test prints a note and passes, but
/// fails in CI, unless `SKIP_PACKAGES` is set.
pub fn static_surus() -> Option<PathBuf> {
    let surus = Path::new(env!("CARGO_BIN_EXE_surus"));
    let target = surus.parent().unwrap().parent().unwrap();
    let name = format!("{}-unknown-linux-musl/debug/surus", std::env::consts::ARCH);
    let path = target.join(name);
    if path.is_file() {
        return Some(path);
    }
    let text = format!(
        "skipped: there is no {}; make static builds it",
        path.display()
    );
    let is_set = |name: &str| std::env::var_os(name).is_some();
    assert!(!is_set("CI") || is_set("SKIP_PACKAGES"), "{text}");
    eprintln!("{text}");
    None
}

/// Whether chroot and mounts are possible. Without root, the test prints a note and passes, but
/// fails in automation.
pub fn can_chroot() -> bool {
    let status = Command::new("unshare")
        .args(["--mount", "true"])
        .status()
        .unwrap();
    assert!(
        status.success() || std::env::var_os("CI").is_none(),
        "chroot needs root"
    );
    if !status.success() {
        eprintln!("skipped: only root may chroot");
    }
    status.success()
}
