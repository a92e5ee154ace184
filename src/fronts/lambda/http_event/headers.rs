//! Reads the client's headers, and the facts about the client that the service has added.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{COOKIE, Entry, HeaderName, HeaderValue};

use super::Malformed;
use super::fields::{Object, Pairs};
use crate::event::Address;

/// The headers of an event, in its order. `headers` has one value per name. If the service sends
/// `multiValueHeaders`, those contain everything that `headers` does.
pub fn from_event(event: &Object<'_>) -> Result<HeaderMap, Malformed> {
    let (mut at, mut pairs) = ("multiValueHeaders", event.pairs("multiValueHeaders")?);
    if pairs.is_empty() {
        (at, pairs) = ("headers", event.pairs("headers")?);
    }
    map(&pairs, at)
}

/// Maximum number of header names. PHP accepts fewer variables, and a `HeaderMap` is limited too.
const MAX: usize = 1024;

fn map(pairs: &Pairs<'_>, at: &str) -> Result<HeaderMap, Malformed> {
    if pairs.len() > MAX {
        let what = format!("{} headers exceed what PHP accepts", pairs.len());
        return Err(Malformed::new(at, what));
    }
    // One more for a header that the event has in another field.
    let mut headers = HeaderMap::with_capacity(pairs.len() + 1);
    for (name, values) in pairs {
        let known = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| Malformed::new(at, format!("{name:?} is not a valid header name")))?;
        let mut values = values.each().map(|value| header_value(value, at, name));
        let mut entry = match headers.entry(known) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(entry) => match values.next() {
                Some(first) => entry.insert_entry(first?),
                None => continue,
            },
        };
        for value in values {
            entry.append(value?);
        }
    }
    Ok(headers)
}

pub fn header_value(text: &str, at: &str, name: &str) -> Result<HeaderValue, Malformed> {
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| {
        let what = format!("{text:?} is not a valid value of `{name}`");
        Malformed::new(at, what)
    })
}

/// Adds the cookies, which version 2 sends as a list. A function URL sends them among the headers
/// too.
pub fn insert_cookies(headers: &mut HeaderMap, cookies: &[Cow<'_, str>]) -> Result<(), Malformed> {
    if !cookies.is_empty() {
        let value = header_value(&cookies.join("; "), "cookies", "cookie")?;
        headers.insert(COOKIE, value);
    }
    Ok(())
}

/// Whether the client's connection to the service used TLS; `usual` if the service does not say.
pub fn https(headers: &HeaderMap, usual: bool) -> bool {
    last(headers, "x-forwarded-proto").map_or(usual, |proto| proto.eq_ignore_ascii_case("https"))
}

/// The client's address as the load balancer saw it. Only the last one is trustworthy; the client
/// may have sent those before it.
pub fn forwarded_for(headers: &HeaderMap) -> Option<Address> {
    address(last(headers, "x-forwarded-for")?)
}

fn last<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    value.rsplit(',').next().map(str::trim)
}

/// Parses `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]:4711`; port 0 if none is
/// given. None for the placeholder that API Gateway's console sends.
pub fn address(text: &str) -> Option<Address> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.into());
    }
    let ip: IpAddr = text.parse().ok()?;
    Some(SocketAddr::new(ip.to_canonical(), 0).into())
}
