//! Converts an event of Lambda to an [`Event`] for PHP.

use std::time::{Duration, Instant};

use http::header::{self, HeaderValue};
use http::{Method, Request};
use percent_encoding::percent_decode;
use tokio_util::task::TaskTracker;

use super::invocation::Invocation;
use crate::event::{Body, Event, Origin, Script};
use crate::fronts::records::request::PATH;
use crate::observe::log_context::NameGuard;

/// What every event has, whatever its type.
pub struct Task<'a> {
    pub invocation: &'a Invocation,
    /// Surus's own id of the event.
    pub id: u64,
    /// When PHP must stop, so that time remains to report it.
    pub deadline: Instant,
    /// The deadline that PHP is told: Lambda's, or that of a record.
    pub reported_deadline: Instant,
    /// The event's X-Ray trace.
    pub trace: Option<&'a str>,
    pub thawed: Option<Duration>,
    /// The event's request id in the log.
    pub named: &'a NameGuard,
    /// Empty once no worker has work left for the event.
    pub workers: &'a TaskTracker,
}

impl Task<'_> {
    /// Builds the event for an engine.
    pub fn event(&self, request: Request<Body>, script: Script, origin: Origin) -> Event {
        Event {
            id: self.id,
            request,
            script,
            origin,
            variables: self
                .invocation
                .variables(self.reported_deadline, self.trace, self.thawed),
            deadline: self.deadline,
            idle_timeout: None,
            spool: None,
            completion_token: Some(self.workers.token()),
            early_hints: None,
        }
    }
}

/// Headers in which frameworks look for the method, some of them in requests of any method.
const METHOD_OVERRIDES: [&str; 3] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
];

/// Headers in which frameworks look for the path.
const PATH_OVERRIDES: [&str; 2] = ["x-original-url", "x-rewrite-url"];

/// Whether PHP could take an HTTP request for an event that Lambda has sent.
pub fn looks_like_event(request: &Request<Body>) -> bool {
    may_be_posted(request) && may_have_path(request)
}

/// Whether a framework may take this for a POST with a body. A page that is only read has none.
fn may_be_posted(request: &Request<Body>) -> bool {
    let is_read = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    // `_method` in the query or a cookie, in each spelling that PHP takes for it.
    let names_method = |text: &[u8]| {
        let decoded = percent_decode(text).collect::<Vec<_>>();
        decoded
            .to_ascii_lowercase()
            .windows(6)
            .any(|part| part == b"method")
    };
    let query = request.uri().query().unwrap_or_default();
    let mut cookies = request.headers().get_all(header::COOKIE).iter();
    !is_read
        || !request.body().is_empty()
        || values(request, &METHOD_OVERRIDES).next().is_some()
        || names_method(query.as_bytes())
        || cookies.any(|cookie| names_method(cookie.as_bytes()))
}

/// Whether a framework may take [`PATH`] for the path: it is the path, or a header says so. Or it
/// is a name or a value in the query (`/?s=/events`, `/index.php?url=events`, `/?/events`,
/// `/?/events=1`).
fn may_have_path(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    // `;` separates parameters, too, if PHP is configured so (arg_separator.input).
    let in_query = query.replace('+', " ").split(['&', ';']).any(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or(("", parameter));
        // `events=1` is a parameter of a page.
        let may_be_path = decode(name).trim_start().starts_with(['/', '\\']);
        is_path(value) || (may_be_path && is_path(name))
    });
    let in_header = |value: &HeaderValue| {
        let value = String::from_utf8_lossy(value.as_bytes());
        let path = value.split(['?', '#']).next().unwrap_or_default();
        // A whole URL, or a path.
        let path = path.split_once("://").map_or(path, |(_, rest)| {
            rest.find('/').map_or("", |at| &rest[at..])
        });
        is_path(path)
    };
    is_path(request.uri().path()) || in_query || values(request, &PATH_OVERRIDES).any(in_header)
}

fn decode(text: &str) -> String {
    percent_decode(text.as_bytes())
        .decode_utf8_lossy()
        .into_owned()
}

/// Whether this is [`PATH`] in any spelling. Frameworks decode, cut and trim a path in many ways,
/// so everything around its words is ignored.
fn is_path(text: &str) -> bool {
    // Some decode what is decoded already.
    let text = decode(&decode(text))
        .to_ascii_lowercase()
        .replace('\\', "/");
    // Some decode a path before they cut off its query. `;` begins a segment's parameters.
    let path = text.split(['?', '#', '&', ';', '\0']).next();
    let mut segments = Vec::new();
    for segment in path.unwrap_or_default().split('/') {
        match segment.trim_matches(|c: char| c.is_whitespace() || c.is_control()) {
            "." => {}
            ".." => drop(segments.pop()),
            segment => match word(segment) {
                "" => {}
                word => segments.push(word),
            },
        }
    }
    let is_script = |name: &&str| {
        let ending = name.rsplit_once('.').map(|(_, ending)| ending);
        ending.is_some_and(|ending| ending.starts_with("ph") || ending == "inc")
    };
    let Some((last, before)) = segments.split_last() else {
        return false;
    };
    // Frameworks take what follows the script's name as the path.
    if !before.last().is_none_or(is_script) {
        return false;
    }
    // Some take away a suffix, such as `.html`. A script is a page of its own.
    let last = match last.rsplit_once('.') {
        Some((stem, _)) if !is_script(last) => word(stem),
        _ => last,
    };
    last == PATH.trim_start_matches('/')
}

