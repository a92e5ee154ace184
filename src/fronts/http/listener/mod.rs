//! Listening sockets: binding, permissions, and the removal of socket files.

pub(crate) mod accept;
pub(crate) mod connection_limit;
pub mod proxy_protocol;
pub(crate) mod quic;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use surus_sys::socket_file;
use tokio::net::{TcpListener, UnixListener};

use crate::fronts::address::Address;

/// The permissions of a unix socket as an octal number: `0660`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketMode(pub u32);

impl FromStr for SocketMode {
    type Err = String;

    fn from_str(text: &str) -> Result<SocketMode, String> {
        let is_octal = text.len() <= 4 && text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
        u32::from_str_radix(text, 8)
            .ok()
            .filter(|mode| is_octal && *mode <= 0o777)
            .map(SocketMode)
            .ok_or_else(|| {
                format!("`{text}` is not a file mode; write it as octal text, as `\"0660\"`")
            })
    }
}

impl<'de> Deserialize<'de> for SocketMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SocketMode, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl Serialize for SocketMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:04o}", self.0))
    }
}

/// A bound address.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A socket's file. The process that has made it removes it; one that is forked from it does not.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// None if another value removes it.
    made: Option<socket_file::SocketFile>,
    maker: u32,
}

impl SocketFile {
    fn new(path: PathBuf, made: Option<socket_file::SocketFile>) -> SocketFile {
        let maker = std::process::id();
        SocketFile { path, made, maker }
    }

    /// The descriptor without which a forked process cannot remove the file.
    pub fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.made.as_ref().map(AsFd::as_fd)
    }

    /// Removes the file, also in a forked process.
    pub fn remove(&self) {
        if let Some(file) = &self.made {
            let _ = file.remove();
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.maker == std::process::id() {
            self.remove();
        }
    }
}

/// The permissions of a unix socket. Without a mode, the umask applies; without a group, the
/// process's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Admission {
    pub mode: Option<SocketMode>,
    pub group: Option<u32>,
}

/// A bound address that is not registered with a runtime yet.
#[derive(Debug)]
pub enum Bound {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, SocketFile),
}

/// The bytes that a UDP socket keeps for all its clients.
const UDP_BUFFER: usize = 4 << 20;

/// The number of connections that may wait to be accepted; the kernel may allow less.
const BACKLOG: i32 = 4096;

impl Bound {
    /// Binds an address, which comes from `setting`. A unix socket without a listening process is
    /// replaced.
    pub fn bind(address: &Address, setting: &str, admission: Admission) -> anyhow::Result<Bound> {
        let bound = match address {
            Address::Tcp(address) => {
                let listener = std::net::TcpListener::bind(address)
                    .map_err(|error| bind_error(error, *address, setting))?;
                surus_sys::socket::set_backlog(&listener, BACKLOG)
                    .map_err(|error| bind_error(error, *address, setting))?;
                listener.set_nonblocking(true)?;
                Bound::Tcp(listener)
            }
            Address::Unix(path) => {
                let cannot = || {
                    format!(
                        "cannot make the socket {} ({setting}); its directory must exist and be \
                            writable",
                        path.display()
                    )
                };
                let socket_path = socket_file::SocketPath::open(path, None).with_context(cannot)?;
                if let Ok(Some(found)) = socket_path.find() {
                    if socket_path.connect().is_ok() {
                        bail!(
                            "cannot listen on unix:{}: another process does; end it, or choose \
                             another address with {setting}",
                            path.display()
                        );
                    }
                    found.remove().with_context(|| {
                        format!("cannot remove the abandoned socket {}", path.display())
                    })?;
                }
                let Admission { mode, group } = admission;
                let mode = mode.map(|SocketMode(mode)| mode);
                let listener = socket_path.listen(mode, group).with_context(cannot)?;
                let file = SocketFile::new(path.clone(), socket_path.find().ok().flatten());
                let _ = surus_sys::socket::set_backlog(&listener, BACKLOG);
                listener.set_nonblocking(true)?;
                Bound::Unix(listener, file)
            }
        };
        Ok(bound)
    }

    /// A listening socket that this process has inherited. Its file, if it has one, is not this
    /// process's to remove.
    pub fn inherited(fd: OwnedFd, is_unix: bool) -> anyhow::Result<(Address, Bound)> {
        if !is_unix {
            let listener = std::net::TcpListener::from(fd);
            listener.set_nonblocking(true)?;
            let address = Address::Tcp(listener.local_addr()?);
            return Ok((address, Bound::Tcp(listener)));
        }
        let listener = std::os::unix::net::UnixListener::from(fd);
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let path = address.as_pathname();
        let path = path.context("the unix socket has no path; name a path in ListenStream=")?;
        let file = SocketFile::new(path.to_path_buf(), None);
        Ok((Address::Unix(path.into()), Bound::Unix(listener, file)))
    }

