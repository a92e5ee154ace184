//! The directory with settings, scripts and sockets for an external PHP. It is removed with its
//! boot, or by the next start if Surus was killed.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use surus_sys::acl;
use surus_sys::dir_lock::{self, DirLock};
use surus_sys::process::{self, User};
use surus_sys::remove_tree;
use tracing::warn;

use crate::engines::php_ini;
use crate::launcher::{self, Launch};

/// The directory of a boot.
pub enum RuntimeDir {
    /// Created by this process.
    OwnDir(OwnDir),
    /// Created by the keeper, with all its files.
    Keeper(KeeperDir),
}

impl RuntimeDir {
    pub fn path(&self, name: &str) -> PathBuf {
        match self {
            RuntimeDir::OwnDir(own) => own.path(name),
            RuntimeDir::Keeper(kept) => kept.dir.path.join(name),
        }
    }

    /// Writes one of the files that `furnish` created for this process.
    pub fn fill(&self, name: &str, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let path = self.path(name);
        std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A directory of the keeper, which removes it when this is dropped.
pub struct KeeperDir {
    pub launch: Launch,
    pub dir: launcher::DirHandle,
}

impl Drop for KeeperDir {
    fn drop(&mut self) {
        self.launch.by.close_runtime_dir(self.dir.number);
    }
}

/// A directory that this process created and removes.
pub struct OwnDir {
    path: PathBuf,
    gid: Option<u32>,
    /// The user of the front end, if different.
    front: Option<u32>,
    /// PHP's user and the front end's, if PHP's is another than this process's.
    users: Option<Vec<u32>>,
    /// Locks the directory, so that a later Surus sees that it is in use.
    _lock: DirLock,
}

const PREFIX: &str = "surus-php-";

/// Scanned after all other ini files, so that its settings win.
const INI: &str = "ini";

/// How long the keeper may be busy with removing directories.
const REMOVAL: Duration = Duration::from_secs(1);

/// The first file that is written.
const SETTINGS: &str = "ini/surus.ini";

impl OwnDir {
    /// Writes the settings of `[php]`. PHP runs as this user, or as Surus's.
    pub fn make(
        settings: &[(String, String)],
        user: Option<&User>,
        front: Option<u32>,
    ) -> anyhow::Result<OwnDir> {
        let temporary = std::env::temp_dir();
        check(&temporary)?;
        let users = user.map(|user| std::iter::once(user.uid).chain(front).collect::<Vec<_>>());
        sweep(&temporary, users.as_deref(), Instant::now() + REMOVAL);
        let dir = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(&temporary)
            .context("cannot create a directory for PHP's settings")?;
        let lock = dir_lock::lock(dir.path())
            .with_context(|| format!("cannot lock {}", dir.path().display()))?;
        let runtime_dir = OwnDir {
            path: dir.keep(),
            gid: user.map(|user| user.gid),
            front,
            users,
            _lock: lock,
        };
        let mut lines = String::new();
        for (name, value) in settings {
            let value = match name.as_str() {
                // PHP must also be able to read this directory.
                "open_basedir" if !value.is_empty() => {
                    &format!("{value}:{}", runtime_dir.path.display())
                }
                _ => value,
            };
            lines += &php_ini::line(name, value)?;
            lines.push('\n');
        }
        allow(&runtime_dir.path, 0o755)?;
        let directory = runtime_dir.ini();
        std::fs::create_dir(&directory)
            .and_then(|()| allow(&directory, 0o755))
            .with_context(|| format!("cannot create {}", directory.display()))?;
        runtime_dir.put(SETTINGS, &lines)?;
        Ok(runtime_dir)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The directory for `PHP_INI_SCAN_DIR`.
    pub fn ini(&self) -> PathBuf {
        self.path(INI)
    }

    /// Writes a file that only PHP can read; it may contain passwords.
    pub fn put(&self, name: &str, content: &str) -> anyhow::Result<PathBuf> {
        self.write(name, content, None)
    }

    /// Creates a file that the front end writes and PHP reads.
    pub fn put_for_front(&self, name: &str) -> anyhow::Result<PathBuf> {
        self.write(name, "", self.front)
    }

    /// Creates a directory in which the front end writes files for PHP. PHP may move them away.
    pub fn directory_for_front(&self, name: &str) -> anyhow::Result<()> {
        let path = self.path(name);
        let create = || {
            std::fs::create_dir(&path)?;
            let Some(gid) = self.gid else {
                allow(&path, 0o700)?;
                return chown(&path, self.front, None);
            };
            allow(&path, 0o770)?;
            let is_shared = acl::share_new_files(File::open(&path)?, gid)?;
            chown(&path, self.front, Some(gid))?;
            if is_shared {
                return Ok(());
            }
            // A new file then has the group of the directory.
            allow(&path, 0o2770)?;
            match path.metadata()?.mode() & 0o2000 {
                0 => Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "PHP's group gets no access to its files: the file system has no access \
                     control lists, and a setgid bit needs CAP_FSETID",
                )),
                _ => Ok(()),
            }
        };
        create().with_context(|| format!("cannot create {}", path.display()))
    }

    fn write(&self, name: &str, content: &str, owner: Option<u32>) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        let write = || {
            std::fs::write(&path, "")?;
            // Surus's own group may have other members.
            allow(&path, if self.gid.is_some() { 0o640 } else { 0o600 })?;
            chown(&path, owner, self.gid)?;
            std::fs::write(&path, content)
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// The user of the front end, if different.
    pub fn front(&self) -> Option<u32> {
        self.front
    }
}

/// Refuses a directory in which another user than root can exchange what root starts PHP with.
fn check(temporary: &Path) -> anyhow::Result<()> {
    let path = std::path::absolute(temporary)?;
    let opened = surus_sys::trusted_path::directory(&path, None);
    let opened = opened.with_context(|| format!("cannot use {} (TMPDIR)", path.display()))?;
    if !opened.is_fixed {
        bail!(
            "another user than root can exchange the files in {} (TMPDIR) that root starts PHP \
             with; name a directory such as /tmp, where users change only their own files",
            path.display()
        );
    }
    Ok(())
}

impl Drop for OwnDir {
    fn drop(&mut self) {
        remove(&self.path, self.users.as_deref(), Instant::now() + REMOVAL);
    }
}

/// Removes the directory of a boot. PHP may have written to it, as much as it likes, and moved
/// directories there that it could not remove itself: only those of `users` are emptied. It ends at
/// `until`; a later [`sweep`], which looks for the settings, removes the rest.
fn remove(path: &Path, users: Option<&[u32]>, until: Instant) {
    if let Err(error) = remove_tree::remove(path, INI, users, until) {
        let path = path.display();
        warn!(%path, %error, "cannot remove a directory of PHP; the next boot tries again");
    }
}

/// Removes the directories that killed processes of the same user left behind. It ends at `until`,
/// because all users can create entries there. Returns the number of entries it has looked at.
fn sweep(directory: &Path, users: Option<&[u32]>, until: Instant) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    let mut seen = 0;
    for entry in entries.flatten() {
        if Instant::now() >= until {
            break;
        }
        seen += 1;
        let path = entry.path();
        let is_one = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())
            && entry
                .metadata()
                .is_ok_and(|about| about.is_dir() && about.uid() == process::uid());
        // A new directory is locked before its settings exist.
        if is_one && path.join(SETTINGS).exists() && dir_lock::lock(&path).is_ok() {
            remove(&path, users, until);
        }
    }
    seen
}

fn allow(path: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sweep_ends_at_its_time_with_entries_left() {
        let temporary = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            let name = format!("{PREFIX}{name}");
            let settings = temporary.path().join(name).join(SETTINGS);
            std::fs::create_dir_all(settings.parent().unwrap()).unwrap();
            std::fs::write(settings, "").unwrap();
        }
        let left = || std::fs::read_dir(temporary.path()).unwrap().count();
        assert_eq!(sweep(temporary.path(), None, Instant::now()), 0);
        assert_eq!(left(), 3);
        let later = Instant::now() + Duration::from_secs(3600);
        assert_eq!(sweep(temporary.path(), None, later), 3);
        assert_eq!(left(), 0);
    }
}
