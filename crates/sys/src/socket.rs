//! What is known of a connection without reading from it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};

/// Is it open, with nothing to read? Asked of the kernel: an event loop may not have heard yet.
pub fn is_silent(socket: &impl AsFd) -> bool {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    recv(socket.as_fd().as_raw_fd(), &mut [0], flags) == Err(Errno::EAGAIN)
}

/// Whoever writes at the other end of a unix socket fails from now on (EPIPE), but can still read.
pub fn refuse_more(socket: &impl AsFd) -> io::Result<()> {
    shutdown(socket.as_fd().as_raw_fd(), Shutdown::Read)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
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

    #[test]
    fn who_refuses_more_can_still_be_read() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        refuse_more(&ours).unwrap();
        assert_eq!(
            theirs.write(b"x").unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
        ours.write_all(b"y").unwrap();
        let mut read = [0];
        theirs.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"y");
    }
}
