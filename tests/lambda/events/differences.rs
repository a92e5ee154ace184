//! Differences from `lambda_http`, AWS's own library, on the same events, with their reasons.
//!
//! `lambda_http.json` has the requests that its version 1.3.2 made of the samples; the README tells
//! how it was recorded.

use std::collections::BTreeMap;

use serde_json::Value;
use surus::fronts::lambda::http_event::HttpEvent;

use super::samples::directory;
use super::subject::{body, read, target};

/// The part of the request, the samples, and the reason.
const DIFFERENT: &[(&str, &[&str], &str)] = &[
    (
        "target",
        &[
            "apigw-console-test-request",
            "apigw-request",
            "apigw-request-multi-value-parameters",
            "apigw-restapi-openapi-request",
            "apigw-sam-rest-request",
            "apigw_multi_value_proxy_request",
            "apigw_no_host",
            "apigw_v2_proxy_request_with_stage_in_path",
        ],
        "the stage is where the API is deployed; no route of an application has it, and \
            `strip_stage` is there for those who want it",
    ),
    (
        "target",
        &[
            "apigw-websocket-request",
            "apigw-websocket-request-disconnect-route",
            "apigw-websocket-request-send-message",
            "apigw-websocket-request-without-method",
        ],
        "an application can tell the routes of a WebSocket API by their paths; there they all have \
            the stage's",
    ),
    (
        "method",
        &[
            "apigw-websocket-request-disconnect-route",
            "apigw-websocket-request-send-message",
            "apigw-websocket-request-without-method",
        ],
        "a message is no GET, which must be safe to repeat and has no body",
    ),
    (
        "target",
        &[
            "alb_multi_value_request",
            "vpc_lattice_v2_request_encoded_query",
        ],
        "the query is in the event's order and encoded as it came; there a hash map decides, and \
            encodes it again",
    ),
    (
        "headers",
        &[
            "alb_multi_value_request",
            "alb_multi_value_request_encoded_query_parameters",
            "apigw-request-multi-value-parameters",
        ],
        "all values of a header are there; there `headers` replaces the lists",
    ),
    (
        "headers",
        &["apigw-websocket-request"],
        "written by hand: `headers` and `multiValueHeaders` are of different requests. The lists \
            count",
    ),
    (
        "headers",
        &[
            "apigw-console-test-request",
            "apigw-v2-request-iam",
            "apigw-v2-request-jwt-authorizer",
            "apigw-v2-request-lambda-authorizer",
            "apigw-v2-request-multi-value-parameters",
            "apigw-websocket-request-send-message",
            "apigw_request_path_with_space",
            "apigw_v2_proxy_request_with_stage_in_path",
        ],
        "`Host` is the domain's name when the event has none; there it is in the URI only, which \
            PHP never sees",
    ),
    (
        "headers",
        &["apigw-sam-http-request"],
        "a client without cookies sends no `Cookie`; there it is empty",
    ),
    (
        "https",
        &["apigw_no_host"],
        "the event says that it was encrypted; there only the URI does, which needs a host",
    ),
    (
        "https",
        &["vpc_lattice_v2_request_encoded_query"],
        "Lattice serves HTTP too, and this event says nothing of TLS",
    ),
];

#[test]
fn each_difference_from_lambda_http_has_a_reason() {
    let text = include_str!("lambda_http.json");
    let theirs: BTreeMap<String, Value> = serde_json::from_str(text).unwrap();
    let mut wrong = Vec::new();
    for (name, event) in directory("samples") {
        let theirs = &theirs[&name];
        if theirs["panic"].is_string() || theirs["error"].is_string() {
            // It panics on an invalid domain, and does not support VPC Lattice's first version.
            assert!(["lambda-urls-request", "vpc-lattice-v1-request"].contains(&&*name));
            continue;
        }
        for (part, (ours, theirs)) in parts(&read(&event), theirs) {
            let has_reason = DIFFERENT
                .iter()
                .any(|(of, samples, _)| *of == part && samples.contains(&&*name));
            if (ours != theirs) != has_reason {
                wrong.push(format!("{name}: {part}\n  {ours}\n  {theirs}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "different without a reason, or equal with one:\n{}",
        wrong.join("\n")
    );
}

/// Surus's value and that of `lambda_http`.
fn parts(event: &HttpEvent, theirs: &Value) -> BTreeMap<&'static str, (String, String)> {
    let text = |name: &str| theirs[name].as_str().unwrap_or_default().to_string();
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in event.request.headers() {
        let value = value.to_str().unwrap().to_string();
        headers.entry(name.to_string()).or_default().push(value);
    }
    let target_of_theirs = text("target");
    let ours = String::from_utf8_lossy(body(event)).into_owned();
    // `lambda_http` has it in the URI, or not at all, which means HTTP.
    let https = theirs["scheme"] == "https";
    BTreeMap::from([
        (
            "method",
            (event.request.method().to_string(), text("method")),
        ),
        ("target", (target(event).to_string(), target_of_theirs)),
        ("body", (ours, text("body"))),
        ("https", (event.origin.https.to_string(), https.to_string())),
        (
            "headers",
            (
                serde_json::to_value(headers).unwrap().to_string(),
                theirs["headers"].to_string(),
            ),
        ),
    ])
}
