//! Opens directories and files, and follows only symbolic links that root or this user has created.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, fstat, mkdirat};

/// An opened directory, and whether its path is safe.
#[derive(Debug)]
pub struct Opened {
    /// The directory.
    pub directory: OwnedFd,
    /// Whether no other user can make the path lead elsewhere. Always true for a process that is
    /// not root, or root of a namespace without other users, because it has only one user's rights.
    pub is_fixed: bool,
}

/// The kernel's limit of links (path_resolution(7)).
const MAX_LINKS: usize = 40;

const ENTER: OFlag = OFlag::O_PATH
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);

/// Opens the directory at an absolute path. For root, fails on a symbolic link that another user
/// could have created: that user could make root create and remove files anywhere. Directories of
/// another user are accepted, because that user cannot place a directory there without having write
/// access to it. Missing directories are created with the mode `missing`, if it is set.
pub fn directory(path: &Path, missing: Option<u32>) -> io::Result<Opened> {
    let (found, is_fixed) = walk(path, missing)?;
    let is_fixed = is_fixed && (!crate::process::has_other_users() || is_trusted(&fstat(&found)?));
    // Fails if it is not a directory.
    let directory = openat(&found, ".", ENTER, Mode::empty())?;
    Ok(Opened {
        directory,
        is_fixed,
    })
}

/// Opens any file at an absolute path without access to its content (`O_PATH`). Rejects the same
/// links for root as [`directory`].
pub fn any(path: &Path) -> io::Result<OwnedFd> {
    Ok(walk(path, None)?.0)
}

/// Whether no user but root and this one can replace the file at an absolute path.
pub fn is_fixed(path: &Path) -> io::Result<bool> {
    Ok(walk(path, None)?.1)
}

/// Whether no user but root and this one decides what is at an absolute path: none can replace or
/// write to what exists, or create what is missing. A device counts as what its driver makes of it.
pub fn is_protected(path: &Path) -> bool {
    let is_guarded = |found: &FileStat| {
        let is_file = [libc::S_IFREG, libc::S_IFDIR].contains(&(found.st_mode & libc::S_IFMT));
        is_owner_trusted(found) && !(is_file && found.st_mode & 0o022 != 0)
    };
    for existing in path.ancestors() {
        match walk(existing, None) {
            Ok((found, is_fixed)) => {
                return is_fixed && fstat(&found).is_ok_and(|found| is_guarded(&found));
            }
            // A link to a missing file is not trusted: another user may create that file.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !existing.is_symlink() => {}
            Err(_) => return false,
        }
    }
    false
}

/// Opens the file at a path. Returns whether no other user can replace it.
fn walk(path: &Path, missing: Option<u32>) -> io::Result<(OwnedFd, bool)> {
    const LOOK: OFlag = OFlag::O_PATH
        .union(OFlag::O_NOFOLLOW)
        .union(OFlag::O_CLOEXEC);
    if !path.is_absolute() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let root = || open("/", ENTER, Mode::empty());
    let is_root = crate::process::has_other_users();
    let (mut directory, mut shown) = (root()?, PathBuf::from("/"));
    let mut is_fixed = true;
    let mut links = 0;
    let mut left = Vec::new();
    push(&mut left, path);
    while let Some(name) = left.pop() {
        is_fixed &= !is_root || is_trusted(&fstat(&directory)?);
        let opened = openat(&directory, name.as_os_str(), LOOK, Mode::empty());
        let next = match (opened, missing) {
            (Err(Errno::ENOENT), Some(mode)) => {
                match mkdirat(&directory, name.as_os_str(), Mode::from_bits_truncate(mode)) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                openat(&directory, name.as_os_str(), LOOK, Mode::empty())?
            }
            (opened, _) => opened?,
        };
        let found = fstat(&next)?;
        if found.st_mode & libc::S_IFMT != libc::S_IFLNK {
            shown.push(&name);
            directory = next;
            continue;
        }
        if is_root && !(is_fixed && is_owner_trusted(&found)) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "{} is a symbolic link that a user other than root can replace; name what \
                     it leads to, or let only root write to {}",
                    shown.join(&name).display(),
                    shown.display()
                ),
            ));
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::ELOOP.into());
        }
        // Without a name, this reads the link that was inspected.
        let target = PathBuf::from(readlinkat(&next, "")?);
        if target.is_absolute() {
            (directory, shown) = (root()?, PathBuf::from("/"));
        }
        push(&mut left, &target);
    }
    Ok((directory, is_fixed))
}

/// Pushes the components of a path, so that the first is on top.
fn push(stack: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    stack.extend(parts);
}

