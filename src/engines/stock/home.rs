//! A directory with what PHP that is not ours is given: settings, our scripts, sockets. It goes with the boot that it is for, or, where
//! that was killed, with the next one.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::Context;
use surus_sys::hold::{Held, hold};
use surus_sys::process;

use crate::engines::ini;

pub struct Home {
    dir: tempfile::TempDir,
    gid: Option<u32>,
    /// So that a later surus knows that it is in use.
    _held: Held,
}

const PREFIX: &str = "surus-php-";

/// Scanned for ini files behind all others, so that these have the last word.
const INI: &str = "ini";

/// The first file that is written.
const SETTINGS: &str = "ini/surus.ini";

impl Home {
    /// With settings as those of `[php]`. PHP runs with this group, or with ours.
    pub fn make(settings: &[(String, String)], gid: Option<u32>) -> anyhow::Result<Home> {
        sweep(&std::env::temp_dir());
        let dir = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir()
            .context("no directory for PHP's settings")?;
        let held =
            hold(dir.path()).with_context(|| format!("cannot lock {}", dir.path().display()))?;
        let home = Home {
            dir,
            gid,
            _held: held,
        };
        let mut lines = String::new();
        for (name, value) in settings {
            let value = match name.as_str() {
                // What is here has to be read, too.
                "open_basedir" if !value.is_empty() => {
                    &format!("{value}:{}", home.dir.path().display())
                }
                _ => value,
            };
            lines += &ini::line(name, value)?;
            lines.push('\n');
        }
        allow(home.dir.path(), 0o755)?;
        let directory = home.ini();
        std::fs::create_dir(&directory)
            .and_then(|()| allow(&directory, 0o755))
            .with_context(|| format!("cannot make {}", directory.display()))?;
        home.put(SETTINGS, &lines)?;
        Ok(home)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where PHP finds the settings (`PHP_INI_SCAN_DIR`).
    pub fn ini(&self) -> PathBuf {
        self.path(INI)
    }

    /// Writes a file that PHP can read, and nobody else: passwords may be in it.
    pub fn put(&self, name: &str, content: &str) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        let write = || {
            std::fs::write(&path, "")?;
            // Our own group may have others in it.
            allow(&path, if self.gid.is_some() { 0o640 } else { 0o600 })?;
            chown(&path, None, self.gid)?;
            std::fs::write(&path, content)
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// Removes what those of our user have left who were killed before they could.
fn sweep(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_one = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())
            && entry
                .metadata()
                .is_ok_and(|about| about.is_dir() && about.uid() == process::uid());
        // One that is being made is held before it has settings.
        if is_one && path.join(SETTINGS).exists() && hold(&path).is_ok() {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

fn allow(path: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}
