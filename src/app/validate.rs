//! Which requests are refused for what they are, whatever they ask for.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode, Version};

use crate::app::site::Trouble;
use crate::fronts::http::Settings;

/// What answers a request without PHP, and why.
pub struct Refusal {
    pub status: StatusCode,
    pub why: &'static str,
}

pub const fn refuse(status: StatusCode, why: &'static str) -> Refusal {
    Refusal { status, why }
}

impl From<Trouble> for Refusal {
    fn from(trouble: Trouble) -> Refusal {
        let status = match trouble {
            Trouble::Scarce => StatusCode::SERVICE_UNAVAILABLE,
            Trouble::Broken => StatusCode::INTERNAL_SERVER_ERROR,
        };
        refuse(status, "")
    }
}

/// No registered method is half as long.
const MAX_METHOD: usize = 64;

/// Rules of RFC 9110, 9112 and 9113 that hyper leaves to us. Afterwards `Host` is who the request is for, whichever way that
/// was said.
pub fn check(
    head: &mut http::request::Parts,
    settings: &Settings,
    trusted: bool,
) -> Result<(), Refusal> {
    let bad = |why| Err(refuse(StatusCode::BAD_REQUEST, why));
    let target = head
        .uri
        .path_and_query()
        .map_or("", |target| target.as_str());
    if target.len() as u64 > settings.max_uri.0 {
        return Err(refuse(
            StatusCode::URI_TOO_LONG,
            "the request target is too long",
        ));
    }
    // hyper counts those of HTTP/1 itself.
    if head.headers.len() > settings.max_headers {
        return Err(refuse(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "too many header lines",
        ));
    }
    if head.version == Version::HTTP_2 && head.headers.values().any(is_padded) {
        return bad("a header's value begins or ends with a space or tab");
    }
    check_method(&head.method)?;
    let is_server_wide = head.method == Method::OPTIONS && target == "*";
    if !target.starts_with('/') && !is_server_wide {
        return bad("the request target is not a path");
    }
    let (host, is_coded) = check_host(&head.headers)?;
    // RFC 9110, 4.2.1: there is no http URI without a host, whatever else names one.
    if host.is_some_and(HeaderValue::is_empty) {
        return bad("an empty Host");
    }
    if is_coded {
        check_transfer_encoding(&head.headers)?;
    }
    match head.uri.authority() {
        Some(authority) => {
            if host.is_none() && head.version == Version::HTTP_11 {
                return bad("no Host");
            }
            if !is_host(authority.as_str().as_bytes()) {
                return bad("an invalid authority");
            }
            if head.version == Version::HTTP_2
                && host.is_some_and(|host| {
                    !host
                        .as_bytes()
                        .eq_ignore_ascii_case(authority.as_str().as_bytes())
                })
            {
                return bad("Host is not :authority");
            }
            match head.uri.scheme_str() {
                Some("http") => {}
                // RFC 9110, 7.4: only a gateway may say that an unencrypted request was once encrypted.
                Some("https") if trusted => {}
                Some("https") => {
                    return Err(refuse(
                        StatusCode::MISDIRECTED_REQUEST,
                        "this connection is not encrypted",
                    ));
                }
                _ => return bad("the request target is no http URI"),
            }
            // RFC 9112, 3.2.2: Host is ignored then.
            if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
                head.headers.insert(header::HOST, host);
            }
        }
        None if host.is_none() && head.version != Version::HTTP_10 => return bad("no Host"),
        None => {}
    }
    Ok(())
}

/// HTTP/1 has spaces around values, which hyper takes off; in HTTP/2 they are part of them, and malformed (RFC 9113, 8.2.1).
fn is_padded(value: &HeaderValue) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_space(value.as_bytes().first()) || is_space(value.as_bytes().last())
}

/// Those rules that are left for a request which somebody else has taken in. It may have no `Host`: load balancers ask without one
/// whether a function is well.
pub fn check_relayed(head: &http::request::Parts) -> Result<(), Refusal> {
    check_method(&head.method)?;
    check_host(&head.headers).map(|_| ())
}

fn check_method(method: &Method) -> Result<(), Refusal> {
    if method.as_str().len() > MAX_METHOD {
        return Err(refuse(StatusCode::NOT_IMPLEMENTED, "no such method"));
    }
    if *method == Method::CONNECT {
        return Err(refuse(
            StatusCode::METHOD_NOT_ALLOWED,
            "this is not a proxy",
        ));
    }
    Ok(())
}

/// `Host`, if there is one, and whether there is a transfer coding: one look at all headers.
fn check_host(headers: &HeaderMap) -> Result<(Option<&HeaderValue>, bool), Refusal> {
    let bad = |why| Err(refuse(StatusCode::BAD_REQUEST, why));
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

/// hyper takes everything whose last word is `chunked` for chunked alone.
fn check_transfer_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut codings = headers
        .get_all(header::TRANSFER_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|c| *c == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|coding| !coding.is_empty());
    let mut chunked = 0;
    if !codings.all(|coding| {
        chunked += 1;
        coding.eq_ignore_ascii_case(b"chunked")
    }) {
        return Err(refuse(
            StatusCode::NOT_IMPLEMENTED,
            "the only known transfer coding is chunked",
        ));
    }
    match chunked {
        0 | 1 => Ok(()),
        _ => Err(refuse(StatusCode::BAD_REQUEST, "chunked more than once")),
    }
}

/// RFC 9110, 7.2: `uri-host [ ":" port ]`, and an empty one for targets without authority.
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

/// Was the request refused because we do not understand it, or do not want the rest of it? Then nobody knows where the next
/// one would begin.
pub fn ends_connection(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::URI_TOO_LONG
            | StatusCode::NOT_IMPLEMENTED
            | StatusCode::INSUFFICIENT_STORAGE
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
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
            "a b", "a/b", "u@a", "a:b", "a:80:80", "a:+80", "a:99999", "[::1", "[::1]x", "[a]",
            "::1", "a%zz", "a%2", "a?b", "a#b", "a\\b", "\u{e9}", "[]",
        ] {
            assert!(!is_host(invalid.as_bytes()), "{invalid}");
        }
    }

    #[test]
    fn only_chunked_and_only_once() {
        let check = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::TRANSFER_ENCODING, value.parse().unwrap());
            }
            check_transfer_encoding(&headers)
                .map_err(|refusal| refusal.status.as_u16())
                .err()
        };
        assert_eq!(check(&[]), None);
        assert_eq!(check(&["Chunked"]), None);
        assert_eq!(check(&["gzip, chunked"]), Some(501));
        assert_eq!(check(&["identity", "chunked"]), Some(501));
        assert_eq!(check(&[", chunked"]), None);
        assert_eq!(check(&["chunked, chunked"]), Some(400));
        assert_eq!(check(&["chunked", "chunked"]), Some(400));
    }
}