/// The segment without the signs around it, such as a line break that `$` of a pattern ignores.
fn word(segment: &str) -> &str {
    segment.trim_matches(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-')))
}

/// The values of these headers. PHP sees `-` and `_` as the same.
fn values<'a>(
    request: &'a Request<Body>,
    names: &'a [&str],
) -> impl Iterator<Item = &'a HeaderValue> {
    let headers = request.headers().iter();
    headers.filter_map(|(name, value)| {
        let name = name.as_str().replace('_', "-");
        names.contains(&name.as_str()).then_some(value)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn looks(method: &str, target: &str, headers: &[(&str, &str)]) -> bool {
        looks_with(method, target, headers, Body::Empty)
    }

    fn looks_with(method: &str, target: &str, headers: &[(&str, &str)], body: Body) -> bool {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        looks_like_event(&request.body(body).unwrap())
    }

    #[test]
    fn read_with_a_body_or_a_method_in_query_or_cookie_looks_like_an_event() {
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert!(
                !looks(method, "/events?page=2", &[("cookie", "a=b")]),
                "{method}"
            );
            let body = || Body::Memory("{}".into());
            assert!(looks_with(method, "/events", &[], body()), "{method}");
            assert!(!looks_with(method, "/other", &[], body()), "{method}");
            for query in [
                "_method=POST",
                "a=b&%5fMethod=POST",
                ".method=POST",
                "+method=POST",
            ] {
                let target = format!("/events?{query}");
                assert!(looks(method, &target, &[]), "{method} {target}");
            }
            for cookie in ["_method=POST", "a=b; %5Fmethod=POST"] {
                assert!(
                    looks(method, "/events", &[("cookie", cookie)]),
                    "{method} {cookie}"
                );
                assert!(
                    !looks(method, "/other", &[("cookie", cookie)]),
                    "{method} {cookie}"
                );
            }
        }
    }

    #[test]
    fn path_in_query_or_header_looks_like_an_event() {
        for target in [
            "/?s=/events",
            "/?s=events",
            "/index.php?url=events/&x=1",
            "/?x=1&r=%2Fevents",
            "/?/events",
            "/?s=//Events",
            "/?s=/a/../%2565vents",
            "/?s=/index.php/events",
            "/?s=/events.html",
            "/?/events=1",
            "/?x=1&%2Fevents=",
            "/?/events[]=1",
            "/?s=/events%0A",
            "/?s=+/events+",
            "/?s=events%00",
        ] {
            assert!(looks("POST", target, &[]), "{target}");
            assert!(!looks("GET", target, &[]), "{target}");
            assert!(
                looks("GET", &format!("{target}&_method=POST"), &[]),
                "{target}"
            );
        }
        for target in [
            "/?s=/events2",
            "/?s=my+events",
            "/?events=1&s=/x/events",
            "/?/events2=1",
            "/?",
        ] {
            assert!(!looks("POST", target, &[]), "{target}");
        }
        for name in ["X-Original-URL", "x-rewrite-url", "X_Rewrite_Url"] {
            for value in ["/events", "/events?a=b", "https://a.example/events"] {
                assert!(looks("POST", "/", &[(name, value)]), "{name} {value}");
            }
            assert!(!looks("POST", "/", &[(name, "/other")]), "{name}");
        }
    }

    #[test]
    fn request_that_looks_like_an_event_is_recognized_in_any_spelling() {
        for target in [
            "/events",
            "/events/",
            "//events",
            "/./events?x=1",
            "/a/../events",
            "/%65vents",
            "/Events",
            "/index.php/events",
            "/index.php/events/",
            "/events.html",
            "/events.HTM/",
            "/events.",
            "/index.php5/events",
            "/index.phtml/events.html",
            "/a.php/b.php7/events",
            "/events%0A",
            "/events%20",
            "/%20events%0d%0a/",
            "/events%C2%A0",
            "/events%A0",
            "/index.php/events%0A",
            "/events%0A.html",
            "/events%3Fa=b",
            "/events%2523",
            "/events&a=b",
            "/events;a=b",
            "/%5Cevents%5C",
            "/events%2F",
            "/%2565vents",
            "/a/..%2Fevents",
            "/events%22",
        ] {
            assert!(looks("POST", target, &[]), "{target}");
        }
        for target in [
            "/",
            "/events2",
            "/my/events",
            "/my.php.d/events",
            "/events/1",
            "/events.php",
            "/events.php/",
            "/_events",
            "/my-events",
            "/%C3%A9vents",
        ] {
            assert!(!looks("POST", target, &[]), "{target}");
        }
    }

    #[test]
    fn method_that_php_may_take_for_post_looks_like_an_event() {
        for method in ["PUT", "PATCH", "DELETE", "QUERY", "post", "PROPFIND"] {
            assert!(looks(method, "/events", &[]), "{method}");
            assert!(!looks(method, "/other", &[]), "{method}");
        }
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert!(
                !looks(method, "/events", &[("x-method", "POST")]),
                "{method}"
            );
            for name in [
                "X-HTTP-Method-Override",
                "x-http-method",
                "X-Method-Override",
                "X_HTTP_Method-Override",
            ] {
                let is_forged = looks(method, "/events", &[(name, "POST")]);
                assert!(is_forged, "{method} {name}");
                assert!(
                    !looks(method, "/other", &[(name, "POST")]),
                    "{method} {name}"
                );
            }
        }
    }
}
