//! Removes a directory tree to which another user may still be writing.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

const ENTER: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);

/// How the names of directories begin that were moved up.
const MOVED: &str = "moved-";

/// Removes a directory with what is below it. At the time `until`, the rest is left, and an error
/// returned. The entry `last` goes last, and stays if something else does.
///
/// Only this user may create entries in it, and others below them. `owners` are the users whose
/// directories are emptied there; None for all. The owner of such a directory can remove its
/// content itself. Directories of others stay with all that they contain: one of `owners` may have
/// moved them here together with its own.
///
/// It needs neither stack nor descriptors for the tree's depth: a directory that is not empty is
/// first moved up to the top. It follows no symbolic link and enters no mounted file system.
pub fn remove(path: &Path, last: &str, owners: Option<&[u32]>, until: Instant) -> io::Result<()> {
    let mut flattening = Flattening {
        top: open(path)?,
        owners,
        until,
        moved: 0,
    };
    let is_other = |name: &CString| name.as_bytes() != last.as_bytes();
    while flattening.pass(is_other)? {}
    for name in names(&flattening.top)? {
        if is_other(&name?) {
            return Err(io::Error::other(
                "it contains directories of other users than PHP's",
            ));
        }
    }
    while flattening.pass(|_| true)? {}
    std::fs::remove_dir(path)
}

/// The removal of one tree.
struct Flattening<'a> {
    top: OwnedFd,
    owners: Option<&'a [u32]>,
    until: Instant,
    /// How many directories were moved up.
    moved: usize,
}

impl Flattening<'_> {
    /// Removes entries of the top directory with what is directly below them. Returns whether it
    /// has removed or moved anything.
    fn pass(&mut self, is_wanted: impl Fn(&CString) -> bool) -> io::Result<bool> {
        let mut has_any = false;
        for name in names(&self.top)? {
            let name = name?;
            if !is_wanted(&name) {
                continue;
            }
            self.check_time()?;
            if take(&self.top, &name)? {
                has_any = true;
                continue;
            }
            let directory = match enter(&self.top, &name) {
                Ok(directory) => directory,
                // Something else took its place.
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => continue,
                Err(error) => return Err(error.into()),
            };
            // Only this user creates directories at the top.
            let was_moved = name.as_bytes().starts_with(MOVED.as_bytes());
            if was_moved && !self.may_empty(&directory)? {
                continue;
            }
            for below in names(&directory)? {
                let below = below?;
                self.check_time()?;
                has_any |= take(&directory, &below)? || self.move_up(&directory, &below)?;
            }
            take(&self.top, &name)?;
        }
        Ok(has_any)
    }

    /// Whether the directory's owner is one of those whose directories are emptied.
    fn may_empty(&self, directory: &OwnedFd) -> io::Result<bool> {
        let Some(owners) = self.owners else {
            return Ok(true);
        };
        let owner = nix::sys::stat::fstat(directory)?.st_uid;
        Ok(owners.contains(&owner))
    }

    fn check_time(&self) -> io::Result<()> {
        match Instant::now() < self.until {
            true => Ok(()),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Moves a directory to the top. False if it stays where it is.
    fn move_up(&mut self, from: &OwnedFd, name: &CString) -> io::Result<bool> {
        let is_movable = |directory, name| match enter(directory, name) {
            Ok(directory) => self.may_empty(&directory),
            Err(_) => Ok(false),
        };
        if !is_movable(from, name)? {
            return Ok(false);
        }
        let to = loop {
            self.moved += 1;
            let to = format!("{MOVED}{}", self.moved);
            // It may replace an empty directory: all of them go.
            match renameat(from, name.as_c_str(), &self.top, to.as_str()) {
                Ok(()) => break CString::new(to)?,
                Err(Errno::ENOENT) => return Ok(true),
                Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => self.check_time()?,
                Err(error) => return Err(error.into()),
            }
        };
        // Another user's directory took its place in time.
        if enter(&self.top, &to).is_ok_and(|moved| !self.may_empty(&moved).unwrap_or(false)) {
            move_back(&self.top, &to, from, name)?;
            return Ok(false);
        }
        Ok(true)
    }
}

/// Renames, but replaces nothing. nix has renameat2() for glibc only.
fn move_back(top: &OwnedFd, name: &CStr, to: &OwnedFd, as_name: &CStr) -> nix::Result<()> {
    // SAFETY: The names are NUL-terminated, and live longer than the call, as the descriptors do.
    let done = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            top.as_raw_fd(),
            name.as_ptr(),
            to.as_raw_fd(),
            as_name.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    };
    Errno::result(done).map(drop)
}

/// Opens a directory that is not a link.
fn open(path: &Path) -> nix::Result<OwnedFd> {
    nix::fcntl::open(path, ENTER | OFlag::O_NOFOLLOW, Mode::empty())
}