/// Whether only root and this user can replace their entries in a directory.
fn is_trusted(directory: &FileStat) -> bool {
    let is_shared = directory.st_mode & 0o022 != 0 && directory.st_mode & libc::S_ISVTX == 0;
    is_owner_trusted(directory) && !is_shared
}

fn is_owner_trusted(found: &FileStat) -> bool {
    found.st_uid == 0 || found.st_uid == crate::process::uid()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    /// The inode of a directory opened by path.
    fn inode(path: &Path) -> io::Result<(u64, bool)> {
        let opened = directory(path, None)?;
        Ok((fstat(&opened.directory)?.st_ino, opened.is_fixed))
    }

    #[test]
    fn links_are_followed_as_the_kernel_does() {
        let dir = std::env::temp_dir().join(format!("surus-sys-trusted-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        let dir = dir.canonicalize().unwrap();
        std::fs::write(dir.join("file"), "").unwrap();
        symlink("a", dir.join("relative")).unwrap();
        symlink(dir.join("relative/b"), dir.join("a/absolute")).unwrap();
        symlink("loop", dir.join("loop")).unwrap();
        let expected = std::fs::metadata(dir.join("a/b")).unwrap().ino();
        for path in [
            "a/b",
            "relative/b",
            "relative/absolute",
            "relative/absolute/../absolute/.",
        ] {
            assert_eq!(inode(&dir.join(path)).unwrap(), (expected, true), "{path}");
        }
        for path in ["file", "file/x", "none", "loop", "loop/x"] {
            assert!(inode(&dir.join(path)).is_err(), "{path}");
        }
        let file = std::fs::metadata(dir.join("file")).unwrap().ino();
        let found = any(&dir.join("relative/../file")).unwrap();
        assert_eq!(fstat(&found).unwrap().st_ino, file);
        assert!(any(&dir.join("none")).is_err() && any(&dir.join("file/x")).is_err());
        assert!(inode(Path::new("relative")).is_err());
        let made = directory(&dir.join("a/new/deep"), Some(0o700)).unwrap();
        assert!(made.is_fixed);
        let mode = std::fs::metadata(dir.join("a/new/deep")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn link_that_another_user_can_replace_is_rejected_for_root() {
        if !crate::process::is_root() {
            return;
        }
        let dir = std::env::temp_dir().join(format!("surus-sys-others-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        let dir = dir.canonicalize().unwrap();
        symlink("b", dir.join("a/link")).unwrap();
        let set = |mode, owner| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(dir.join("a"), permissions).unwrap();
            std::os::unix::fs::chown(dir.join("a"), Some(owner), None).unwrap();
        };
        for (mode, owner, link, is_followed, is_fixed) in [
            (0o755, 0, 0, true, true),
            (0o755, 0, 4711, false, true),
            (0o1777, 0, 0, true, true),
            (0o1777, 0, 4711, false, true),
            (0o777, 0, 0, false, false),
            (0o775, 0, 0, false, false),
            (0o755, 4711, 0, false, false),
        ] {
            set(mode, owner);
            std::os::unix::fs::lchown(dir.join("a/link"), Some(link), None).unwrap();
            let by_link = inode(&dir.join("a/link"));
            assert_eq!(by_link.is_ok(), is_followed, "{mode:o} {owner} {link}");
            assert_eq!(any(&dir.join("a/link")).is_ok(), is_followed, "{mode:o}");
            assert!(any(&dir.join("a/b")).is_ok());
            let (_, found) = inode(&dir.join("a/b")).unwrap();
            assert_eq!(found, is_fixed, "{mode:o} {owner}");
            // A user who may create files in a directory decides what is there.
            let is_guarded = is_fixed && mode & 0o022 == 0;
            assert_eq!(
                is_protected(&dir.join("a/none/x")),
                is_guarded,
                "{mode:o} {owner}"
            );
            assert_eq!(is_protected(&dir.join("a/b")), is_fixed, "{mode:o} {owner}");
            assert_eq!(is_protected(&dir.join("a")), is_guarded, "{mode:o} {owner}");
        }
        set(0o755, 0);
        symlink("none", dir.join("a/dangling")).unwrap();
        std::fs::write(dir.join("a/theirs"), "").unwrap();
        std::os::unix::fs::chown(dir.join("a/theirs"), Some(4711), None).unwrap();
        for wrong in ["a/dangling", "a/dangling/x", "a/theirs", "a/theirs/x"] {
            assert!(!is_protected(&dir.join(wrong)), "{wrong}");
        }
        assert!(is_protected(Path::new("/dev/null")) && is_protected(Path::new("/")));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
