//! Converts an event to CGI variables, the only source of `$_SERVER` (RFC 3875, section 4.1; other
//! names as in nginx's `fastcgi_params`).

use std::os::unix::ffi::OsStrExt;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, HeaderName};
use http::{HeaderMap, Version};

use crate::event::{Event, split_port};

pub const SERVER_SOFTWARE: &str = concat!("surus/", env!("CARGO_PKG_VERSION"));

/// The variables of a request that are not headers.
const NAMES: [&str; 40] = [
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "DOCUMENT_ROOT",
    "DOCUMENT_URI",
    "FCGI_ROLE",
    "GATEWAY_INTERFACE",
    "HTTPS",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "QUERY_STRING",
    "REDIRECT_QUERY_STRING",
    "REDIRECT_STATUS",
    "REDIRECT_URL",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "REQUEST_METHOD",
    "REQUEST_SCHEME",
    "REQUEST_URI",
    "SCRIPT_FILENAME",
    "SCRIPT_NAME",
    "SERVER_ADDR",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "SERVER_SOFTWARE",
    "SSL_CIPHER",
    "SSL_CIPHER_ALGKEYSIZE",
    "SSL_CIPHER_USEKEYSIZE",
    "SSL_CLIENT_CERT",
    "SSL_CLIENT_I_DN",
    "SSL_CLIENT_M_SERIAL",
    "SSL_CLIENT_S_DN",
    "SSL_CLIENT_VERIFY",
    "SSL_CLIENT_V_END",
    "SSL_CLIENT_V_START",
    "SSL_PROTOCOL",
    "SSL_SESSION_RESUMED",
    "SSL_TLS_SNI",
    "TRACEPARENT",
    "TRACESTATE",
];

/// Whether a request can have a variable of this name. No library reads these by itself.
pub fn is_cgi(name: &str) -> bool {
    let is_header = name.starts_with("HTTP_") && name != "HTTP_PROXY";
    is_header || NAMES.contains(&name)
}

/// Receives variables in any output format.
pub trait Variables {
    fn put(&mut self, name: &[u8], value: &[u8]);
}

/// Puts every variable of the event once.
pub fn each(event: &Event, to: &mut impl Variables) {
    let request = &event.request;
    let headers = request.headers();
    let script = &event.script;
    let mut joined = Vec::new();

    let (mut content_type, mut content_length, mut host) = (None, None, None);
    for (name, value) in headers {
        let named = match name {
            name if *name == CONTENT_TYPE => &mut content_type,
            name if *name == CONTENT_LENGTH => &mut content_length,
            name if *name == HOST => &mut host,
            _ => continue,
        };
        named.get_or_insert(value);
    }

    let target = request.uri().path_and_query();
    let query = match &script.query {
        Some(query) => Some(&**query),
        None => target.and_then(|target| target.query()),
    };
    to.put(b"QUERY_STRING", query.unwrap_or_default().as_bytes());
    to.put(b"REQUEST_METHOD", request.method().as_str().as_bytes());
    if let Some(content_type) = content_type {
        to.put(b"CONTENT_TYPE", content_type.as_bytes());
    }
    let body_len = request.body().len();
    if body_len > 0 || content_length.is_some() {
        to.put(b"CONTENT_LENGTH", body_len.to_string().as_bytes());
    }
    to.put(b"SCRIPT_NAME", script.name.as_bytes());
    to.put(
        b"REQUEST_URI",
        target.map_or("/", |t| t.as_str()).as_bytes(),
    );
    if script.path_info.is_empty() {
        to.put(b"DOCUMENT_URI", script.name.as_bytes());
    } else {
        joined.extend_from_slice(script.name.as_bytes());
        joined.extend_from_slice(script.path_info.as_bytes());
        to.put(b"DOCUMENT_URI", &joined);
    }
    to.put(b"DOCUMENT_ROOT", script.root.as_bytes());
    to.put(b"SERVER_PROTOCOL", protocol(request.version()));
    if event.origin.https {
        to.put(b"REQUEST_SCHEME", b"https");
        to.put(b"HTTPS", b"on");
    } else {
        to.put(b"REQUEST_SCHEME", b"http");
    }
    to.put(b"GATEWAY_INTERFACE", b"CGI/1.1");
    to.put(b"SERVER_SOFTWARE", SERVER_SOFTWARE.as_bytes());
    if let Some(client) = &event.origin.client {
        to.put(b"REMOTE_ADDR", client.ip_text().as_bytes());
        to.put(b"REMOTE_PORT", client.port_text().as_bytes());
    } else {
        to.put(b"REMOTE_ADDR", b"");
    }
    let authority = || request.uri().authority().map_or("", |name| name.as_str());
    let host = host.and_then(|host| host.to_str().ok());
    let host = host.unwrap_or_else(authority);
    if let Some(server) = &event.origin.server {
        to.put(b"SERVER_ADDR", server.ip_text().as_bytes());
    }
    to.put(b"SERVER_PORT", event.origin.server_port(host).as_bytes());
    to.put(b"SERVER_NAME", split_port(host).0.as_bytes());
    // php-cgi requires this variable as a guard against direct calls; applications check it too.
    to.put(b"REDIRECT_STATUS", b"200");
    if let Some(rewritten) = &script.rewritten {
        to.put(b"REDIRECT_URL", rewritten.path.as_bytes());
        if let Some(query) = &rewritten.query {
            to.put(b"REDIRECT_QUERY_STRING", query.as_bytes());
        }
    }
    to.put(b"FCGI_ROLE", b"RESPONDER");
    to.put(b"SCRIPT_FILENAME", script.filename.as_os_str().as_bytes());
    to.put(b"PATH_INFO", script.path_info.as_bytes());
    if !script.path_info.is_empty() {
        joined.clear();
        joined.extend_from_slice(script.root.as_bytes());
        joined.extend_from_slice(script.path_info.as_bytes());
        to.put(b"PATH_TRANSLATED", &joined);
    }
    each_header(headers, to);
    for (name, value) in &event.variables {
        to.put(name.as_bytes(), value.as_bytes());
    }
}

