//! Creates and removes the file of a unix socket in a directory that another user may be able to
//! write to.
//!
//! That user can replace the file, or a directory above it, by a link at any time. The directory is
//! therefore opened once, through links that only root or this user has created. Afterwards nothing
//! is changed by path.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::fcntl::AtFlags;
use nix::libc;
use nix::sys::stat::{FileStat, Mode, fstatat, umask};
use nix::unistd::{Gid, UnlinkatFlags, setfsgid, unlinkat};

use crate::trusted_path;

/// The location of a socket's file, which may not exist yet.
#[derive(Debug)]
pub struct SocketPath {
    directory: OwnedFd,
    name: OsString,
    /// The path to bind and to connect to. It leads into the opened directory even if the directory
    /// has been replaced since.
    address: PathBuf,
}

impl SocketPath {
    /// Opens the directory of an absolute path. Missing directories are created with the mode
    /// `missing`, if it is set.
    pub fn open(path: &Path, missing: Option<u32>) -> io::Result<SocketPath> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let opened = trusted_path::directory(parent, missing)?;
        let directory = opened.directory;
        // Binds by the configured path where that is safe, because ss(8) shows it.
        let address = match opened.is_fixed {
            true => path.to_owned(),
            false => Path::new(&format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name),
        };
        Ok(SocketPath {
            directory,
            name: name.to_owned(),
            address,
        })
    }

    /// Connects to the socket.
    pub fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(&self.address)
    }

    /// The socket at this location; `None` if there is no file or another one.
    pub fn find(&self) -> io::Result<Option<SocketFile>> {
        let Some(id) = socket_id(&self.directory, self.name.as_ref()) else {
            return Ok(None);
        };
        Ok(Some(SocketFile {
            directory: self.directory.try_clone()?,
            name: self.name.clone(),
            id,
        }))
    }

    /// Creates a listening socket whose file has this mode and group from the start. A setgid bit
    /// or a default access list of the directory has precedence. Changes the umask of the process
    /// temporarily.
    pub fn listen(&self, mode: Option<u32>, group: Option<u32>) -> io::Result<UnixListener> {
        let group = group.map(Gid::from_raw);
        let old_group = group.map(setfsgid);
        // setfsgid reports no error, but returns the previous group.
        let bound = match group.is_none_or(|group| setfsgid(group) == group) {
            true => {
                let old_mask = mode.map(|mode| umask(Mode::from_bits_truncate(!mode & 0o777)));
                // bind(2) does not follow a link in the last component.
                let bound = UnixListener::bind(&self.address);
                old_mask.map(umask);
                bound
            }
            false => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "cannot create files of the socket's group; that needs the capability CAP_SETGID",
            )),
        };
        old_group.map(setfsgid);
        bound
    }
}

/// A socket's file. It is only removed if it has not been replaced.
#[derive(Debug)]
pub struct SocketFile {
    directory: OwnedFd,
    name: OsString,
    /// Device and inode.
    id: (libc::dev_t, libc::ino_t),
}

impl SocketFile {
    /// Removes the file, unless it has been replaced by another one.
    pub fn remove(&self) -> io::Result<()> {
        if socket_id(&self.directory, self.name.as_ref()) == Some(self.id) {
            unlinkat(
                &self.directory,
                self.name.as_os_str(),
                UnlinkatFlags::NoRemoveDir,
            )?;
        }
        Ok(())
    }
}

/// The descriptor of its directory, without which a forked process cannot remove it.
impl AsFd for SocketFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// The device and inode of a socket.
fn socket_id(directory: &OwnedFd, name: &Path) -> Option<(libc::dev_t, libc::ino_t)> {
    let found: FileStat = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
    let is_socket = found.st_mode & libc::S_IFMT == libc::S_IFSOCK;
    is_socket.then_some((found.st_dev, found.st_ino))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn socket_file_has_its_mode_and_group_from_creation_on() {
        let dir = std::env::temp_dir().join(format!("surus-sys-socket-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let group = (crate::process::uid() == 0).then_some(4711);
        for mode in [0o600, 0o660, 0o666, 0o777] {
            let path = dir.join(format!("{mode:o}"));
            let place = SocketPath::open(&path, None).unwrap();
            let _listener = place.listen(Some(mode), group).unwrap();
            let metadata = std::fs::metadata(&path).unwrap();
            assert_eq!(metadata.mode() & 0o777, mode);
            assert!(group.is_none_or(|group| metadata.gid() == group));
            // Files that are created later are not affected.
            std::fs::write(dir.join("file"), "").unwrap();
            let metadata = std::fs::metadata(dir.join("file")).unwrap();
            assert!(metadata.gid() != 4711 && metadata.mode() & 0o111 == 0);
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn file_that_replaced_a_socket_is_not_removed() {
        let dir = std::env::temp_dir().join(format!("surus-sys-replaced-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("in")).unwrap();
        let path = dir.join("in/socket");
        let place = SocketPath::open(&path, None).unwrap();
        let _listener = place.listen(None, None).unwrap();
        let file = place.find().unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        file.remove().unwrap();
        assert!(path.exists());
        assert!(place.find().unwrap().is_none());
        std::fs::remove_file(&path).unwrap();
        // The directory is replaced by a link.
        let _listener = place.listen(None, None).unwrap();
        let file = place.find().unwrap().unwrap();
        std::fs::create_dir(dir.join("other")).unwrap();
        std::fs::write(dir.join("other/socket"), "").unwrap();
        std::fs::rename(dir.join("in"), dir.join("was")).unwrap();
        symlink("other", dir.join("in")).unwrap();
        file.remove().unwrap();
        assert!(dir.join("other/socket").exists() && !dir.join("was/socket").exists());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
