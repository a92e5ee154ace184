//! Names of hosts: what a request names, and the patterns that select among them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One host (`example.org`), or all hosts below one (`*.example.org`). In lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostPattern {
    Exact(String),
    /// Begins with a dot.
    Below(String),
}

impl HostPattern {
    /// The host, if it is a single one.
    pub fn exact(&self) -> Option<&str> {
        match self {
            HostPattern::Exact(host) => Some(host),
            HostPattern::Below(_) => None,
        }
    }

    /// Whether this host is meant, which is a [`name`].
    pub fn matches(&self, name: &str) -> bool {
        match self {
            HostPattern::Exact(exact) => name.eq_ignore_ascii_case(exact),
            HostPattern::Below(suffix) => {
                let (name, suffix) = (name.as_bytes(), suffix.as_bytes());
                name.len() > suffix.len()
                    && name[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
            }
        }
    }
}

/// The name in a `Host`: without the port, and without the dot that may end a full name.
pub fn name(host: &str) -> &str {
    let name = without_port(host);
    name.strip_suffix('.').unwrap_or(name)
}

pub fn without_port(host: &str) -> &str {
    // Only an IPv6 address in brackets has other colons.
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    }
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<HostPattern, String> {
        let reject = |why: &str| Err(format!("`host` is {text:?}, which {why}"));
        let lower = text.to_ascii_lowercase();
        let (name, is_wildcard) = match lower.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (&*lower, false),
        };
        if !name.is_ascii() {
            return reject("has characters beyond ASCII; write it in Punycode (xn--…)");
        }
        if name.contains('*') {
            return reject("has `*` elsewhere than in a first `*.`");
        }
        let is_v6 = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
        let is_address = is_v6 || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4());
        if is_address && is_wildcard {
            return reject("is a wildcard below an address");
        }
        if !is_address && !is_dns_name(name) {
            return reject(
                "is not the name of a host; write `example.org`, `*.example.org` or an address, \
                 without scheme, port and path",
            );
        }
        Ok(match is_wildcard {
            true => HostPattern::Below(format!(".{name}")),
            false => HostPattern::Exact(name.to_owned()),
        })
    }
}

/// Underscores are in names of containers.
fn is_dns_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(name) => f.write_str(name),
            HostPattern::Below(suffix) => write!(f, "*{suffix}"),
        }
    }
}

impl Serialize for HostPattern {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostPattern {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<HostPattern, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_its_hosts_only() {
        for (pattern, host, expected) in [
            ("example.org", "example.org", true),
            ("Example.ORG", "eXample.org:8080", true),
            ("example.org", "example.org.", true),
            ("example.org", "www.example.org", false),
            ("example.org", "example.org.evil.example", false),
            ("*.example.org", "www.example.org", true),
            ("*.example.org", "a.b.EXAMPLE.org.:443", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", ".example.org", false),
            ("*.example.org", "badexample.org", false),
            ("[::1]", "[::1]:80", true),
            ("[::1]", "[::1]", true),
            ("192.0.2.1", "192.0.2.1:80", true),
            ("a_b", "a_b", true),
        ] {
            let matches = pattern.parse::<HostPattern>().unwrap().matches(name(host));
            assert_eq!(matches, expected, "{pattern} {host}");
        }
    }

    #[test]
    fn invalid_pattern_is_rejected_with_the_remedy() {
        for (pattern, says) in [
            ("", "not the name of a host"),
            ("example.org:80", "without scheme, port"),
            ("https://example.org", "without scheme"),
            ("example.org/a", "path"),
            ("example.org.", "not the name"),
            ("*", "`*` elsewhere"),
            ("a.*.org", "`*` elsewhere"),
            ("*.192.0.2.1", "below an address"),
            ("::1", "not the name"),
            ("bücher.example", "Punycode"),
        ] {
            let error = pattern.parse::<HostPattern>().unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