    /// Binds the UDP socket of HTTP/3 at the address of one of TLS.
    pub fn bind_udp(address: SocketAddr) -> io::Result<UdpSocket> {
        UdpSocket::bind(address).and_then(Bound::prepare_udp)
    }

    /// Makes a UDP socket one for many clients.
    pub fn prepare_udp(socket: UdpSocket) -> io::Result<UdpSocket> {
        // The kernel may allow less.
        let _ = surus_sys::socket::set_buffers(&socket, UDP_BUFFER);
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// The address of a TCP socket.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Bound::Tcp(listener) => listener.local_addr().ok(),
            Bound::Unix(..) => None,
        }
    }

    /// Binds an address for TCP, and the same one with the same port for UDP.
    pub fn bind_with_udp(address: &Address, setting: &str) -> anyhow::Result<(Bound, UdpSocket)> {
        // Another process may have the port of UDP that the kernel has selected for TCP.
        let mut attempts = 10;
        loop {
            let bound = Bound::bind(address, setting, Admission::default())?;
            let Bound::Tcp(listener) = &bound else {
                bail!("{address} is not a TCP address ({setting})");
            };
            let local = listener.local_addr()?;
            attempts -= 1;
            match (Bound::bind_udp(local), address) {
                (Ok(socket), _) => return Ok((bound, socket)),
                (Err(error), Address::Tcp(requested))
                    if requested.port() == 0
                        && error.kind() == io::ErrorKind::AddrInUse
                        && attempts > 0 => {}
                (Err(error), _) => return Err(udp_error(error, local, setting)),
            }
        }
    }

    /// Closes this process's descriptor of the socket. The socket's file stays until the result is
    /// dropped.
    pub fn close(self) -> Option<SocketFile> {
        match self {
            Bound::Tcp(_) => None,
            Bound::Unix(_, file) => Some(file),
        }
    }

    /// The file of a unix socket.
    pub fn file(&self) -> Option<&SocketFile> {
        match self {
            Bound::Tcp(_) => None,
            Bound::Unix(_, file) => Some(file),
        }
    }

    /// The same socket again, for a part of the program that may start several times. Its file is
    /// removed with the original.
    pub fn share(&self) -> io::Result<Bound> {
        Ok(match self {
            Bound::Tcp(listener) => Bound::Tcp(listener.try_clone()?),
            Bound::Unix(listener, file) => Bound::Unix(
                listener.try_clone()?,
                SocketFile::new(file.path.clone(), None),
            ),
        })
    }

    /// Accepts connections in the caller's runtime.
    pub fn listen(self) -> anyhow::Result<Listener> {
        Ok(match self {
            Bound::Tcp(listener) => Listener::Tcp(TcpListener::from_std(listener)?),
            Bound::Unix(listener, file) => Listener::Unix(UnixListener::from_std(listener)?, file),
        })
    }
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Bound::Tcp(listener) => listener.as_fd(),
            Bound::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Listener {
    /// The address as users write it, with the kernel's port instead of port 0.
    pub fn name(&self) -> String {
        match self {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("http://{address}"),
                Err(error) => format!("http://? ({error})"),
            },
            Listener::Unix(_, file) => format!("unix:{}", file.path.display()),
        }
    }
}

/// Explains the error and what may help.
fn bind_error(error: io::Error, address: SocketAddr, setting: &str) -> anyhow::Error {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => "another process does; end it, or ",
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need root or CAP_NET_BIND_SERVICE; otherwise "
        }
        io::ErrorKind::AddrNotAvailable => "this machine does not have the address; ",
        _ => "",
    };
    anyhow::anyhow!(
        "cannot listen on {address}: {why}choose another address with {setting} ({error})"
    )
}

/// The same for the port of HTTP/3.
pub fn udp_error(error: io::Error, address: SocketAddr, setting: &str) -> anyhow::Error {
    bind_error(error, address, setting).context("HTTP/3 needs the UDP port (http.h3)")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_parsed() {
        assert_eq!("0660".parse(), Ok(SocketMode(0o660)));
        assert_eq!("777".parse(), Ok(SocketMode(0o777)));
        for wrong in ["", "0o660", "888", "1777", "+66", "-1", "00660", "rw"] {
            assert!(wrong.parse::<SocketMode>().is_err(), "{wrong}");
        }
    }
}
