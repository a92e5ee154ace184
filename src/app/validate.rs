//! Validates what every front end passes on, and defines rejections.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};

use crate::app::site::LookupError;

/// An error response without PHP, and its reason.
pub struct RequestRejection {
    pub status: StatusCode,
    pub why: &'static str,
}

pub const fn reject(status: StatusCode, why: &'static str) -> RequestRejection {
    RequestRejection { status, why }
}

impl From<LookupError> for RequestRejection {
    fn from(error: LookupError) -> RequestRejection {
        let status = match error {
            LookupError::Scarce => StatusCode::SERVICE_UNAVAILABLE,
            LookupError::Broken => StatusCode::INTERNAL_SERVER_ERROR,
        };
        reject(status, "")
    }
}

/// No registered method is half as long as this.
const MAX_METHOD: usize = 64;

/// Validates a request that another server has accepted already. It may lack `Host`: health checks
/// of load balancers have none.
pub fn check_relayed(parts: &http::request::Parts) -> Result<(), RequestRejection> {
    check_method(&parts.method)?;
    check_host(&parts.headers).map(|_| ())
}

pub fn check_method(method: &Method) -> Result<(), RequestRejection> {
    if method.as_str().len() > MAX_METHOD {
        return Err(reject(StatusCode::NOT_IMPLEMENTED, "no such method"));
    }
    if *method == Method::CONNECT {
        return Err(reject(
            StatusCode::METHOD_NOT_ALLOWED,
            "this is not a proxy",
        ));
    }
    Ok(())
}

/// Returns `Host`, and whether there is a transfer coding, in one pass over the headers.
pub fn check_host(headers: &HeaderMap) -> Result<(Option<&HeaderValue>, bool), RequestRejection> {
    let bad = |why| Err(reject(StatusCode::BAD_REQUEST, why));
    let (mut host, mut hosts, mut is_coded) = (None, 0, false);
    for (name, value) in headers {
        if *name == header::HOST {
            host = Some(value);
            hosts += 1;
        }
        is_coded |= *name == header::TRANSFER_ENCODING;
    }
    if hosts > 1 {
        return bad("more than one Host");
    }
    if host.is_some_and(|host| !is_host(host.as_bytes())) {
        return bad("an invalid Host");
    }
    Ok((host, is_coded))
}

/// Whether this is a valid `Host` (RFC 9110, 7.2: `uri-host [ ":" port ]`). It is empty for targets
/// without an authority. A port needs a host, as every http URI does (RFC 9110, 4.2.1).
pub fn is_host(host: &[u8]) -> bool {
    let end = match host.first() {
        Some(b'[') => host.iter().position(|c| *c == b']').map_or(0, |at| at + 1),
        _ => host.iter().position(|c| *c == b':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let port_is_valid = match port.split_first() {
        None => true,
        Some((b':', [])) => true,
        Some((b':', digits)) => {
            let more = |port: u32, digit: &u8| {
                let port = port * 10 + char::from(*digit).to_digit(10)?;
                (port <= u16::MAX.into()).then_some(port)
            };
            digits.iter().try_fold(0, more).is_some()
        }
        Some(_) => false,
    };
    port_is_valid
        && match name {
            [] => port.is_empty(),
            [b'[', address @ .., b']'] => std::str::from_utf8(address)
                .is_ok_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok()),
            name => is_reg_name(name),
        }
}

/// RFC 3986, 3.2.2.
fn is_reg_name(name: &[u8]) -> bool {
    let is_escaped = |at: usize| match name.get(at + 1..at + 3) {
        Some(digits) => digits.iter().all(u8::is_ascii_hexdigit),
        None => false,
    };
    name.iter().enumerate().all(|(at, byte)| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => true,
        b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => true,
        b'%' => is_escaped(at),
        _ => false,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn host_is_a_name_or_an_address_with_an_optional_port() {
        for valid in [
            "",
            "a",
            "a:80",
            "a:",
            "192.0.2.1:80",
            "[::1]",
            "[::1]:80",
            "a_b.c",
            "a%2eb",
            "a,b",
        ] {
            assert!(is_host(valid.as_bytes()), "{valid}");
        }
        for invalid in [
            ":", ":80", "a b", "a/b", "u@a", "a:b", "a:80:80", "a:+80", "a:99999", "[::1",
            "[::1]x", "[a]", "::1", "a%zz", "a%2", "a?b", "a#b", "a\\b", "\u{e9}", "[]",
        ] {
            assert!(!is_host(invalid.as_bytes()), "{invalid}");
        }
    }
}