/// The request's headers as `HTTP_*`.
fn each_header(headers: &HeaderMap, to: &mut impl Variables) {
    let mut variable = Vec::with_capacity(64);
    let mut joined = Vec::new();
    // Values of the same name are adjacent.
    let mut fields = headers.iter().peekable();
    while let Some((name, value)) = fields.next() {
        let mut value = value.as_bytes();
        if let Some((next, _)) = fields.peek()
            && *next == name
        {
            joined.clear();
            joined.extend_from_slice(value);
            while let Some((_, more)) = fields.next_if(|(next, _)| *next == name) {
                joined.extend_from_slice(if name == COOKIE { b"; " } else { b", " });
                joined.extend_from_slice(more.as_bytes());
            }
            value = &joined;
        }
        // Skip headers with a variable of their own (RFC 3875, 4.1.18). `Proxy` would become
        // HTTP_PROXY, which HTTP clients use as their proxy (httpoxy, CVE-2016-5385).
        if name == CONTENT_TYPE || name == CONTENT_LENGTH || name.as_str() == "proxy" {
            continue;
        }
        variable.clear();
        variable.extend_from_slice(b"HTTP_");
        if extend_unambiguous(&mut variable, name) {
            to.put(&variable, value);
        }
    }
}

/// Appends the variable name. `X_Real_IP` and `X-Real-IP` would get the same variable, which would
/// let a client impersonate a proxy. Like nginx, returns false for names with other characters than
/// letters, digits and hyphens; these headers are dropped.
fn extend_unambiguous(variable: &mut Vec<u8>, name: &HeaderName) -> bool {
    let mut unambiguous = true;
    variable.extend(name.as_str().bytes().map(|c| match c {
        b'-' => b'_',
        _ => {
            unambiguous &= c.is_ascii_alphanumeric();
            c.to_ascii_uppercase()
        }
    }));
    unambiguous
}

fn protocol(version: Version) -> &'static [u8] {
    match version {
        Version::HTTP_10 => b"HTTP/1.0",
        Version::HTTP_2 => b"HTTP/2.0",
        Version::HTTP_3 => b"HTTP/3.0",
        _ => b"HTTP/1.1",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::event::{Address, Body, Origin, RewrittenUrl, Script};
    use std::collections::BTreeMap;
    use std::net::SocketAddr;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn every_variable_is_documented() {
        let text = include_str!("../../../docs/reference/http.md");
        for name in NAMES {
            assert!(text.contains(&format!("`{name}`")), "{name}");
        }
    }

    fn vars(request: http::request::Builder, body: Body, https: bool) -> BTreeMap<String, String> {
        let event = Event {
            id: 1,
            request: request.body(body).unwrap(),
            script: Script {
                root: "/srv/app".into(),
                filename: Path::new("/srv/app/index.php").into(),
                name: "/index.php".into(),
                path_info: "/a b".into(),
                query: None,
                rewritten: Some(Arc::new(RewrittenUrl {
                    path: "/a \u{e4}".into(),
                    query: Some("x=%41".into()),
                })),
            },
            origin: Origin {
                client: Some(address("192.0.2.7:4711")),
                server: Some(address("[::1]:8080")),
                https,
            },
            variables: vec![("LAMBDA_TASK".into(), "x".to_string())],
            deadline: Instant::now(),
            idle_timeout: None,
            spool: None,
            completion_token: None,
            early_hints: None,
        };
        let mut vars = BTreeMap::new();
        each(&event, &mut vars);
        vars
    }

    fn address(text: &str) -> Address {
        text.parse::<SocketAddr>().unwrap().into()
    }

    impl Variables for BTreeMap<String, String> {
        fn put(&mut self, name: &[u8], value: &[u8]) {
            let name = String::from_utf8(name.to_vec()).unwrap();
            let value = String::from_utf8(value.to_vec()).unwrap();
            assert!(self.insert(name.clone(), value).is_none(), "{name} twice");
        }
    }

    #[test]
    fn request_line_is_kept_raw() {
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
        assert_eq!(vars["REDIRECT_URL"], "/a \u{e4}");
        assert_eq!(vars["REDIRECT_QUERY_STRING"], "x=%41");
        assert_eq!(vars["LAMBDA_TASK"], "x");
        let others: Vec<_> = vars.keys().filter(|name| !is_cgi(name)).collect();
        assert_eq!(others, ["LAMBDA_TASK"]);
        assert!(
            !vars.contains_key("HTTPS")
                && !vars.contains_key("CONTENT_TYPE")
                && !vars.contains_key("CONTENT_LENGTH")
        );
    }

    #[test]
    fn repeated_headers_are_joined_and_dangerous_ones_dropped() {
        let request = http::Request::post("/")
            .header("host", "example.org:81")
            .header("x-list", "a")
            .header("cookie", "a=1")
            .header("x-list", "b")
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
