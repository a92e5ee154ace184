//! Connection state that the kernel knows without a read from the socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};

/// Whether a connection is open and has nothing to read. Asks the kernel, because an event loop may
/// not have been told yet.
pub fn is_silent(socket: &impl AsFd) -> bool {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    recv(socket.as_fd().as_raw_fd(), &mut [0], flags) == Err(Errno::EAGAIN)
}

/// Connects to the unix socket at an absolute path without blocking: [`io::ErrorKind::WouldBlock`]
/// if its backlog is full. For root, an error for a symbolic link that another user could have
/// placed: such a user could have a connection of root's to any socket.
pub fn connect_at_once(path: &std::path::Path) -> io::Result<OwnedFd> {
    let found = crate::trusted_path::any(path)?;
    // Leads to the socket that was found, whatever is at its path by now.
    let address = format!("/proc/self/fd/{}", found.as_raw_fd());
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(address.as_str())?)?;
    Ok(socket)
}

/// Sets how long close(2) waits until the data in a socket is sent; None: not at all. Does nothing
/// for other descriptors.
pub fn set_linger(fd: &impl AsFd, wait: Option<std::time::Duration>) {
    let linger = nix::libc::linger {
        l_onoff: wait.is_some().into(),
        l_linger: wait.map_or(0, |wait| wait.as_secs().try_into().unwrap_or(i32::MAX)),
    };
    let _ = nix::sys::socket::setsockopt(&fd.as_fd(), nix::sys::socket::sockopt::Linger, &linger);
}

/// Sets how many connections may wait to be accepted by a listening socket.
pub fn set_backlog(socket: &impl AsFd, connections: i32) -> io::Result<()> {
    use nix::sys::socket::{Backlog, listen};
    listen(
        &socket.as_fd(),
        Backlog::new(connections).unwrap_or(Backlog::MAXCONN),
    )?;
    Ok(())
}

/// Sets how many bytes a socket keeps that were not read or sent yet; the kernel may allow less.
pub fn set_buffers(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt};
    setsockopt(&socket.as_fd(), sockopt::RcvBuf, &bytes)?;
    setsockopt(&socket.as_fd(), sockopt::SndBuf, &bytes)?;
    Ok(())
}

/// Rejects further data on a unix socket: from now on the other end's writes fail (EPIPE), but it
/// can still read.
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
    fn silent_socket_is_reported_until_a_byte_or_a_close() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        assert!(is_silent(&ours));
        theirs.write_all(b"x").unwrap();
        assert!(!is_silent(&ours));
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(!is_silent(&ours));
    }

    #[test]
    fn socket_that_rejects_data_can_still_be_read() {
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
