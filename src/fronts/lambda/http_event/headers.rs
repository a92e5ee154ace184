//! The header lines that the client sent, and what the service in between has added about the client.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{COOKIE, Entry, HeaderName, HeaderValue};

use super::Malformed;
use super::fields::{Object, Pairs};
use crate::event::Address;

/// The header lines of an event, in its order. What has one value for each name stands in `headers`; where lists are sent, they
/// have all that `headers` has.
pub fn of(event: &Object<'_>) -> Result<HeaderMap, Malformed> {
    let (mut at, mut pairs) = ("multiValueHeaders", event.pairs("multiValueHeaders")?);
    if pairs.is_empty() {
        (at, pairs) = ("headers", event.pairs("headers")?);
    }
    map(&pairs, at)
}

/// Names of headers. PHP's processes take fewer variables, and a `HeaderMap` has an end too.
const MOST: usize = 1024;

fn map(pairs: &Pairs<'_>, at: &str) -> Result<HeaderMap, Malformed> {
    if pairs.len() > MOST {
        let what = format!("{} headers are more than PHP can be given", pairs.len());
        return Err(Malformed::new(at, what));
    }
    // One more, for what the event says elsewhere.
    let mut headers = HeaderMap::with_capacity(pairs.len() + 1);
    for (name, values) in pairs {
        let known = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| Malformed::new(at, format!("{name:?} is not the name of a header")))?;
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
        let what = format!("{text:?} cannot be the value of `{name}`");
        Malformed::new(at, what)
    })
}

/// Cookies have a list of their own in version 2. A function URL has them among the headers too.
pub fn insert_cookies(headers: &mut HeaderMap, cookies: &[Cow<'_, str>]) -> Result<(), Malformed> {
    if !cookies.is_empty() {
        let value = header_value(&cookies.join("; "), "cookies", "cookie")?;
        headers.insert(COOKIE, value);
    }
    Ok(())
}

/// Did the client's own connection end at the service encrypted? `usual` when the service does not say.
pub fn https(headers: &HeaderMap, usual: bool) -> bool {
    last(headers, "x-forwarded-proto").map_or(usual, |proto| proto.eq_ignore_ascii_case("https"))
}

/// The client as the load balancer saw it: the last one is its own, those before it the client may have written.
pub fn forwarded_for(headers: &HeaderMap) -> Option<Address> {
    address(last(headers, "x-forwarded-for")?)
}

fn last<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    value.rsplit(',').next().map(str::trim)
}

/// `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]:4711`; port 0 where none is given. None for what API Gateway's
/// console calls its own address.
pub fn address(text: &str) -> Option<Address> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.into());
    }
    let ip: IpAddr = text.parse().ok()?;
    Some(SocketAddr::new(ip.to_canonical(), 0).into())
}
