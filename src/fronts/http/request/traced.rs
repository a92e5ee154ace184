//! Begins the trace of a request, and hands its context on to PHP.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;

use crate::observe::traces::context::{self, Context, TRACEPARENT, TRACESTATE};
use crate::observe::traces::{Trace, TracedRequest, Tracer, cut};

/// The context that PHP gets in place of the caller's.
#[derive(Clone)]
struct ForPhp(Context, Option<String>);

/// Begins a trace. Engines find it in the extensions of the request.
pub fn begin(
    tracer: &Arc<Tracer>,
    parts: &mut Parts,
    began: Instant,
    client: impl FnOnce(&HeaderMap) -> (Option<IpAddr>, bool),
) -> Option<Arc<Trace>> {
    let caller = context::read(&parts.headers);
    let (php, state, trace) =
        tracer.begin(caller, || describe(parts, began, client(&parts.headers)));
    parts.extensions.insert(ForPhp(php, state));
    if let Some(trace) = &trace {
        parts.extensions.insert(trace.clone());
    }
    trace
}

fn describe(
    parts: &Parts,
    began: Instant,
    (client, is_https): (Option<IpAddr>, bool),
) -> TracedRequest {
    let text = |name: HeaderName| {
        let value = String::from_utf8_lossy(parts.headers.get(name)?.as_bytes());
        Some(cut(&value).to_string())
    };
    // A request with a user in its target is rejected, and its password is not exported.
    let without_user = |host: &str| cut(host.rsplit('@').next().unwrap_or(host)).to_string();
    let host = match parts.headers.get(header::HOST) {
        Some(host) => host.to_str().ok(),
        None => parts.uri.authority().map(|authority| authority.as_str()),
    };
    TracedRequest {
        began,
        method: cut(parts.method.as_str()).to_string(),
        path: cut(parts.uri.path()).to_string(),
        query: parts.uri.query().map(|query| cut(query).to_string()),
        is_https,
        host: host.map(without_user),
        client,
        version: parts.version,
        user_agent: text(header::USER_AGENT),
    }
}

/// Replaces the caller's headers, which the application's own tracing reads, by those of PHP's
/// span.
pub fn hand_on(parts: &mut Parts) {
    let Some(ForPhp(context, state)) = parts.extensions.remove() else {
        return;
    };
    let mut set = |name: HeaderName, text: Option<String>| {
        parts.headers.remove(&name);
        if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
            parts.headers.insert(name, value);
        }
    };
    set(TRACEPARENT, Some(context.to_string()));
    set(TRACESTATE, state);
}

/// The same as CGI variables.
pub fn variables(headers: &HeaderMap, to: &mut Vec<(Cow<'static, str>, String)>) {
    for (name, header) in [("TRACEPARENT", TRACEPARENT), ("TRACESTATE", TRACESTATE)] {
        if let Some(value) = headers.get(header).and_then(|value| value.to_str().ok()) {
            to.push((name.into(), value.into()));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Thousands may wait for a collector that is down.
    #[test]
    fn description_of_a_request_is_bounded_and_has_no_password() {
        let long = "X".repeat(20_000);
        let request = http::Request::builder()
            .method(long.as_str())
            .uri(format!("http://user:pass@{long}/{long}?{long}"))
            .header(header::USER_AGENT, &long);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let about = describe(&parts, Instant::now(), (None, false));
        let texts = [
            about.method,
            about.path,
            about.query.unwrap(),
            about.host.unwrap(),
            about.user_agent.unwrap(),
        ];
        for text in texts {
            assert!(text.len() <= 1024 && !text.contains("pass"), "{text}");
        }
        let request = http::Request::get("/").header(header::HOST, "user:pass@a.test:1");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let about = describe(&parts, Instant::now(), (None, false));
        assert_eq!(about.host.unwrap(), "a.test:1");
    }
}
