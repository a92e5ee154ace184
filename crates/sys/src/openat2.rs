//! Opens files so that neither a symbolic link nor `..` can lead outside the named path.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, faccessat};

use crate::trusted_path;

/// What the file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To read it. Never blocks, even on a FIFO without a writer.
    Read,
    /// To read its metadata. The file itself is not opened, so a device is not affected and no read
    /// permission is needed.
    Metadata,
}

impl Access {
    fn flags(self) -> OFlag {
        match self {
            Access::Read => {
                OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC
            }
            Access::Metadata => OFlag::O_PATH | OFlag::O_CLOEXEC,
        }
    }
}

/// Why a file could not be opened.
#[derive(Debug)]
pub enum OpenError {
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

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        match errno {
            // EINVAL: a NUL in the path.
            Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG | Errno::EINVAL => {
                OpenError::Missing
            }
            Errno::ELOOP | Errno::EXDEV => OpenError::Link,
            Errno::ENXIO | Errno::ENODEV => OpenError::Special,
            Errno::EACCES | Errno::EPERM => OpenError::Forbidden,
            Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => OpenError::Scarce(errno.into()),
            other => OpenError::Other(other.into()),
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Errno::from_raw(number).into(),
            None => OpenError::Other(error),
        }
    }
}

/// Whether the kernel supports what [`beneath`] and [`absolute`] need. Linux before 5.6 and some
/// sandboxes do not. Such a sandbox answers "permission denied", which must not be taken for a
/// file's permissions.
pub fn supported() -> bool {
    let how = how(Access::Metadata, ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(AT_FDCWD, "/", how).is_ok()
}

/// Opens a directory at an absolute path, to open files beneath it. No symbolic link is followed in
/// any component, because another user may be able to write to a directory of the path. An error if
/// this process may not enter the directory.
pub fn directory(path: &Path) -> io::Result<OwnedFd> {
    let enter = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    if !path.is_absolute() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut dir = nix::fcntl::open("/", enter, Mode::empty())?;
    for part in path.components() {
        match part {
            Component::RootDir => {}
            Component::Normal(name) => {
                dir = nix::fcntl::openat(&dir, name, enter, Mode::empty())?;
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    // Opening the directory itself takes no permission on it; opening `.` in it does.
    Ok(nix::fcntl::openat(&dir, ".", enter, Mode::empty())?)
}

/// Opens the relative `path` below `dir`. [`OpenError::Link`] if a symbolic link is on the path,
/// its last component included, or if the path leads out of `dir`.
pub fn beneath(dir: BorrowedFd<'_>, path: &Path, access: Access) -> Result<File, OpenError> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    again(|| openat2(dir, path, how(access, resolve)))
}

/// Opens the absolute `path`; [`OpenError::Link`] if a symbolic link is on it.
pub fn absolute(path: &Path, access: Access) -> Result<File, OpenError> {
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
pub fn absolute_without_openat2(path: &Path, access: Access) -> Result<File, OpenError> {
    // With O_PATH, O_NOFOLLOW opens the link itself; the caller recognises it by its metadata.
    let flags = access.flags() | OFlag::O_NOFOLLOW;
    again(|| nix::fcntl::open(path, flags, Mode::empty()))
}

fn how(access: Access, resolve: ResolveFlag) -> OpenHow {
    OpenHow::new().flags(access.flags()).resolve(resolve)
}

fn again(open: impl Fn() -> nix::Result<OwnedFd>) -> Result<File, OpenError> {
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

/// Opens a regular file at an absolute path to read it. No symbolic link is followed in any
/// component, on kernels without `openat2`, too, and a FIFO is not waited for.
pub fn regular(path: &Path) -> io::Result<File> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = directory(parent)?;
    let flags = Access::Read.flags() | OFlag::O_NOFOLLOW;
    let file = File::from(nix::fcntl::openat(&dir, name, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("the file is not regular")),
    }
}

/// The owner of what is at an absolute path, and the target if that is a symbolic link. No link is
/// followed, and both are of the same file even if another process exchanges it.
pub fn owner_and_target(path: &Path) -> io::Result<(u32, Option<PathBuf>)> {
    use std::os::unix::fs::MetadataExt;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = directory(parent)?;
    let flags = Access::Metadata.flags() | OFlag::O_NOFOLLOW;
    let file = File::from(nix::fcntl::openat(&dir, name, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    let target = match metadata.is_symlink() {
        true => Some(nix::fcntl::readlinkat(&file, "")?.into()),
        false => None,
    };
    Ok((metadata.uid(), target))
}

/// Opens a regular file to append to, and creates it if it is missing. Another user may be able to
/// write to a directory of the path. So symbolic links are followed as [`trusted_path::directory`]
/// does and the file itself must not be one, a FIFO is not waited for, and no terminal becomes the
/// controlling one. A file with a second hard link is rejected, and so is one that belongs neither
/// to this user nor to `owner`.
pub fn append_regular(path: &Path, owner: u32) -> io::Result<File> {
    let (dir, name) = directory_and_name(path)?;
    append(&dir, name, owner, OFlag::O_CREAT)
}

/// Whether [`append_regular`] would open the file. Creates nothing.
pub fn may_append_regular(path: &Path, owner: u32) -> io::Result<()> {
    let (dir, name) = directory_and_name(path)?;
    match append(&dir, name, owner, OFlag::empty()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let access = AccessFlags::W_OK | AccessFlags::X_OK;
            Ok(faccessat(&dir, ".", access, AtFlags::AT_EACCESS)?)
        }
        opened => opened.map(drop),
    }
}

fn directory_and_name(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    Ok((trusted_path::directory(parent, None)?.directory, name))
}

fn append(dir: &OwnedFd, name: &OsStr, owner: u32, create: OFlag) -> io::Result<File> {
    use std::os::unix::fs::MetadataExt;
    let flags = OFlag::O_WRONLY
        | OFlag::O_APPEND
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY
        | OFlag::O_CLOEXEC;
    let mode = Mode::from_bits_truncate(0o640);
    let file = File::from(nix::fcntl::openat(dir, name, flags | create, mode)?);
    let metadata = file.metadata()?;
    let denied = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    match metadata.uid() {
        _ if !metadata.is_file() => Err(io::Error::other("it is not a regular file")),
        _ if metadata.nlink() != 1 => Err(io::Error::other("it has a second hard link")),
        uid if uid == owner || uid == crate::process::uid() => Ok(file),
        uid => denied(format!("it belongs to another user ({uid})")),
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
        let dir = std::fs::create_dir_all(dir.join("in"))
            .and_then(|()| dir.canonicalize())
            .unwrap();
        std::fs::write(dir.join("in/file"), "x").unwrap();
        let _ = symlink("in", dir.join("link"));
        let _ = nix::unistd::mkfifo(&dir.join("fifo"), Mode::S_IRWXU);
        let fd = directory(&dir).unwrap();
        let open = |path: &str| beneath(fd.as_fd(), Path::new(path), Access::Read);

        assert!(directory(&dir.join("in")).is_ok());
        for wrong in ["link", "link/.", "in/file", "in/..", "none"] {
            assert!(directory(&dir.join(wrong)).is_err(), "{wrong}");
        }
        if supported() {
            assert!(open("in/file").is_ok());
            assert!(open("fifo").is_ok());
            assert!(matches!(open("in/none"), Err(OpenError::Missing)));
            assert!(matches!(open("in/file/below"), Err(OpenError::Missing)));
            assert!(matches!(open("link/file"), Err(OpenError::Link)));
            assert!(matches!(open("../x"), Err(OpenError::Link)));
            assert!(matches!(open("/etc/passwd"), Err(OpenError::Link)));
            assert!(matches!(
                absolute(&dir.join("link"), Access::Metadata),
                Err(OpenError::Link)
            ));
        }
        let looked = |path: &str| owner_and_target(&dir.join(path)).ok();
        let uid = crate::process::uid();
        assert_eq!(looked("link"), Some((uid, Some("in".into()))));
        assert_eq!(looked("in/file"), Some((uid, None)));
        assert_eq!(looked("link/file"), None);
        assert!(regular(&dir.join("in/file")).is_ok());
        for wrong in ["link", "link/file", "in", "fifo", "none", "in/../in/file"] {
            assert!(regular(&dir.join(wrong)).is_err(), "{wrong}");
        }
        assert!(matches!(
            absolute_without_openat2(&dir.join("link"), Access::Read),
            Err(OpenError::Link)
        ));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn log_is_opened_through_no_link_of_others_and_as_no_other_file() {
        let dir = std::env::temp_dir().join(format!("surus-sys-log-{}", std::process::id()));
        let dir = std::fs::create_dir_all(dir.join("logs"))
            .and_then(|()| dir.canonicalize())
            .unwrap();
        std::fs::write(dir.join("other"), "").unwrap();
        symlink("logs", dir.join("link")).unwrap();
        symlink("../other", dir.join("logs/link.log")).unwrap();
        std::fs::hard_link(dir.join("other"), dir.join("logs/hard.log")).unwrap();
        nix::unistd::mkfifo(&dir.join("logs/fifo.log"), Mode::S_IRWXU).unwrap();
        let uid = crate::process::uid();
        let open = |name: &str| append_regular(&dir.join(name), uid);
        let may_open = |name: &str| may_append_regular(&dir.join(name), uid).is_ok();
        assert!(may_open("logs/new.log") && !dir.join("logs/new.log").exists());
        for right in ["logs/new.log", "link/new.log", "link/../logs/new.log"] {
            assert!(open(right).is_ok() && may_open(right), "{right}");
        }
        for wrong in [
            "logs/link.log",
            "logs/hard.log",
            "logs/fifo.log",
            "none/new.log",
        ] {
            assert!(open(wrong).is_err() && !may_open(wrong), "{wrong}");
        }
        assert!(append_regular(Path::new("relative"), uid).is_err());
        if uid == 0 {
            let theirs = dir.join("logs/theirs.log");
            std::fs::write(&theirs, "").unwrap();
            std::os::unix::fs::chown(&theirs, Some(4711), None).unwrap();
            let error = append_regular(&theirs, 0).unwrap_err().to_string();
            assert_eq!(error, "it belongs to another user (4711)");
            assert!(append_regular(&theirs, 4711).is_ok());
            std::os::unix::fs::lchown(dir.join("link"), Some(4711), None).unwrap();
            let error = open("link/new.log").unwrap_err().to_string();
            assert!(error.contains("is a symbolic link that a user"), "{error}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
