//! Parses the PROXY protocol (versions 1 and 2), in which a load balancer names the client before
//! HTTP begins.
//!
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>

use std::io;
use std::net::SocketAddr;

use bytes::BytesMut;
use ppp::{PartialResult, v1, v2};

use crate::fronts::http::transport::socket::Socket;

/// The content of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// The load balancer's own connection (a health check), or an unknown client: the connection's
    /// own addresses count.
    Own,
    Relayed {
        client: SocketAddr,
        server: SocketAddr,
        /// The client's connection to the load balancer is encrypted. Only version 2 can say so.
        https: bool,
    },
}

/// The beginning of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A header of this many bytes.
    Complete(Header, usize),
    /// The beginning of a header.
    Incomplete,
    Malformed(&'static str),
}

/// The longest line of version 1, with its line end.
const LONGEST_V1: usize = 107;

/// A header of version 2 may announce 64 KiB; addresses and the usual extensions take a few hundred
/// bytes.
const LONGEST_V2: usize = 4096;

/// Reads the header at the beginning of a connection. Further bytes stay in `buffer`.
pub async fn read(socket: &Socket, buffer: &mut BytesMut) -> io::Result<Header> {
    let malformed = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    loop {
        match parse(buffer) {
            Parsed::Complete(header, len) => {
                let _ = buffer.split_to(len);
                return Ok(header);
            }
            Parsed::Malformed(why) => return Err(malformed(why)),
            Parsed::Incomplete => {
                if socket.read(buffer).await? == 0 {
                    return Err(malformed("ended before its PROXY header did"));
                }
            }
        }
    }
}

pub fn parse(bytes: &[u8]) -> Parsed {
    let begins = |with: &[u8]| {
        let len = with.len().min(bytes.len());
        bytes[..len] == with[..len]
    };
    if begins(v2::PROTOCOL_PREFIX) {
        version_2(bytes)
    } else if begins(v1::PROTOCOL_PREFIX.as_bytes()) {
        version_1(bytes)
    } else {
        Parsed::Malformed("does not begin with a PROXY header")
    }
}

fn version_1(bytes: &[u8]) -> Parsed {
    let window = &bytes[..bytes.len().min(LONGEST_V1)];
    let Some(end) = memchr::memmem::find(window, b"\r\n") else {
        return match window.len() {
            LONGEST_V1 => Parsed::Malformed("a PROXY line without an end"),
            _ => Parsed::Incomplete,
        };
    };
    let len = end + 2;
    // The specification allows anything after UNKNOWN; the ppp crate allows nothing.
    if bytes[..end].starts_with(b"PROXY UNKNOWN") {
        return match bytes.get(b"PROXY UNKNOWN".len()) {
            Some(b' ' | b'\r') => Parsed::Complete(Header::Own, len),
            _ => Parsed::Malformed("a PROXY line of an unknown protocol"),
        };
    }
    let header = match v1::Header::try_from(&bytes[..len]) {
        Ok(header) => header,
        Err(_) => return Parsed::Malformed("a malformed PROXY line"),
    };
    let header = match header.addresses {
        v1::Addresses::Tcp4(a) => relayed(
            (a.source_address, a.source_port),
            (a.destination_address, a.destination_port),
            false,
        ),
        v1::Addresses::Tcp6(a) => relayed(
            (a.source_address, a.source_port),
            (a.destination_address, a.destination_port),
            false,
        ),
        v1::Addresses::Unknown => Header::Own,
    };
    Parsed::Complete(header, len)
}

fn version_2(bytes: &[u8]) -> Parsed {
    if let Some(&[high, low]) = bytes.get(14..16)
        && usize::from(u16::from_be_bytes([high, low])) + 16 > LONGEST_V2
    {
        return Parsed::Malformed("a PROXY header that is too long");
    }
    let parsed = v2::Header::try_from(bytes);
    if parsed.is_incomplete() {
        return Parsed::Incomplete;
    }
    let Ok(header) = parsed else {
        return Parsed::Malformed("a malformed PROXY header");
    };
    let len = header.len();
    if header.command == v2::Command::Local {
        return Parsed::Complete(Header::Own, len);
    }
    let Some(https) = encrypted(&header) else {
        return Parsed::Malformed("a PROXY header with malformed extensions");
    };
    let own = match header.addresses {
        v2::Addresses::IPv4(a) => relayed(
            (a.source_address, a.source_port),
            (a.destination_address, a.destination_port),
            https,
        ),
        v2::Addresses::IPv6(a) => relayed(
            (a.source_address, a.source_port),
            (a.destination_address, a.destination_port),
            https,
        ),
        v2::Addresses::Unix(_) | v2::Addresses::Unspecified => Header::Own,
    };
    Parsed::Complete(own, len)
}

/// Whether `PP2_CLIENT_SSL` is set in `PP2_TYPE_SSL`. None if the extensions are malformed.
fn encrypted(header: &v2::Header<'_>) -> Option<bool> {
    const CLIENT_SSL: u8 = 1;
    let mut https = false;
    for extension in header.tlvs() {
        let extension = extension.ok()?;
        if extension.kind == u8::from(v2::Type::SSL) {
            https = extension.value.first()? & CLIENT_SSL != 0;
        }
    }
    Some(https)
}

