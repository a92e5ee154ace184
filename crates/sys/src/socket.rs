//! What is known of a connection without reading from it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};

/// Is it open, with nothing to read? Asked of the kernel: an event loop may not have heard yet.
pub fn is_silent(socket: &impl AsFd) -> bool {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    recv(socket.as_fd().as_raw_fd(), &mut [0], flags) == Err(Errno::EAGAIN)
}

/// Connects to a unix socket at once or not at all: [`io::ErrorKind::WouldBlock`] where too many wait to be accepted.
pub fn connect_at_once(path: &std::path::Path) -> io::Result<OwnedFd> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

/// How many connections may wait to be accepted at a socket that listens.
pub fn set_backlog(socket: &impl AsFd, connections: i32) -> io::Result<()> {
    use nix::sys::socket::{Backlog, listen};
    listen(
        &socket.as_fd(),
        Backlog::new(connections).unwrap_or(Backlog::MAXCONN),
    )?;
    Ok(())
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
