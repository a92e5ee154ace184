//! Parses URLs into the address to connect to, the path to request and the value of `Host`.

use std::net::Ipv6Addr;
use std::path::PathBuf;

/// Where connections lead to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether TLS is used.
    pub is_tls: bool,
    /// A Unix socket instead of the host's address.
    pub unix: Option<PathBuf>,
}

impl Origin {
    /// The value of `Host`: without the scheme's own port.
    pub fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.is_tls, self.port) {
            (false, 80) | (true, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }
}

/// A URL that can be requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Its scheme, host and port.
    pub origin: Origin,
    /// Path and query.
    pub path: String,
}

/// Why a URL cannot be requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid URL {url}: {why}")]
pub struct InvalidUrl {
    url: String,
    why: &'static str,
}

impl Url {
    /// Parses `http://HOST[:PORT]/PATH`. Without a scheme, `http` is meant; without a host (a path
    /// or `:PORT/PATH`), this machine.
    pub fn parse(text: &str) -> Result<Url, InvalidUrl> {
        let invalid = |why| InvalidUrl {
            url: text.to_string(),
            why,
        };
        let is_printable = |byte: u8| byte.is_ascii_graphic();
        if text.is_empty() || !text.bytes().all(is_printable) {
            return Err(invalid(
                "it must be ASCII without spaces; encode others as %XX",
            ));
        }
        // After a path or a query has begun, `://` belongs to a URL in it.
        let scheme = text.split_once("://");
        let scheme = scheme.filter(|(scheme, _)| !scheme.contains(['/', '?', '#']));
        let (is_tls, rest) = match scheme {
            None => (false, text),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some(_) => return Err(invalid("the scheme must be http or https")),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        if authority.contains('@') {
            return Err(invalid(
                "it must not contain a user; use -H 'Authorization: …'",
            ));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed.split_once(']').ok_or(invalid("`]` is missing"))?;
                if host.parse::<Ipv6Addr>().is_err() {
                    return Err(invalid("only an IPv6 address belongs in brackets"));
                }
                match after.strip_prefix(':') {
                    None if !after.is_empty() => {
                        return Err(invalid("only `:` and a port may follow `]`"));
                    }
                    port => (host, port),
                }
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = match port {
            None if is_tls => 443,
            None => 80,
            Some(port) => port
                .parse()
                .ok()
                .filter(|number| *number > 0 && !port.starts_with('+'))
                .ok_or(invalid("the port must be 1 to 65535"))?,
        };
        if host.contains(['[', ']']) {
            return Err(invalid("brackets belong around an IPv6 address"));
        }
        let path = match path.as_bytes().first() {
            Some(b'/') => path.to_string(),
            _ => format!("/{path}"),
        };
        let host = if host.is_empty() { "127.0.0.1" } else { host }.to_string();
        let origin = Origin {
            host,
            port,
            is_tls,
            unix: None,
        };
        Ok(Url { origin, path })
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Url { origin, path } = self;
        write!(f, "{}://{}{path}", origin.scheme(), origin.authority())
    }
}