fn relayed(
    client: (impl Into<std::net::IpAddr>, u16),
    server: (impl Into<std::net::IpAddr>, u16),
    https: bool,
) -> Header {
    Header::Relayed {
        client: SocketAddr::new(client.0.into().to_canonical(), client.1),
        server: SocketAddr::new(server.0.into().to_canonical(), server.1),
        https,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LINE: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n";

    fn relayed_by(client: &str, server: &str, https: bool) -> Header {
        Header::Relayed {
            client: client.parse().unwrap(),
            server: server.parse().unwrap(),
            https,
        }
    }

    fn binary(extensions: &[(u8, &[u8])]) -> Vec<u8> {
        let client: SocketAddr = "[2001:db8::1]:4711".parse().unwrap();
        let server: SocketAddr = "[2001:db8::2]:443".parse().unwrap();
        let mut builder = v2::Builder::with_addresses(
            v2::Version::Two | v2::Command::Proxy,
            v2::Protocol::Stream,
            (client, server),
        );
        for (kind, value) in extensions {
            builder = builder.write_tlv(*kind, value).unwrap();
        }
        builder.build().unwrap()
    }

    #[test]
    fn partial_header_is_incomplete_and_following_bytes_are_kept() {
        for header in [LINE.to_vec(), binary(&[(0x20, &[1, 0, 0, 0, 0])])] {
            for len in 0..header.len() {
                assert_eq!(parse(&header[..len]), Parsed::Incomplete, "{len}");
            }
            let mut more = header.clone();
            more.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n");
            assert!(matches!(parse(&more), Parsed::Complete(_, len) if len == header.len()));
        }
    }

    #[test]
    fn addresses_and_encryption_are_parsed() {
        assert_eq!(
            parse(LINE),
            Parsed::Complete(
                relayed_by("192.0.2.1:4711", "198.51.100.2:443", false),
                LINE.len()
            )
        );
        for (extensions, https) in [
            (vec![], false),
            (vec![(0x20, &[1u8, 0, 0, 0, 0][..])], true),
            (vec![(0x20, &[0u8, 0, 0, 0, 1][..])], false),
        ] {
            let header = binary(&extensions);
            let expected = relayed_by("[2001:db8::1]:4711", "[2001:db8::2]:443", https);
            assert_eq!(parse(&header), Parsed::Complete(expected, header.len()));
        }
    }

    #[test]
    fn health_check_keeps_the_connections_own_addresses() {
        let mut local = v2::PROTOCOL_PREFIX.to_vec();
        local.extend_from_slice(&[0x20, 0, 0, 0]);
        for own in [
            &local[..],
            b"PROXY UNKNOWN\r\n",
            b"PROXY UNKNOWN ff:: :: 1 2\r\n",
        ] {
            assert_eq!(parse(own), Parsed::Complete(Header::Own, own.len()));
        }
    }

    proptest::proptest! {
        #[test]
        fn header_ends_at_its_stated_length(
            version_2: bool,
            bytes in proptest::collection::vec(0u8.., 0..300),
        ) {
            let prefix = match version_2 {
                true => v2::PROTOCOL_PREFIX,
                false => v1::PROTOCOL_PREFIX.as_bytes(),
            };
            let bytes = [prefix, &bytes].concat();
            if let Parsed::Complete(header, len) = parse(&bytes) {
                assert_eq!(parse(&bytes[..len]), Parsed::Complete(header, len));
                assert!((0..len).all(|part| parse(&bytes[..part]) == Parsed::Incomplete));
            }
        }
    }

    #[test]
    fn other_bytes_are_malformed() {
        let mut endless = v2::PROTOCOL_PREFIX.to_vec();
        endless.extend_from_slice(&[0x21, 0x11, 0xff, 0xff]);
        let mut version_3 = v2::PROTOCOL_PREFIX.to_vec();
        version_3.extend_from_slice(&[0x31, 0x11, 0, 0]);
        let broken_extension = {
            let mut header = binary(&[(0x20, &[1, 0, 0, 0, 0])]);
            let at = header.len() - 6;
            header[at] = 0xff;
            header
        };
        for wrong in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXY TCP4 192.0.2.1 198.51.100.2 4711\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 99999\r\n",
            b"PROXY TCP4 192.0.2.256 198.51.100.2 4711 443\r\n",
            b"PROXY TCP6 192.0.2.1 198.51.100.2 4711 443\r\n",
            b"PROXY UDP4 192.0.2.1 198.51.100.2 4711 443\r\n",
            b"PROXY UNKNOWNS\r\n",
            b"proxy TCP4 192.0.2.1 198.51.100.2 4711 443\r\n",
            &[b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat(),
            &endless,
            &version_3,
            &broken_extension,
        ] {
            assert!(
                matches!(parse(wrong), Parsed::Malformed(_)),
                "{:?}",
                String::from_utf8_lossy(wrong)
            );
        }
    }
}
