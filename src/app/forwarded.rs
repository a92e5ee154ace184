//! Determines the client of a request behind trusted proxies.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::validate::is_host;
use crate::event::{Address, Origin};

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    pub client: Option<Address>,
    pub server: Option<Address>,
    /// A trusted peer says that the client's connection is encrypted.
    pub https: bool,
}

impl From<Origin> for Peer {
    fn from(origin: Origin) -> Peer {
        Peer {
            client: origin.client,
            server: origin.server,
            https: origin.https,
        }
    }
}

/// A proxy whose statements about clients are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxy {
    Network(IpNet),
    /// Every process that may connect to one of Surus's unix sockets.
    Unix,
}

impl FromStr for Proxy {
    type Err = String;

    fn from_str(text: &str) -> Result<Proxy, String> {
        if text == "unix" {
            return Ok(Proxy::Unix);
        }
        let address = text.parse::<IpAddr>().map(IpNet::from);
        address.or_else(|_| text.parse()).map(Proxy::Network).map_err(|_| {
            format!(
                "`{text}` is not a proxy; write `10.0.0.1`, a network as `10.0.0.0/8`, or `unix` \
                 for every client of a unix socket in `listen`"
            )
        })
    }
}

impl<'de> Deserialize<'de> for Proxy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Proxy, D::Error> {
        String::deserialize(from)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl Serialize for Proxy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Proxy::Network(network) => to.collect_str(network),
            Proxy::Unix => to.serialize_str("unix"),
        }
    }
}

fn has(trusted: &[Proxy], ip: IpAddr) -> bool {
    trusted
        .iter()
        .any(|proxy| matches!(proxy, Proxy::Network(network) if network.contains(&ip)))
}

/// Whether this peer's statements about clients are trusted.
pub fn is_trusted(peer: &Peer, trusted: &[Proxy]) -> bool {
    match &peer.client {
        Some(client) => has(trusted, client.ip()),
        None => trusted.contains(&Proxy::Unix),
    }
}

/// The client, by `X-Forwarded-*` as far as the proxies that wrote them are trusted.
pub fn origin(peer: &Peer, headers: &HeaderMap, trusted: &[Proxy]) -> Origin {
    let direct = Origin {
        client: peer.client.clone(),
        server: peer.server.clone(),
        https: peer.https,
    };
    if !is_trusted(peer, trusted) {
        return direct;
    }
    let client = client(headers, |ip| has(trusted, ip)).map(Address::from);
    let proto = nearest(headers, "x-forwarded-proto");
    Origin {
        client: client.or(direct.client),
        server: direct.server,
        https: proto.map_or(peer.https, |proto| proto.eq_ignore_ascii_case("https")),
    }
}

/// The host that the client has requested, if a trusted peer names it.
pub fn host(peer: &Peer, headers: &HeaderMap, trusted: &[Proxy]) -> Option<HeaderValue> {
    if !is_trusted(peer, trusted) {
        return None;
    }
    let host = nearest(headers, "x-forwarded-host")?;
    let host = is_host(host.as_bytes()).then_some(host)?;
    HeaderValue::from_str(host).ok()
}

/// What the nearest proxy has written.
fn nearest<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let last = headers.get_all(name).iter().next_back()?;
    last.to_str().ok()?.rsplit(',').next().map(str::trim)
}

/// The right-most address that is not a trusted proxy. The client may have written everything to
/// the left of it.
fn client(headers: &HeaderMap, is_trusted: impl Fn(IpAddr) -> bool) -> Option<SocketAddr> {
    let mut furthest = None;
    for value in headers.get_all("x-forwarded-for").iter().rev() {
        for entry in value.to_str().ok()?.rsplit(',') {
            // A proxy that wrote an invalid entry is not trusted about the entries to the left.
            let Some(address) = parse(entry.trim()) else {
                return furthest;
            };
            furthest = Some(address);
            if !is_trusted(address.ip()) {
                return furthest;
            }
        }
    }
    furthest
}

/// `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]:4711`; port 0 if there is none.
fn parse(entry: &str) -> Option<SocketAddr> {
    if let Ok(address) = entry.parse::<SocketAddr>() {
        return Some(address);
    }
    let bare = entry
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(entry);
    bare.parse::<IpAddr>()
        .ok()
        .map(|ip| SocketAddr::new(ip.to_canonical(), 0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn headers(headers: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn peer(address: &str) -> Peer {
        Peer {
            client: Some(address.parse::<SocketAddr>().unwrap().into()),
            server: None,
            https: false,
        }
    }

    fn trusted() -> [Proxy; 2] {
        ["10.0.0.0/8", "::1/128"].map(|network| network.parse().unwrap())
    }

    fn origin_of(address: &str, sent: &[(&'static str, &str)]) -> Origin {
        origin(&peer(address), &headers(sent), &trusted())
    }

    fn client_of(peer: &str, forwarded_for: &[&str]) -> String {
        let headers: Vec<_> = forwarded_for
            .iter()
            .map(|value| ("x-forwarded-for", *value))
            .collect();
        origin_of(peer, &headers).client.unwrap().ip().to_string()
    }

    #[test]
    fn unix_socket_peer_is_trusted_if_configured() {
        let peer = Peer {
            client: None,
            server: None,
            https: false,
        };
        let networks = ["10.0.0.0/8", "10.1.2.3"].map(|text| text.parse().unwrap());
        assert!(!is_trusted(&peer, &networks));
        assert!(is_trusted(&peer, &["unix".parse().unwrap()]));
        let error = "nginx".parse::<Proxy>().unwrap_err();
        assert!(
            error.contains("10.0.0.0/8") && error.contains("unix"),
            "{error}"
        );
    }

    #[test]
    fn untrusted_peer_is_ignored() {
        assert_eq!(client_of("192.0.2.9:1", &["198.51.100.1"]), "192.0.2.9");
        assert!(!origin_of("192.0.2.9:1", &[("x-forwarded-proto", "https")]).https);
    }

    #[test]
    fn right_most_untrusted_address_is_the_client() {
        assert_eq!(
            client_of("10.0.0.1:1", &["1.1.1.1, 198.51.100.1, 10.0.0.2"]),
            "198.51.100.1"
        );
        assert_eq!(
            client_of("10.0.0.1:1", &["1.1.1.1", "198.51.100.1:99"]),
            "198.51.100.1"
        );
        assert_eq!(client_of("10.0.0.1:1", &["10.0.0.3, 10.0.0.2"]), "10.0.0.3");
        assert_eq!(
            client_of("10.0.0.1:1", &["198.51.100.1, unknown"]),
            "10.0.0.1"
        );
        assert_eq!(client_of("10.0.0.1:1", &["[2001:db8::7]"]), "2001:db8::7");
        assert_eq!(client_of("10.0.0.1:1", &[]), "10.0.0.1");
    }

    #[test]
    fn protocol_and_host_are_the_nearest_proxys() {
        let proto = [("x-forwarded-proto", "http, https")];
        assert!(origin_of("[::1]:1", &proto).https);
        for (value, expected) in [
            ("b.example, a.example", Some("a.example")),
            ("a.example:81", Some("a.example:81")),
            ("a b", None),
        ] {
            let headers = headers(&[("x-forwarded-host", value)]);
            let host = |address| host(&peer(address), &headers, &trusted());
            assert_eq!(host("[::1]:1"), expected.map(HeaderValue::from_static));
            assert_eq!(host("192.0.2.9:1"), None);
        }
    }
}
