//! Opens regular files that another user may have replaced by something that never answers.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::libc;

/// Opens a regular file, or `/dev/null`, to read it. Nothing else is opened: that alone can rewind
/// a tape, hang up a modem, or wake the writer of a FIFO. Does not wait for a lease.
pub fn open(path: &Path) -> io::Result<File> {
    let open = |path: &Path, flags| {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags).open(path)
    };
    let named = open(path, libc::O_PATH)?;
    let found = named.metadata()?;
    // Programs accept it as an empty file.
    let is_null = || found.file_type().is_char_device() && found.rdev() == libc::makedev(1, 3);
    match found.is_file() || is_null() {
        // Leads to the file that was inspected, whatever is at its path by now.
        true => open(
            Path::new(&format!("/proc/self/fd/{}", named.as_raw_fd())),
            libc::O_NONBLOCK,
        ),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Reads a regular file, at most this many bytes of it.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn file_that_is_not_regular_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, link) = (dir.path().join("fifo"), dir.path().join("link"));
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).unwrap();
        watch.add_watch(&fifo, AddWatchFlags::IN_OPEN).unwrap();
        assert!(open(&fifo).is_err() && open(&link).is_err());
        assert_eq!(watch.read_events().unwrap_err(), nix::errno::Errno::EAGAIN);
    }

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
