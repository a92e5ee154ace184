//! W3C Trace Context: reads `traceparent` and `tracestate` of requests, and writes them for PHP.

use std::fmt;

use http::HeaderMap;
use http::header::HeaderName;

pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The most members of a `tracestate`.
const MAX_MEMBERS: usize = 32;

/// The longest `tracestate`. Shorter ones must be passed on from 512 bytes on.
const MAX_STATE: usize = 4096;

/// Where a request belongs in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub is_sampled: bool,
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace = u128::from_be_bytes(self.trace);
        let span = u64::from_be_bytes(self.span);
        write!(
            f,
            "00-{trace:032x}-{span:016x}-0{}",
            u8::from(self.is_sampled)
        )
    }
}

/// The context of the caller and its state. None without exactly one valid `traceparent`.
pub fn read(headers: &HeaderMap) -> Option<(Context, Option<String>)> {
    let mut values = headers.get_all(&TRACEPARENT).iter();
    let context = parent(values.next()?.as_bytes())?;
    if values.next().is_some() {
        return None;
    }
    Some((context, state(headers)))
}

fn parent(text: &[u8]) -> Option<Context> {
    let (text, more) = text.split_at_checked(55)?;
    let version = hex::<1>(&text[..2])?;
    // Later versions may add something after another hyphen.
    let is_known = match version {
        [0] => more.is_empty(),
        [0xff] => false,
        _ => more.is_empty() || more.starts_with(b"-"),
    };
    if !is_known || [2, 35, 52].iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let (trace, span) = (hex(&text[3..35])?, hex(&text[36..52])?);
    let [flags] = hex(&text[53..55])?;
    let context = Context {
        trace,
        span,
        is_sampled: flags & 1 == 1,
    };
    (trace != [0; 16] && span != [0; 8]).then_some(context)
}

/// Lower-case digits only.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// A valid `tracestate`; its headers are one list.
fn state(headers: &HeaderMap) -> Option<String> {
    let mut members: Vec<&str> = Vec::new();
    for value in headers.get_all(&TRACESTATE) {
        let list = value.to_str().ok()?;
        let list = list
            .split(',')
            .map(|member| member.trim_matches([' ', '\t']));
        members.extend(list.filter(|member| !member.is_empty()));
    }
    let mut keys: Vec<&str> = Vec::new();
    for member in &members {
        let (key, value) = member.split_once('=')?;
        if !is_key(key) || !is_value(value) || keys.contains(&key) || keys.len() == MAX_MEMBERS {
            return None;
        }
        keys.push(key);
    }
    let text = members.join(",");
    (!members.is_empty() && text.len() <= MAX_STATE).then_some(text)
}

fn is_key(key: &str) -> bool {
    let is_simple = |text: &str, most: usize| {
        let mut bytes = text.bytes();
        text.len() <= most
            && bytes
                .next()
                .is_some_and(|first| first.is_ascii_lowercase() || first.is_ascii_digit())
            && bytes.all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/".contains(&byte)
            })
    };
    match key.split_once('@') {
        Some((tenant, system)) => is_simple(tenant, 241) && is_simple(system, 14),
        None => is_simple(key, 256),
    }
}

fn is_value(value: &str) -> bool {
    let is_allowed = |byte: u8| (0x20..=0x7e).contains(&byte) && byte != b',' && byte != b'=';
    value.len() <= 256
        && !value.is_empty()
        && !value.ends_with(' ')
        && value.bytes().all(is_allowed)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn valid_parent_is_read_and_written_back() {
        let (context, state) = read(&headers(&[("traceparent", GOOD)])).unwrap();
        assert_eq!((context.to_string().as_str(), state), (GOOD, None));
        let later = GOOD.replacen("00", "cc", 1) + "-more";
        let (context, _) = read(&headers(&[("traceparent", &later)])).unwrap();
        assert_eq!(context.to_string(), GOOD);
        let flags = GOOD.replace("-01", "-fe");
        assert!(
            !read(&headers(&[("traceparent", &flags)]))
                .unwrap()
                .0
                .is_sampled
        );
    }

    #[test]
    fn invalid_parent_is_none() {
        let zeros = "0".repeat(32);
        for bad in [
            "",
            "00",
            &GOOD.to_uppercase(),
            &format!("{GOOD}-more"),
            &format!("{GOOD} "),
            &GOOD.replacen("00", "ff", 1),
            &GOOD.replacen("00", "0g", 1),
            &GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &zeros),
            &GOOD.replace("00f067aa0ba902b7", &zeros[..16]),
            &GOOD.replace('-', "_"),
            &GOOD[..54],
            &(GOOD.replacen("00", "01", 1) + "x"),
        ] {
            assert_eq!(read(&headers(&[("traceparent", bad)])), None, "{bad}");
        }
        assert_eq!(
            read(&headers(&[("traceparent", GOOD), ("traceparent", GOOD)])),
            None
        );
    }

    #[test]
    fn state_is_one_list_and_an_invalid_one_is_left_out() {
        let state = |values: &[&str]| {
            let mut list = vec![("traceparent", GOOD)];
            list.extend(values.iter().map(|value| ("tracestate", *value)));
            read(&headers(&list)).unwrap().1
        };
        assert_eq!(
            state(&["a=1 , b@c=2,", "d=x y"]).unwrap(),
            "a=1,b@c=2,d=x y"
        );
        let many: Vec<String> = (0..33).map(|n| format!("k{n}=v")).collect();
        let long = format!("a={}", "x".repeat(257));
        for bad in [
            "a",
            "A=1",
            "a=1,a=2",
            "a=b=c",
            "@b=1",
            "a=",
            &many.join(","),
            &long,
            "",
        ] {
            assert_eq!(state(&[bad]), None, "{bad}");
        }
        assert!(state(&[&many[..32].join(",")]).is_some());
    }
}
