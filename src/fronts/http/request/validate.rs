//! Validates HTTP requests by the rules of RFC 9110, 9112 and 9113 that hyper does not enforce.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode, Version};

use crate::app::validate::{RequestRejection, check_host, check_method, is_host, reject};
use crate::fronts::http::Settings;

/// Validates a request. Afterwards `Host` names the authority, also if the target named it.
pub fn check(
    parts: &mut http::request::Parts,
    settings: &Settings,
    may_be_https: bool,
) -> Result<(), RequestRejection> {
    let bad = |why| Err(reject(StatusCode::BAD_REQUEST, why));
    let target = parts
        .uri
        .path_and_query()
        .map_or("", |target| target.as_str());
    if target.len() as u64 > settings.max_uri.0 {
        return Err(reject(
            StatusCode::URI_TOO_LONG,
            "the request target is too long",
        ));
    }
    // hyper counts the lines of HTTP/1.
    if parts.headers.len() > settings.max_headers {
        return Err(reject(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "too many header lines",
        ));
    }
    if parts.version >= Version::HTTP_2 && parts.headers.values().any(is_padded) {
        return bad("a header's value begins or ends with a space or tab");
    }
    // h2 checks this itself, h3 does not.
    if parts.version == Version::HTTP_3
        && let Some(why) = malformed_http_3(&parts.headers)
    {
        return bad(why);
    }
    check_method(&parts.method)?;
    let is_server_wide = parts.method == Method::OPTIONS && target == "*";
    if !target.starts_with('/') && !is_server_wide {
        return bad("the request target is not a path");
    }
    let (host, is_coded) = check_host(&parts.headers)?;
    // RFC 9110, 4.2.1: an http URI always has a host.
    if host.is_some_and(HeaderValue::is_empty) {
        return bad("an empty Host");
    }
    if is_coded {
        check_transfer_encoding(&parts.headers)?;
    }
    match parts.uri.authority() {
        Some(authority) => {
            if host.is_none() && parts.version == Version::HTTP_11 {
                return bad("no Host");
            }
            if !is_host(authority.as_str().as_bytes()) {
                return bad("an invalid authority");
            }
            if parts.version >= Version::HTTP_2
                && host.is_some_and(|host| {
                    !host
                        .as_bytes()
                        .eq_ignore_ascii_case(authority.as_str().as_bytes())
                })
            {
                return bad("Host is not :authority");
            }
            match parts.uri.scheme_str() {
                Some("http") => {}
                // RFC 9110, 7.4: only a trusted gateway may say that the client used TLS, unless
                // this connection does.
                Some("https") if may_be_https => {}
                Some("https") => {
                    return Err(reject(
                        StatusCode::MISDIRECTED_REQUEST,
                        "this connection is not encrypted",
                    ));
                }
                _ => return bad("the request target is not an http URI"),
            }
            // RFC 9112, 3.2.2: Host is ignored then.
            if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
                parts.headers.insert(header::HOST, host);
            }
        }
        None if host.is_none() && parts.version != Version::HTTP_10 => return bad("no Host"),
        None => {}
    }
    Ok(())
}

/// Why headers are malformed in HTTP/3 (RFC 9114, 4.1.2 and 4.2).
fn malformed_http_3(headers: &HeaderMap) -> Option<&'static str> {
    const OF_CONNECTIONS: [&str; 5] = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    ];
    if OF_CONNECTIONS
        .iter()
        .any(|name| headers.contains_key(*name))
    {
        return Some("a header that concerns connections of HTTP/1");
    }
    if headers.get(header::TE).is_some_and(|te| te != "trailers") {
        return Some("a TE other than trailers");
    }
    let is_number = |value: &HeaderValue| {
        let digits = value.as_bytes();
        let is_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        is_digits
            && value
                .to_str()
                .is_ok_and(|value| value.parse::<u64>().is_ok())
    };
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    match (lengths.next(), lengths.next()) {
        (Some(_), Some(_)) => Some("more than one Content-Length"),
        (Some(length), None) if !is_number(length) => Some("an invalid Content-Length"),
        _ => None,
    }
}

/// Whether a value begins or ends with whitespace. hyper removes it in HTTP/1; in HTTP/2 and HTTP/3
/// it is malformed (RFC 9113, 8.2.1; RFC 9114, 10.3).
fn is_padded(value: &HeaderValue) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_space(value.as_bytes().first()) || is_space(value.as_bytes().last())
}

/// Rejects other codings than `chunked`: hyper treats every list that ends with `chunked` as
/// chunked.
fn check_transfer_encoding(headers: &HeaderMap) -> Result<(), RequestRejection> {
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
        return Err(reject(
            StatusCode::NOT_IMPLEMENTED,
            "the only known transfer coding is chunked",
        ));
    }
    match chunked {
        0 | 1 => Ok(()),
        _ => Err(reject(StatusCode::BAD_REQUEST, "chunked more than once")),
    }
}

/// Whether a rejection with this status ends the connection, because the rest of the request was
/// not understood or is not read. The start of the next request is then unknown.
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
    fn headers_of_http_1_are_malformed_in_http_3() {
        let check = |headers: &[(&'static str, &'static str)]| {
            let mut all = HeaderMap::new();
            for (name, value) in headers {
                all.append(*name, HeaderValue::from_static(value));
            }
            malformed_http_3(&all).is_some()
        };
        for fine in [
            &[("te", "trailers"), ("content-length", "0")][..],
            &[("cookie", "a"), ("cookie", "b")],
        ] {
            assert!(!check(fine), "{fine:?}");
        }
        for wrong in [
            &[("connection", "close")][..],
            &[("transfer-encoding", "chunked")],
            &[("upgrade", "h2c")],
            &[("te", "gzip")],
            &[("content-length", "+1")],
            &[("content-length", "")],
            &[("content-length", "99999999999999999999")],
            &[("content-length", "1"), ("content-length", "1")],
        ] {
            assert!(check(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn transfer_coding_other_than_one_chunked_is_rejected() {
        let check = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::TRANSFER_ENCODING, value.parse().unwrap());
            }
            check_transfer_encoding(&headers)
                .map_err(|rejection| rejection.status.as_u16())
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
