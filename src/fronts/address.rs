//! An address to listen on, as settings have it.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(format!("`{text}`: the path of a unix socket is absolute"));
            }
            return Ok(Address::Unix(path.into()));
        }
        let with_port = match text.parse::<u16>() {
            Ok(port) => format!("127.0.0.1:{port}"),
            Err(_) => text
                .strip_prefix(':')
                .map_or_else(|| text.to_string(), |port| format!("0.0.0.0:{port}")),
        };
        let with_port = with_port.replace("localhost:", "127.0.0.1:");
        with_port.parse().map(Address::Tcp).map_err(|_| {
            format!(
                "`{text}` is not an address; write `127.0.0.1:8080`, `[::1]:8080`, `8080` or \
                `unix:/run/app.sock`"
            )
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "http://{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Address::Tcp(address) => serializer.collect_str(address),
            Address::Unix(path) => serializer.collect_str(&format_args!("unix:{}", path.display())),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let tcp = |text: &str| Address::Tcp(text.parse().unwrap());
        assert_eq!("8080".parse(), Ok(tcp("127.0.0.1:8080")));
        assert_eq!(":80".parse(), Ok(tcp("0.0.0.0:80")));
        assert_eq!("localhost:81".parse(), Ok(tcp("127.0.0.1:81")));
        assert_eq!("[::1]:8080".parse(), Ok(tcp("[::1]:8080")));
        assert_eq!("unix:/run/x".parse(), Ok(Address::Unix("/run/x".into())));
        for wrong in [
            "",
            "80a",
            "unix:x",
            "example.org:80",
            "1.2.3.4",
            "127.0.0.1:99999",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
