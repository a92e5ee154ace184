//! The sockets that a service manager passes to `surus serve` (socket activation). They replace
//! addresses of the configuration.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context, bail};
use surus_sys::inherited::{self, InheritedKind, InheritedSocket};

use crate::config::Config;
use crate::fronts::address::Address;
use crate::fronts::http::Bound;

/// Sockets that are not in use yet.
#[derive(Default)]
pub(super) struct InheritedSockets {
    /// With the names that the service manager gives them.
    streams: Vec<(String, Address, Bound)>,
    udp: Vec<(SocketAddr, UdpSocket)>,
}

impl InheritedSockets {
    /// Takes those of this process. To be called before it opens any socket.
    pub fn take() -> anyhow::Result<InheritedSockets> {
        let cannot = "cannot use the sockets of the service manager (LISTEN_FDS)";
        let all = inherited::take().context(cannot)?;
        let mut sockets = InheritedSockets::default();
        for (number, socket) in (3..).zip(all) {
            let name = socket.name.clone();
            let cannot = || format!("{cannot}: descriptor {number} ({name})");
            sockets.add(socket).with_context(cannot)?;
        }
        Ok(sockets)
    }

    fn add(&mut self, socket: InheritedSocket) -> anyhow::Result<()> {
        let InheritedSocket { fd, name, kind } = socket;
        match kind {
            InheritedKind::Tcp | InheritedKind::Unix => {
                let (address, bound) = Bound::inherited(fd, kind == InheritedKind::Unix)?;
                self.streams.push((name, address, bound));
            }
            InheritedKind::Udp => {
                let socket = UdpSocket::from(fd);
                self.udp.push((socket.local_addr()?, socket));
            }
            InheritedKind::Other => bail!(
                "it is neither a listening socket of TCP, nor a listening unix socket for streams, \
                 nor one of UDP; write ListenStream=, or ListenDatagram= for HTTP/3, and \
                 Accept=no in the unit"
            ),
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.udp.is_empty()
    }

    /// Sets the addresses of the sockets in the configuration. Sockets for HTTPS are those named
    /// `https`, and those without one of our names at a port of `tls.listen`.
    pub fn apply(&self, config: &mut Config) {
        let port = |address: &Address| match address {
            Address::Tcp(address) => Some(address.port()),
            Address::Unix(_) => None,
        };
        let tls_ports: Vec<_> = config.tls.listen.iter().filter_map(port).collect();
        let is_https = |name: &str, address: &Address| match name {
            "https" => true,
            "http" => false,
            _ => port(address).is_some_and(|port| tls_ports.contains(&port)),
        };
        let all = self.streams.iter();
        let (https, http): (Vec<_>, Vec<_>) =
            all.partition(|(name, address, _)| is_https(name, address));
        for (found, listen) in [
            (http, &mut config.http.listen),
            (https, &mut config.tls.listen),
        ] {
            if !found.is_empty() {
                *listen = found.into_iter().map(|(_, at, _)| at.clone()).collect();
            }
        }
    }

    /// Takes the socket at an address.
    pub fn stream(&mut self, at: &Address) -> Option<Bound> {
        let found = self
            .streams
            .iter()
            .position(|(_, address, _)| address == at)?;
        Some(self.streams.swap_remove(found).2)
    }

    /// Takes the socket of UDP at an address.
    pub fn udp(&mut self, at: SocketAddr) -> Option<UdpSocket> {
        let found = self.udp.iter().position(|(address, _)| *address == at)?;
        Some(self.udp.swap_remove(found).1)
    }

    /// An error if a socket is left that nothing serves.
    pub fn check_used(&self) -> anyhow::Result<()> {
        match self.udp.first() {
            None => Ok(()),
            Some((address, _)) => bail!(
                "the service manager passes a socket of UDP at {address}, which is for HTTP/3 \
                 only; set http.h3 = true and listen there by TLS as well, or remove \
                 ListenDatagram= from the unit"
            ),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn socket(kind: InheritedKind, name: &str) -> (SocketAddr, InheritedSocket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = InheritedSocket {
            fd: listener.into(),
            name: name.into(),
            kind,
        };
        (address, socket)
    }

    fn sockets(names: &[&str]) -> (Vec<Address>, InheritedSockets) {
        let mut sockets = InheritedSockets::default();
        let add = |name: &&str| {
            let (address, socket) = socket(InheritedKind::Tcp, name);
            sockets.add(socket).unwrap();
            Address::Tcp(address)
        };
        (names.iter().map(add).collect(), sockets)
    }

    #[test]
    fn names_and_ports_tell_what_a_socket_is_for() {
        let (at, mut sockets) = sockets(&["http", "https", "surus.socket", "other"]);
        let mut config = Config::default();
        config.tls.listen = vec![at[2].clone()];
        sockets.apply(&mut config);
        assert_eq!(config.http.listen, [at[0].clone(), at[3].clone()]);
        assert_eq!(config.tls.listen, at[1..3]);
        assert!(sockets.stream(&at[1]).is_some() && sockets.stream(&at[1]).is_none());
        assert!(sockets.udp("127.0.0.1:1".parse().unwrap()).is_none());
        sockets.check_used().unwrap();
    }

    #[test]
    fn sockets_of_one_kind_leave_the_addresses_of_the_other() {
        let (at, sockets) = sockets(&["http"]);
        let mut config = Config::default();
        config.tls.listen = vec![":443".parse().unwrap()];
        sockets.apply(&mut config);
        assert_eq!(config.http.listen, at);
        assert_eq!(config.tls.listen, [":443".parse().unwrap()]);
        let default = Config::default();
        let mut config = Config::default();
        InheritedSockets::default().apply(&mut config);
        assert_eq!(config.http.listen, default.http.listen);
    }

    #[test]
    fn socket_that_cannot_be_served_is_rejected_with_the_remedy() {
        let (_, socket) = socket(InheritedKind::Other, "x");
        let error = InheritedSockets::default().add(socket).unwrap_err();
        assert!(error.to_string().contains("Accept=no"), "{error}");
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut sockets = InheritedSockets::default();
        let socket = InheritedSocket {
            fd: udp.into(),
            name: "https".into(),
            kind: InheritedKind::Udp,
        };
        sockets.add(socket).unwrap();
        let error = sockets.check_used().unwrap_err().to_string();
        assert!(error.contains("http.h3"), "{error}");
    }
}
