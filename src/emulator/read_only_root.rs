//! The fault `read-only`: starts a runtime that can write only to `/tmp`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The command inside a mount namespace where only `/tmp` is writable.
pub fn command(program: &Path, arguments: &[String]) -> anyhow::Result<(PathBuf, Vec<String>)> {
    // The private mount namespace copies each mount, so the flags affect this runtime only.
    const SCRIPT: &str = r#"
        mount --make-rprivate / || exit 125
        mountpoint -q /tmp || mount --bind /tmp /tmp || exit 125
        mounts=$(cat /proc/self/mounts)
        printf '%s\n' "$mounts" | while read -r _ place _; do
            case $place in /proc|/proc/*|/sys|/sys/*|/dev|/dev/*|/tmp|/tmp/*) continue ;; esac
            mount -o remount,bind,ro "$(printf '%b' "$place")" || exit 125
        done || exit 125
        exec "$@"
    "#;
    let probe = std::process::Command::new("unshare")
        .args(unshare())
        .args(["mount", "--make-rprivate", "/"])
        .output()
        .context("the fault read-only needs unshare(1) of util-linux")?;
    if !probe.status.success() {
        bail!(
            "the fault read-only needs a mount namespace, which this system does not allow: {}",
            String::from_utf8_lossy(&probe.stderr).trim()
        );
    }
    let mut all: Vec<String> = unshare().iter().map(ToString::to_string).collect();
    all.extend(["sh", "-c", SCRIPT, "sh"].map(String::from));
    all.push(program.display().to_string());
    all.extend(arguments.iter().cloned());
    Ok((PathBuf::from("unshare"), all))
}

fn unshare() -> &'static [&'static str] {
    match surus_sys::process::is_root() {
        true => &["--mount"],
        false => &["--map-root-user", "--mount"],
    }
}
