//! An event as CGI variables: the one place where `$_SERVER` is made (RFC 3875, section 4.1; names beyond it as nginx's
//! `fastcgi_params` has them).

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, HeaderName};
use http::{HeaderMap, Version};

use crate::event::Event;

pub const SERVER_SOFTWARE: &str = concat!("surus/", env!("CARGO_PKG_VERSION"));

/// Calls `put(name, value)` for every variable of the event.
pub fn each(event: &Event, mut put: impl FnMut(&[u8], &[u8])) {
    let request = &event.request;
    let headers = request.headers();
    let script = &event.script;
    let mut scratch = Vec::with_capacity(128);

    let target = request.uri().path_and_query();
    put(
        b"QUERY_STRING",
        request.uri().query().unwrap_or_default().as_bytes(),
    );
    put(b"REQUEST_METHOD", request.method().as_str().as_bytes());
    if let Some(kind) = headers.get(CONTENT_TYPE) {
        put(b"CONTENT_TYPE", kind.as_bytes());
    }
    let body_len = request.body().len();
    if body_len > 0 || headers.contains_key(CONTENT_LENGTH) {
        put(b"CONTENT_LENGTH", number(&mut scratch, body_len));
    }
    put(b"SCRIPT_NAME", script.name.as_bytes());
    put(
        b"REQUEST_URI",
        target.map_or("/", |t| t.as_str()).as_bytes(),
    );
    scratch.clear();
    scratch.extend_from_slice(script.name.as_bytes());
    scratch.extend_from_slice(script.path_info.as_bytes());
    put(b"DOCUMENT_URI", &scratch);
    put(b"DOCUMENT_ROOT", script.root.as_bytes());
    put(b"SERVER_PROTOCOL", protocol(request.version()));
    put(
        b"REQUEST_SCHEME",
        if event.origin.https {
            b"https"
        } else {
            b"http"
        },
    );
    if event.origin.https {
        put(b"HTTPS", b"on");
    }
    put(b"GATEWAY_INTERFACE", b"CGI/1.1");
    put(b"SERVER_SOFTWARE", SERVER_SOFTWARE.as_bytes());
    if let Some(client) = event.origin.client {
        scratch.clear();
        let _ = write!(scratch, "{}", client.ip());
        put(b"REMOTE_ADDR", &scratch);
        put(b"REMOTE_PORT", number(&mut scratch, client.port().into()));
    } else {
        put(b"REMOTE_ADDR", b"");
    }
    let host = host(event);
    let (name, named_port) = split_port(host);
    if let Some(server) = event.origin.server {
        scratch.clear();
        let _ = write!(scratch, "{}", server.ip());
        put(b"SERVER_ADDR", &scratch);
    }
    // What the client believes it talks to, when a proxy speaks for it; else where the connection arrived.
    let port = match (event.origin.https, event.origin.server) {
        (true, _) => named_port.unwrap_or(443),
        (false, Some(server)) => server.port(),
        (false, None) => named_port.unwrap_or(80),
    };
    put(b"SERVER_PORT", number(&mut scratch, port.into()));
    put(b"SERVER_NAME", name.as_bytes());
    // php-cgi's guard against being called directly; applications test it too.
    put(b"REDIRECT_STATUS", b"200");
    put(b"FCGI_ROLE", b"RESPONDER");
    put(b"SCRIPT_FILENAME", script.filename.as_os_str().as_bytes());
    put(b"PATH_INFO", script.path_info.as_bytes());
    if !script.path_info.is_empty() {
        scratch.clear();
        scratch.extend_from_slice(script.root.as_bytes());
        scratch.extend_from_slice(script.path_info.as_bytes());
        put(b"PATH_TRANSLATED", &scratch);
    }
    each_header(headers, put);
}

/// The request's headers as `HTTP_*`.
fn each_header(headers: &HeaderMap, mut put: impl FnMut(&[u8], &[u8])) {
    let mut name = Vec::with_capacity(64);
    let mut joined = Vec::new();
    for key in headers.keys() {
        // RFC 3875, 4.1.18: not those that have a variable of their own. `Proxy` would become HTTP_PROXY, which HTTP clients
        // take for their proxy (httpoxy, CVE-2016-5385).
        if key == CONTENT_TYPE
            || key == CONTENT_LENGTH
            || key.as_str() == "proxy"
            || !is_unambiguous(key)
        {
            continue;
        }
        name.clear();
        name.extend_from_slice(b"HTTP_");
        name.extend(key.as_str().bytes().map(|c| {
            if c == b'-' {
                b'_'
            } else {
                c.to_ascii_uppercase()
            }
        }));
        let mut values = headers.get_all(key).iter();
        let Some(first) = values.next() else { continue };
        let mut value = first.as_bytes();
        if values.size_hint().0 > 0 || values.size_hint().1 != Some(0) {
            joined.clear();
            joined.extend_from_slice(value);
            for more in values {
                joined.extend_from_slice(if key == COOKIE { b"; " } else { b", " });
                joined.extend_from_slice(more.as_bytes());
            }
            value = &joined;
        }
        put(&name, value);
    }
}

