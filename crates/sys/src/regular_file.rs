//! Opens regular files that another user may have replaced by something that never answers.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::libc;

/// Opens a regular file, or `/dev/null`, to read it. Does not wait for the writer of a FIFO or for
/// a lease, and makes no terminal the controlling one.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    let found = file.metadata()?;
    // Programs accept it as an empty file.
    let is_null = || found.file_type().is_char_device() && found.rdev() == libc::makedev(1, 3);
    match found.is_file() || is_null() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Reads a regular file, at most this many bytes of it.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn file_that_is_not_regular_is_rejected_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let (file, fifo) = (dir.path().join("file"), dir.path().join("fifo"));
        std::fs::write(&file, "content").unwrap();
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        assert_eq!(read(&file, 4).unwrap(), b"cont");
        assert!(open(Path::new("/dev/null")).is_ok());
        for wrong in [
            &fifo,
            dir.path(),
            &dir.path().join("socket"),
            Path::new("/dev/zero"),
            Path::new("/dev/ptmx"),
        ] {
            assert!(open(wrong).is_err(), "{}", wrong.display());
        }
    }
}
