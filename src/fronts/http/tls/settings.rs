//! The settings of `[tls]`.

use std::path::PathBuf;

use anyhow::ensure;
use http::HeaderValue;
use serde::{Deserialize, Deserializer, Serialize};

use crate::fronts::address::Address;
use crate::units::{self, Time};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where to listen for HTTPS: `:443`, `[::]:443`, `127.0.0.1:8443`.
    #[serde(deserialize_with = "listen_at")]
    pub listen: Vec<Address>,
    /// The port of HTTPS, and of HTTP/3, that clients reach, if a router or a container runtime
    /// leads it to the one of `listen`. By default the latter.
    #[serde(deserialize_with = "public_port")]
    pub public_port: Option<u16>,
    /// PEM files, each with the server's certificate and those of intermediate authorities. The
    /// client's host name selects among several; the first is for all other names.
    #[serde(deserialize_with = "units::one_or_more")]
    pub certificate: Vec<PathBuf>,
    /// PEM files with the certificates' keys, in the same order.
    #[serde(deserialize_with = "units::one_or_more")]
    pub key: Vec<PathBuf>,
    /// The oldest version of TLS: `1.2` or `1.3`.
    pub min_version: MinVersion,
    /// A PEM file with the authorities that clients' certificates must come from.
    pub client_ca: Option<PathBuf>,
    /// With `client_ca`: `require` a client's certificate, or leave it `optional`. PHP sees which
    /// one it is.
    pub client_certificate: ClientCertificate,
    /// The time limit of a handshake.
    #[serde(deserialize_with = "handshake_timeout")]
    pub handshake_timeout: Time,
    /// A further handshake replaces the one that has taken longest, or waits briefly.
    #[serde(deserialize_with = "max_handshakes")]
    pub max_handshakes: usize,
    /// The `Strict-Transport-Security` of responses over TLS, such as `max-age=31536000`.
    #[serde(deserialize_with = "hsts")]
    pub hsts: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum MinVersion {
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificate {
    Require,
    Optional,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            public_port: None,
            certificate: Vec::new(),
            key: Vec::new(),
            min_version: MinVersion::Tls12,
            client_ca: None,
            client_certificate: ClientCertificate::Require,
            handshake_timeout: Time::seconds(10),
            max_handshakes: 1000,
            hsts: None,
        }
    }
}

impl Settings {
    /// Whether every client needs a certificate.
    pub fn requires_client_certificate(&self) -> bool {
        self.client_ca.is_some() && self.client_certificate == ClientCertificate::Require
    }

    /// The port that redirects of `http.redirect_to_https` name.
    pub fn port(&self) -> u16 {
        let ports = self.listen.iter().filter_map(|address| match address {
            Address::Tcp(address) if address.port() != 0 => Some(address.port()),
            _ => None,
        });
        let own = ports.min_by_key(|port| *port != 443).unwrap_or(443);
        self.public_port.unwrap_or(own)
    }
}

impl<'de> Deserialize<'de> for MinVersion {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<MinVersion, D::Error> {
        /// A version looks like a number.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Text(String),
        }
        let written = match Written::deserialize(from)? {
            Written::Number(number) => number.to_string(),
            Written::Text(text) => text,
        };
        match written.as_str() {
            "1.2" => Ok(MinVersion::Tls12),
            "1.3" => Ok(MinVersion::Tls13),
            other => Err(serde::de::Error::custom(format_args!(
                "tls.min_version is {other}; it can be \"1.2\" or \"1.3\""
            ))),
        }
    }
}

fn listen_at<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Address>, D::Error> {
    let addresses: Vec<Address> = units::one_or_more(from)?;
    match addresses
        .iter()
        .find(|address| matches!(address, Address::Unix(_)))
    {
        None => Ok(addresses),
        Some(address) => Err(serde::de::Error::custom(format_args!(
            "tls.listen is {address}, but HTTPS needs a port, such as \":443\""
        ))),
    }
}

fn public_port<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u16>, D::Error> {
    let Some(port) = Option::<i64>::deserialize(from)? else {
        return Ok(None);
    };
    match u16::try_from(port) {
        Ok(port @ 1..) => Ok(Some(port)),
        _ => Err(serde::de::Error::custom(format_args!(
            "tls.public_port is {port}; it can be from 1 to 65535"
        ))),
    }
}

fn handshake_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("tls.handshake_timeout", from)
}

fn max_handshakes<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    units::number("tls.max_handshakes", 1..=10_000_000, from)
}

fn hsts<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    units::checked_if_set(from, |text: &String| {
        let age = text
            .split(';')
            .next()
            .and_then(|age| age.trim().strip_prefix("max-age="));
        let is_age = age.is_some_and(|age| age.parse::<u64>().is_ok());
        ensure!(
            is_age && HeaderValue::from_str(text).is_ok(),
            "tls.hsts is `{text}`; write the value of Strict-Transport-Security, such as \
             `max-age=31536000; includeSubDomains`"
        );
        Ok(())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn public_port_is_named_in_place_of_the_one_that_surus_listens_on() {
        for (text, port) in [
            ("", 443),
            ("listen = ':8443'", 8443),
            ("listen = [':8443', '[::]:443']", 443),
            ("listen = ':8443'\npublic_port = 443", 443),
            ("listen = ':443'\npublic_port = 65535", 65535),
        ] {
            let settings: Settings = toml::from_str(text).unwrap();
            assert_eq!(settings.port(), port, "{text}");
            let written = toml::to_string(&settings).unwrap();
            let read: Settings = toml::from_str(&written).unwrap();
            assert_eq!(read.public_port, settings.public_port, "{text}");
        }
        for port in ["0", "-1", "65536"] {
            let error = toml::from_str::<Settings>(&format!("public_port = {port}")).unwrap_err();
            let expected = format!("tls.public_port is {port}; it can be from 1 to 65535");
            assert!(error.message().contains(&expected), "{error}");
        }
    }
}
