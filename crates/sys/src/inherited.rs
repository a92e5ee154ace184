//! Sockets that a service manager has opened for this process (sd_listen_fds(3)).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, SockType, SockaddrLike, SockaddrStorage, getsockname, getsockopt, sockopt,
};

/// The number of the first one.
const FIRST: RawFd = 3;

/// More are not plausible.
const MOST: RawFd = 4096;

/// A socket of the service manager.
#[derive(Debug)]
pub struct InheritedSocket {
    /// The socket.
    pub fd: OwnedFd,
    /// What `FileDescriptorName=` of its unit says.
    pub name: String,
    /// Its kind.
    pub kind: InheritedKind,
}

/// What an inherited socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InheritedKind {
    /// A listening socket of TCP.
    Tcp,
    /// A listening unix socket for streams.
    Unix,
    /// A socket of UDP.
    Udp,
    /// Something else, such as a connection.
    Other,
}

/// The variables of the environment that describe inherited sockets.
#[derive(Debug, Clone, Copy)]
struct ListenVariables<'a> {
    pid: Option<&'a str>,
    count: Option<&'a str>,
    names: Option<&'a str>,
}

impl ListenVariables<'_> {
    /// The names of the sockets that are for a process.
    fn names_for(&self, process: u32) -> io::Result<Vec<String>> {
        // A process that has inherited the variables, but not the sockets.
        if self.pid.and_then(|pid| pid.trim().parse().ok()) != Some(process) {
            return Ok(Vec::new());
        }
        let count = self.count.unwrap_or_default();
        let is_number = |count: &RawFd| (0..=MOST).contains(count);
        let parsed = count.trim().parse().ok().filter(is_number);
        let Some(count) = parsed else {
            let error = format!("LISTEN_FDS is {count:?}, which is not a number of sockets");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        };
        let mut names = self.names.unwrap_or_default().split(':');
        let names = (0..count).map(|_| names.next().unwrap_or_default().to_owned());
        Ok(names.collect())
    }
}

/// Takes the sockets that the environment says are for this process, once: a second call finds
/// none. No other process inherits them.
pub fn take() -> io::Result<Vec<InheritedSocket>> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    if IS_TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    let [pid, count, names] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"]
        .map(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()));
    let described = ListenVariables {
        pid: pid.as_deref(),
        count: count.as_deref(),
        names: names.as_deref(),
    };
    let names = described.names_for(std::process::id())?;
    (FIRST..)
        .zip(names)
        .map(|(number, name)| own(number, name))
        .collect()
}

/// Takes the ownership of a descriptor that must be a socket.
fn own(number: RawFd, name: String) -> io::Result<InheritedSocket> {
    // SAFETY: fstat(2) fills the structure, or fails for a number that is not open.
    let is_socket = unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        libc::fstat(number, &raw mut found) == 0 && found.st_mode & libc::S_IFMT == libc::S_IFSOCK
    };
    if !is_socket {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("descriptor {number} (LISTEN_FDS) is not a socket"),
        ));
    }
    // SAFETY: the service manager has opened it for this process, as LISTEN_PID says. Before this
    // call the process has opened no socket itself, and a second call takes nothing.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    let flags = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC);
    nix::fcntl::fcntl(&fd, flags)?;
    let kind = kind(&fd)?;
    Ok(InheritedSocket { fd, name, kind })
}

fn kind(fd: &OwnedFd) -> Result<InheritedKind, Errno> {
    let address: SockaddrStorage = getsockname(fd.as_raw_fd())?;
    let is_listening = getsockopt(fd, sockopt::AcceptConn)?;
    let is_ip = |family| matches!(family, AddressFamily::Inet | AddressFamily::Inet6);
    let family = address.family();
    Ok(match (getsockopt(fd, sockopt::SockType)?, family) {
        (SockType::Stream, Some(family)) if is_ip(family) && is_listening => InheritedKind::Tcp,
        (SockType::Stream, Some(AddressFamily::Unix)) if is_listening => InheritedKind::Unix,
        (SockType::Datagram, Some(family)) if is_ip(family) => InheritedKind::Udp,
        _ => InheritedKind::Other,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    use super::*;

    #[test]
    fn sockets_of_another_process_are_left_alone() {
        let of = |pid, count, names| {
            let described = ListenVariables { pid, count, names };
            described.names_for(42).map_err(|error| error.to_string())
        };
        assert_eq!(of(None, None, None), Ok(vec![]));
        assert_eq!(of(Some("41"), Some("1"), None), Ok(vec![]));
        assert_eq!(of(Some("x"), Some("x"), None), Ok(vec![]));
        assert_eq!(of(Some("42"), Some("0"), None), Ok(vec![]));
        let names = of(Some("42"), Some("3"), Some("http:https")).unwrap();
        assert_eq!(names, ["http", "https", ""]);
        for count in [None, Some(""), Some("-1"), Some("x"), Some("99999")] {
            let error = of(Some("42"), count, None).unwrap_err();
            assert!(error.contains("LISTEN_FDS"), "{error}");
        }
    }

    #[test]
    fn kinds_of_sockets_are_distinguished() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let name = format!("surus-sys-inherited-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let unix = UnixListener::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let pair = UnixStream::pair().unwrap();
        let all: [(OwnedFd, InheritedKind); 7] = [
            (tcp.into(), InheritedKind::Tcp),
            (
                TcpListener::bind("[::1]:0").unwrap().into(),
                InheritedKind::Tcp,
            ),
            (unix.into(), InheritedKind::Unix),
            (
                UdpSocket::bind("127.0.0.1:0").unwrap().into(),
                InheritedKind::Udp,
            ),
            (client.into(), InheritedKind::Other),
            (pair.0.into(), InheritedKind::Other),
            (
                UnixDatagram::unbound().unwrap().into(),
                InheritedKind::Other,
            ),
        ];
        for (fd, expected) in all {
            assert_eq!(kind(&fd), Ok(expected), "{fd:?}");
        }
    }
}
