//! An event on its way to PHP.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request};
use tokio_util::task::TaskTracker;

use super::invocation::Invocation;
use crate::event::{Address, Body, Event, Origin, Script};
use crate::fronts::site::normalise;
use crate::observe::named::Named;

/// What an event is asked with, whatever kind it is of.
pub struct Task<'a> {
    pub invocation: &'a Invocation,
    /// Our own id.
    pub id: u64,
    /// Then PHP has to end, so that there is time to say so.
    pub deadline: Instant,
    /// The deadline that PHP hears of: Lambda's, or that of the record, if it is one.
    pub said_deadline: Instant,
    /// The X-Ray trace that it belongs to.
    pub trace: Option<&'a str>,
    pub thawed: Option<Duration>,
    /// Its name in the log.
    pub named: &'a Named,
    /// Empty when no worker has anything to do for the event any more.
    pub workers: &'a TaskTracker,
}

/// The path of what is not HTTP, as AWS's own adapter has it.
pub const PATH: &str = "/events";

impl Task<'_> {
    /// What an engine is asked.
    pub fn event(&self, request: Request<Body>, script: Script, origin: Origin) -> Event {
        Event {
            id: self.id,
            request,
            script,
            origin,
            variables: self
                .invocation
                .variables(self.said_deadline, self.trace, self.thawed),
            deadline: self.deadline,
            patience: None,
            spool: None,
            hold: Some(self.workers.token()),
            early_hints: None,
        }
    }
}

/// Whether a request that came over HTTP would look to PHP as an event that Lambda has sent.
pub fn looks_like_event<B>(request: &Request<B>) -> bool {
    if request.method() != Method::POST {
        return false;
    }
    // What cannot be understood is refused anyway.
    let Ok(path) = normalise(request.uri().path()) else {
        return false;
    };
    // Frameworks take what follows the script for the path.
    let path = path.path();
    let path = path.rfind(".php/").map_or(path, |at| &path[at + 4..]);
    path.trim_end_matches('/').eq_ignore_ascii_case(PATH)
}

/// An event as a request.
pub fn request(payload: Bytes) -> Request<Body> {
    let mut request = Request::new(Body::Memory(payload));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static(PATH);
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_static("localhost"));
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    request
}

/// Where events come from that nobody has sent over HTTP.
pub fn origin() -> Origin {
    static LOCAL: LazyLock<Address> =
        LazyLock::new(|| Address::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
    Origin {
        client: Some(LOCAL.clone()),
        server: Some(LOCAL.clone()),
        https: false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_look_like_events_are_known_however_they_are_written() {
        let looks = |method, target: &str| {
            let request = Request::builder().method(method).uri(target);
            looks_like_event(&request.body(()).unwrap())
        };
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
            assert!(looks(Method::POST, target), "{target}");
        }
        for target in ["/", "/events2", "/my/events", "/events/1", "/events.php"] {
            assert!(!looks(Method::POST, target), "{target}");
        }
        assert!(!looks(Method::GET, "/events"));
    }
}
