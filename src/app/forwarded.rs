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
                 for \
                 whoever connects to a unix socket that we \
                 listen at"
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

/// What a trusted proxy says about the request.
pub struct Forwarded {
    pub origin: Origin,
    /// The host that the client requested.
    pub host: Option<HeaderValue>,
}

/// Whether this peer's statements about clients are trusted.
pub fn is_trusted(peer: &Peer, trusted: &[Proxy]) -> bool {
    match &peer.client {
        Some(client) => has(trusted, client.ip()),
        None => trusted.contains(&Proxy::Unix),
    }
}

/// Evaluates `X-Forwarded-*` as far as the proxies that wrote them are trusted.
pub fn origin(peer: &Peer, headers: &HeaderMap, trusted: &[Proxy]) -> Forwarded {
    let direct = Forwarded {
        origin: Origin {
            client: peer.client.clone(),
            server: peer.server.clone(),
            https: peer.https,
        },
        host: None,
    };
    if !is_trusted(peer, trusted) {
        return direct;
    }
    let client = client(headers, |ip| has(trusted, ip)).map(Address::from);
    let last = |name: &str| {
        headers
            .get_all(name)
            .iter()
            .next_back()?
            .to_str()
            .ok()?
            .rsplit(',')
            .next()
            .map(str::trim)
    };
    Forwarded {
        origin: Origin {
            client: client.or_else(|| peer.client.clone()),
            server: peer.server.clone(),
            https: last("x-forwarded-proto")
                .map_or(peer.https, |proto| proto.eq_ignore_ascii_case("https")),
        },
        host: last("x-forwarded-host")
            .filter(|host| is_host(host.as_bytes()))
            .and_then(|host| HeaderValue::from_str(host).ok()),
    }
}

/// The right-most address that is no trusted proxy. The client may have written everything to the
/// left of it.
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

    fn origin_of(peer: &str, headers: &[(&'static str, &str)]) -> Forwarded {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let peer = Peer {
            client: Some(peer.parse::<SocketAddr>().unwrap().into()),
            server: None,
            https: false,
        };
        origin(
            &peer,
            &map,
            &["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        )
    }

    fn client_of(peer: &str, forwarded_for: &[&str]) -> String {
        let headers: Vec<_> = forwarded_for
            .iter()
            .map(|value| ("x-forwarded-for", *value))
            .collect();
        origin_of(peer, &headers)
            .origin
            .client
            .unwrap()
            .ip()
            .to_string()
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
        let forwarded = origin_of(
            "192.0.2.9:1",
            &[("x-forwarded-proto", "https"), ("x-forwarded-host", "evil")],
        );
        assert!(!forwarded.origin.https && forwarded.host.is_none());
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
        let forwarded = origin_of(
            "[::1]:1",
            &[
                ("x-forwarded-proto", "http, https"),
                ("x-forwarded-host", "a.example"),
            ],
        );
        assert!(forwarded.origin.https);
        assert_eq!(forwarded.host.unwrap(), "a.example");
    }
}
