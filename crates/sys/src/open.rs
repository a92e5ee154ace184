//! Opens files so that neither a symbolic link nor `..` can lead outside the named path.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;

/// What the file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To read it. Never blocks, even on a FIFO without a writer.
    Read,
    /// To read its metadata. The file itself is not opened, so a device is not affected and no read
    /// permission is needed.
    Look,
}

impl Access {
    fn flags(self) -> OFlag {
        match self {
            Access::Read => {
                OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC
            }
            Access::Look => OFlag::O_PATH | OFlag::O_CLOEXEC,
        }
    }
}

/// Why a file could not be opened.
#[derive(Debug)]
pub enum Refused {
    /// The file or a directory above it does not exist, or the name is too long.
    Missing,
    /// A symbolic link is on the path.
    Link,
    /// A socket, or a device without a driver.
    Special,
    /// Permission denied.
    Forbidden,
    /// Too many open files, or out of memory: nothing can be opened at the moment.
    Scarce(io::Error),
    /// Anything else, such as a failing disk.
    Other(io::Error),
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        match errno {
            // EINVAL: a NUL in the path.
            Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG | Errno::EINVAL => {
                Refused::Missing
            }
            Errno::ELOOP | Errno::EXDEV => Refused::Link,
            Errno::ENXIO | Errno::ENODEV => Refused::Special,
            Errno::EACCES | Errno::EPERM => Refused::Forbidden,
            Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => Refused::Scarce(errno.into()),
            other => Refused::Other(other.into()),
        }
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Errno::from_raw(number).into(),
            None => Refused::Other(error),
        }
    }
}

/// Whether the kernel supports what [`beneath`] and [`exactly`] need. Linux before 5.6 and some
/// sandboxes do not. Such a sandbox answers "permission denied", which must not be taken for a
/// file's permissions.
pub fn supported() -> bool {
    let how = how(Access::Look, ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(AT_FDCWD, "/", how).is_ok()
}

/// A directory, to open files beneath.
pub fn directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(nix::fcntl::open(path, flags, Mode::empty())?)
}

/// Opens the relative `path` below `dir`. [`Refused::Link`] if a symbolic link is on the path, its
/// last component included, or if the path leads out of `dir`.
pub fn beneath(dir: BorrowedFd<'_>, path: &Path, access: Access) -> Result<File, Refused> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    again(|| openat2(dir, path, how(access, resolve)))
}

/// Opens the absolute `path`; [`Refused::Link`] if a symbolic link is on it.
pub fn exactly(path: &Path, access: Access) -> Result<File, Refused> {
    again(|| {
        openat2(
            AT_FDCWD,
            path,
            how(access, ResolveFlag::RESOLVE_NO_SYMLINKS),
        )
    })
}

/// Opens the absolute `path` on a kernel without `openat2`. Only the last component is checked for
/// a symbolic link.
pub fn loosely(path: &Path, access: Access) -> Result<File, Refused> {
    // With O_PATH, O_NOFOLLOW opens the link itself; the caller recognises it by its metadata.
    let flags = access.flags() | OFlag::O_NOFOLLOW;
    again(|| nix::fcntl::open(path, flags, Mode::empty()))
}

fn how(access: Access, resolve: ResolveFlag) -> OpenHow {
    OpenHow::new().flags(access.flags()).resolve(resolve)
}

fn again(open: impl Fn() -> nix::Result<OwnedFd>) -> Result<File, Refused> {
    let mut tries = 0;
    loop {
        match open() {
            // A network file system may be interrupted, and a concurrent rename makes `openat2` ask
            // for another try. The number of tries is limited because a lease on the file gives the
            // same error.
            Err(Errno::EINTR | Errno::EAGAIN) if tries < 16 => tries += 1,
            Err(errno) => return Err(errno.into()),
            Ok(fd) => return Ok(File::from(fd)),
        }
    }
}

/// Opens a regular file to append to, and creates it if it is missing. The name may now belong to
/// another user. So a link as the last component is not followed, a FIFO is not waited for, and no
/// terminal becomes the controlling one.
pub fn append_regular(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no longer a regular file")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn link_or_dots_on_the_path_are_rejected_without_blocking() {
        let dir = std::env::temp_dir().join(format!("surus-sys-open-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("in")).unwrap();
        std::fs::write(dir.join("in/file"), "x").unwrap();
        let _ = symlink("in", dir.join("link"));
        let _ = nix::unistd::mkfifo(&dir.join("fifo"), Mode::S_IRWXU);
        let fd = directory(&dir).unwrap();
        let open = |path: &str| beneath(fd.as_fd(), Path::new(path), Access::Read);

        if supported() {
            assert!(open("in/file").is_ok());
            assert!(open("fifo").is_ok());
            assert!(matches!(open("in/none"), Err(Refused::Missing)));
            assert!(matches!(open("in/file/below"), Err(Refused::Missing)));
            assert!(matches!(open("link/file"), Err(Refused::Link)));
            assert!(matches!(open("../x"), Err(Refused::Link)));
            assert!(matches!(open("/etc/passwd"), Err(Refused::Link)));
            assert!(matches!(
                exactly(&dir.join("link"), Access::Look),
                Err(Refused::Link)
            ));
        }
        assert!(matches!(
            loosely(&dir.join("link"), Access::Read),
            Err(Refused::Link)
        ));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
