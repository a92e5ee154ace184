//! Begins the trace of a request, and hands its context on to PHP.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;

use crate::observe::traces::context::{self, Context, TRACEPARENT, TRACESTATE};
use crate::observe::traces::{Request, Trace, Tracer, cut};

/// The context that PHP gets in place of the caller's.
#[derive(Clone)]
struct ForPhp(Context, Option<String>);

/// Begins a trace. Engines find it in the extensions of the request.
pub fn begin(
    tracer: &Arc<Tracer>,
    head: &mut Parts,
    began: Instant,
    client: impl FnOnce(&HeaderMap) -> (Option<IpAddr>, bool),
) -> Option<Arc<Trace>> {
    let caller = context::read(&head.headers);
    let (php, state, trace) = tracer.begin(caller, || describe(head, began, client(&head.headers)));
    head.extensions.insert(ForPhp(php, state));
    if let Some(trace) = &trace {
        head.extensions.insert(trace.clone());
    }
    trace
}

fn describe(head: &Parts, began: Instant, (client, is_https): (Option<IpAddr>, bool)) -> Request {
    let text = |name: HeaderName| {
        let value = String::from_utf8_lossy(head.headers.get(name)?.as_bytes());
        Some(cut(&value).to_string())
    };
    let host = text(header::HOST);
    Request {
        began,
        method: head.method.clone(),
        path: cut(head.uri.path()).to_string(),
        query: head.uri.query().map(|query| cut(query).to_string()),
        is_https,
        host: host.or_else(|| head.uri.authority().map(ToString::to_string)),
        client,
        version: head.version,
        user_agent: text(header::USER_AGENT),
    }
}

/// Replaces the caller's headers, which the application's own tracing reads, by those of PHP's
/// span.
pub fn hand_on(head: &mut Parts) {
    let Some(ForPhp(context, state)) = head.extensions.remove() else {
        return;
    };
    let mut set = |name: HeaderName, text: Option<String>| {
        head.headers.remove(&name);
        if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
            head.headers.insert(name, value);
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
