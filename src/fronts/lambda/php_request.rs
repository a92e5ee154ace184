//! Converts an event of Lambda to an [`Event`] for PHP.

use std::time::{Duration, Instant};

use http::header::HeaderName;
use http::{Method, Request};
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

/// Whether PHP could take an HTTP request for an event that Lambda has sent.
pub fn looks_like_event<B>(request: &Request<B>) -> bool {
    let has_own_method = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    if has_own_method && !overrides_method(request) {
        return false;
    }
    // Malformed paths are rejected anyway.
    let Ok(path) = normalize(request.uri().path()) else {
        return false;
    };
    // Frameworks take what follows the script's name as the path.
    let path = path.path();
    let path = path.rfind(".php/").map_or(path, |at| &path[at + 4..]);
    path.trim_end_matches('/').eq_ignore_ascii_case(PATH)
}

fn overrides_method<B>(request: &Request<B>) -> bool {
    // PHP sees `-` and `_` as the same.
    let mut names = request.headers().keys().map(HeaderName::as_str);
    names.any(|name| METHOD_OVERRIDES.contains(&name.replace('_', "-").as_str()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn looks(method: &str, target: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        looks_like_event(&request.body(()).unwrap())
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