/// `X_Real_IP` and `X-Real-IP` would be one variable, so that a client could speak for a proxy. As nginx does, names with
/// other characters than letters, digits and hyphens are dropped.
fn is_unambiguous(name: &HeaderName) -> bool {
    name.as_str()
        .bytes()
        .all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

fn protocol(version: Version) -> &'static [u8] {
    match version {
        Version::HTTP_10 => b"HTTP/1.0",
        Version::HTTP_2 => b"HTTP/2.0",
        Version::HTTP_3 => b"HTTP/3.0",
        _ => b"HTTP/1.1",
    }
}

fn host(event: &Event) -> &str {
    let headers = event.request.headers();
    match headers.get(HOST).and_then(|host| host.to_str().ok()) {
        Some(host) => host,
        None => event
            .request
            .uri()
            .authority()
            .map_or("", |authority| authority.as_str()),
    }
}

/// `[::1]:8080` → `[::1]`, 8080.
fn split_port(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port.parse().ok()),
        _ => (host, None),
    }
}

fn number(scratch: &mut Vec<u8>, number: u64) -> &[u8] {
    scratch.clear();
    let _ = write!(scratch, "{number}");
    scratch
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::event::{Body, Origin, Script};
    use std::collections::BTreeMap;
    use std::time::Instant;

    fn vars(request: http::request::Builder, body: Body, https: bool) -> BTreeMap<String, String> {
        let event = Event {
            id: 1,
            request: request.body(body).unwrap(),
            script: Script {
                root: "/srv/app".into(),
                filename: "/srv/app/index.php".into(),
                name: "/index.php".into(),
                path_info: "/a b".into(),
            },
            origin: Origin {
                client: Some("192.0.2.7:4711".parse().unwrap()),
                server: Some("[::1]:8080".parse().unwrap()),
                https,
            },
            deadline: Instant::now(),
            early_hints: None,
        };
        let mut vars = BTreeMap::new();
        each(&event, |name, value| {
            let name = String::from_utf8(name.to_vec()).unwrap();
            let value = String::from_utf8(value.to_vec()).unwrap();
            assert!(vars.insert(name.clone(), value).is_none(), "{name} twice");
        });
        vars
    }

    #[test]
    fn the_request_line_is_kept_raw() {
        let vars = vars(
            http::Request::get("/index.php/a%20b?x=%41&x=2"),
            Body::Empty,
            false,
        );
        assert_eq!(vars["REQUEST_URI"], "/index.php/a%20b?x=%41&x=2");
        assert_eq!(vars["QUERY_STRING"], "x=%41&x=2");
        assert_eq!(vars["PATH_INFO"], "/a b");
        assert_eq!(vars["PATH_TRANSLATED"], "/srv/app/a b");
        assert_eq!(vars["REMOTE_ADDR"], "192.0.2.7");
        assert_eq!(vars["SERVER_ADDR"], "::1");
        assert_eq!(vars["SERVER_PORT"], "8080");
        assert!(
            !vars.contains_key("HTTPS")
                && !vars.contains_key("CONTENT_TYPE")
                && !vars.contains_key("CONTENT_LENGTH")
        );
    }

    #[test]
    fn headers_are_joined_and_dangerous_ones_dropped() {
        let request = http::Request::post("/")
            .header("host", "example.org:81")
            .header("x-list", "a")
            .header("x-list", "b")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .header("proxy", "http://evil.example")
            .header("x_list", "spoofed")
            .header("content-type", "text/plain")
            .header("authorization", "Basic Zm9vOmJhcg==");
        let vars = vars(request, Body::Memory("abc".into()), true);
        assert_eq!(vars["HTTP_X_LIST"], "a, b");
        assert_eq!(vars["HTTP_COOKIE"], "a=1; b=2");
        assert!(!vars.contains_key("HTTP_PROXY") && !vars.contains_key("HTTP_CONTENT_TYPE"));
        assert_eq!(vars["CONTENT_LENGTH"], "3");
        assert_eq!(vars["HTTPS"], "on");
        assert_eq!(vars["SERVER_NAME"], "example.org");
        assert_eq!(vars["SERVER_PORT"], "81");
    }
}
