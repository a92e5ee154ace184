//! Addresses of php-fpm and connections to it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use surus_sys::socket;
use tokio::net::{TcpStream, UnixStream};

/// The listen address of a php-fpm: `127.0.0.1:9000` or `unix:/run/php/php-fpm.sock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FpmAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl TryFrom<String> for FpmAddress {
    type Error = String;

    fn try_from(text: String) -> Result<FpmAddress, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(FpmAddress::Unix(path.into()));
        }
        text.parse().map(FpmAddress::Tcp).map_err(|_| {
            format!(
                "invalid php-fpm address `{text}`; write an address such as \"127.0.0.1:9000\" or \
                 \"unix:/run/php/php-fpm.sock\""
            )
        })
    }
}

impl From<FpmAddress> for String {
    fn from(address: FpmAddress) -> String {
        match address {
            FpmAddress::Tcp(address) => address.to_string(),
            FpmAddress::Unix(path) => format!("unix:{}", path.display()),
        }
    }
}

/// A connection that can be read and written concurrently.
pub enum PhpStream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl PhpStream {
    pub async fn connect(to: &FpmAddress) -> io::Result<PhpStream> {
        Ok(match to {
            FpmAddress::Unix(path) => PhpStream::Unix(UnixStream::connect(path).await?),
            FpmAddress::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                PhpStream::Tcp(stream)
            }
        })
    }

    /// Wraps a connected Unix socket.
    pub fn from_unix(socket: OwnedFd) -> io::Result<PhpStream> {
        let stream = std::os::unix::net::UnixStream::from(socket);
        stream.set_nonblocking(true)?;
        Ok(PhpStream::Unix(UnixStream::from_std(stream)?))
    }

    /// Whether the peer has neither closed the connection nor sent unexpected data.
    pub fn is_open(&self) -> bool {
        match self {
            PhpStream::Unix(stream) => socket::is_silent(stream),
            PhpStream::Tcp(stream) => socket::is_silent(stream),
        }
    }

    /// Makes the peer's writes fail while it can still read. Returns false for TCP, where this is
    /// impossible.
    pub fn refuse_more(&self) -> bool {
        match self {
            PhpStream::Unix(stream) => socket::refuse_more(stream).is_ok(),
            PhpStream::Tcp(_) => false,
        }
    }

    pub async fn read(&self, into: &mut BytesMut) -> io::Result<usize> {
        into.reserve(64 * 1024);
        loop {
            let read = match self {
                PhpStream::Unix(stream) => {
                    stream.readable().await?;
                    stream.try_read_buf(into)
                }
                PhpStream::Tcp(stream) => {
                    stream.readable().await?;
                    stream.try_read_buf(into)
                }
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    pub async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut bytes = Bytes::copy_from_slice(bytes);
        while !bytes.is_empty() {
            let written = match self {
                PhpStream::Unix(stream) => {
                    stream.writable().await?;
                    stream.try_write(&bytes)
                }
                PhpStream::Tcp(stream) => {
                    stream.writable().await?;
                    stream.try_write(&bytes)
                }
            };
            match written {
                Ok(written) => bytes = bytes.slice(written..),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn address_survives_parsing_and_printing() {
        for text in ["127.0.0.1:9000", "[::1]:9000", "unix:/run/php/php-fpm.sock"] {
            let address = FpmAddress::try_from(text.to_string()).unwrap();
            assert_eq!(String::from(address), text);
        }
        let wrong = FpmAddress::try_from("localhost".to_string()).unwrap_err();
        assert!(wrong.contains("127.0.0.1:9000"), "{wrong}");
    }
}
