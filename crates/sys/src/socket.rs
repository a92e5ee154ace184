//! What is known of a connection without reading from it.

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};

/// Is it open, with nothing to read? Asked of the kernel: an event loop may not have heard yet.
pub fn is_silent(socket: &impl AsFd) -> bool {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    recv(socket.as_fd().as_raw_fd(), &mut [0], flags) == Err(Errno::EAGAIN)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn silence_ends_with_a_byte_or_with_the_other_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        assert!(is_silent(&ours));
        theirs.write_all(b"x").unwrap();
        assert!(!is_silent(&ours));
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(!is_silent(&ours));
    }
}
