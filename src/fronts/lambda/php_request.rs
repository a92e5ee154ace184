//! Converts an event of Lambda to an [`Event`] for PHP.

use std::time::{Duration, Instant};

use http::header::{self, HeaderValue};
use http::{Method, Request};
use percent_encoding::percent_decode;
use tokio_util::task::TaskTracker;

use super::invocation::Invocation;
use crate::app::site::normalize;
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
            hold: Some(self.workers.token()),
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

/// Whether a framework may take [`PATH`] for the path: it is the path, or a value in the query
/// (`/?s=/events`, `/index.php?url=events`, `/?/events`), or a header says so.
fn may_have_path(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    // `;` separates parameters, too, if PHP is configured so (arg_separator.input).
    let in_query = query.split(['&', ';']).any(|parameter| {
        let value = parameter
            .split_once('=')
            .map_or(parameter, |(_, value)| value);
        is_path(&percent_decode(value.as_bytes()).decode_utf8_lossy())
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

/// Whether this is [`PATH`] in any spelling.
fn is_path(text: &str) -> bool {
    let rooted = format!("/{}", text.trim_start_matches('/'));
    // Malformed paths are rejected anyway.
    let Ok(path) = normalize(&rooted) else {
        return false;
    };
    // Frameworks take what follows the script's name as the path.
    let path = path.path();
    let is_script = |name: &str| {
        name.rsplit_once('.').is_some_and(|(_, ending)| {
            let ending = ending.to_ascii_lowercase();
            ending.starts_with("ph") || ending == "inc"
        })
    };
    let (mut at, mut rest) = (0, path);
    for segment in path.split_inclusive('/') {
        at += segment.len();
        if segment.strip_suffix('/').is_some_and(is_script) {
            rest = &path[at - 1..];
        }
    }
    // Some take away a suffix, such as `.html`. A script is a page of its own.
    let path = rest.trim_end_matches('/');
    let path = match path.rsplit_once('.') {
        Some((stem, suffix))
            if suffix.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !is_script(path) =>
        {
            stem
        }
        _ => path,
    };
    path.trim_end_matches('/').eq_ignore_ascii_case(PATH)
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
        ] {
            assert!(looks("POST", target, &[]), "{target}");
        }
        for target in ["/", "/events2", "/my/events", "/events/1", "/events.php"] {
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