/// Opens an entry of a directory that is a directory of the same file system.
fn enter(directory: &OwnedFd, name: &CString) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV;
    let how = OpenHow::new().flags(ENTER).resolve(resolve);
    openat2(directory, name.as_c_str(), how)
}

/// The names in a directory, as far as they are still there when they are reached.
fn names(directory: &OwnedFd) -> nix::Result<impl Iterator<Item = nix::Result<CString>> + use<>> {
    let listed = Dir::openat(directory, ".", ENTER, Mode::empty())?.into_iter();
    let names = listed.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
    Ok(names.filter(|name| {
        let name = name.as_deref().map(std::ffi::CStr::to_bytes);
        !matches!(name, Ok(b"." | b".."))
    }))
}

/// Removes a file or an empty directory. False if it is a directory that is not empty.
fn take(directory: &OwnedFd, name: &CString) -> nix::Result<bool> {
    match unlinkat(directory, name.as_c_str(), UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(true),
        // EPERM: some file systems say so of directories.
        Err(Errno::EISDIR | Errno::EPERM) => {}
        Err(error) => return Err(error),
    }
    match unlinkat(directory, name.as_c_str(), UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(true),
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;

    /// Creates directories below each other, in each a file.
    fn nest(top: &Path, depth: usize) {
        let mut directory = open(top).unwrap();
        for _ in 0..depth {
            nix::sys::stat::mkdirat(&directory, "below", Mode::S_IRWXU).unwrap();
            let flags = OFlag::O_CREAT | OFlag::O_WRONLY;
            nix::fcntl::openat(&directory, "file", flags, Mode::S_IRUSR).unwrap();
            directory = enter(&directory, &c"below".to_owned()).unwrap();
        }
    }

    fn in_time() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn tree_of_any_depth_is_removed_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, other) = (dir.path().join("tree"), dir.path().join("other"));
        for made in [
            tree.join("uploads/wide/empty"),
            tree.join("ini"),
            other.clone(),
        ] {
            std::fs::create_dir_all(made).unwrap();
        }
        std::fs::write(other.join("kept"), "").unwrap();
        std::fs::write(tree.join("ini/file"), "").unwrap();
        symlink(&other, tree.join("uploads/wide/link")).unwrap();
        symlink(&other, tree.join("link")).unwrap();
        // The recursion of std would need more stack, and more descriptors than many systems allow.
        nest(&tree.join("uploads"), 1_500);
        let removed = std::thread::Builder::new().stack_size(64 << 10).spawn({
            let tree = tree.clone();
            move || remove(&tree, "ini", None, in_time())
        });
        removed.unwrap().join().unwrap().unwrap();
        assert!(!tree.exists() && other.join("kept").exists());
        symlink(&other, &tree).unwrap();
        assert!(remove(&tree, "ini", None, in_time()).is_err());
        assert!(other.join("kept").exists());
    }

    #[test]
    fn removal_ends_in_time_and_continues_later() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("ini")).unwrap();
        nest(&tree, 100);
        let error = remove(&tree, "ini", None, Instant::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(tree.join("ini").exists(), "it must be the last");
        remove(&tree, "ini", None, in_time()).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn directories_of_other_users_stay_with_their_content() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: not root");
            return;
        }
        const PHP: u32 = 4711;
        let chown = |path: &Path| std::os::unix::fs::chown(path, Some(PHP), None).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        let kept = tree.join("uploads/theirs/backups/deep");
        for made in [&kept, &tree.join("uploads/own/own"), &tree.join("ini")] {
            std::fs::create_dir_all(made).unwrap();
        }
        std::fs::write(kept.join("db.sql"), "").unwrap();
        std::fs::write(tree.join("uploads/own/own/roots"), "").unwrap();
        std::fs::write(tree.join("uploads/theirs/file"), "").unwrap();
        for owned in [
            "uploads",
            "uploads/theirs",
            "uploads/own",
            "uploads/own/own",
        ] {
            chown(&tree.join(owned));
        }
        for _ in 0..2 {
            assert!(remove(&tree, "ini", Some(&[PHP]), in_time()).is_err());
            let mut found = vec![tree.clone()];
            let mut files = Vec::new();
            while let Some(directory) = found.pop() {
                for entry in std::fs::read_dir(directory).unwrap() {
                    let path = entry.unwrap().path();
                    match path.is_dir() {
                        true => found.push(path),
                        false => files.push(path.file_name().unwrap().to_owned()),
                    }
                }
            }
            assert_eq!(files, ["db.sql"]);
            assert!(tree.join("ini").exists());
        }
        remove(&tree, "ini", None, in_time()).unwrap();
    }
}
