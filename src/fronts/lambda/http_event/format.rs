//! Recognizes the service that has sent an event.

use std::fmt;

use super::fields::Object;

/// A service that sends HTTP requests as events, with its payload version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A REST API of API Gateway.
    Rest,
    /// An HTTP API of API Gateway with `payloadFormatVersion: 1.0`.
    HttpApiV1,
    /// An HTTP API of API Gateway with `payloadFormatVersion: 2.0`.
    HttpApiV2,
    /// The URL of a function.
    FunctionUrl,
    /// An Application Load Balancer. Lists of header values are an attribute of its target group.
    Alb { multi_value: bool },
    /// VPC Lattice, event structure `V1`.
    LatticeV1,
    /// VPC Lattice, event structure `V2`.
    LatticeV2,
    /// A WebSocket API of API Gateway.
    WebSocket,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Rest => "API Gateway REST",
            Format::HttpApiV1 => "API Gateway HTTP 1.0",
            Format::HttpApiV2 => "API Gateway HTTP 2.0",
            Format::FunctionUrl => "Function URL",
            Format::Alb { multi_value: false } => "ALB",
            Format::Alb { multi_value: true } => "ALB, multi-value headers",
            Format::LatticeV1 => "VPC Lattice V1",
            Format::LatticeV2 => "VPC Lattice V2",
            Format::WebSocket => "API Gateway WebSocket",
        })
    }
}

/// None for every event that is not for an HTTP application.
pub fn recognize(event: &Object<'_>, context: Option<&Object<'_>>) -> Option<Format> {
    // A Lambda authorizer's event: it expects a policy as its result.
    if event.has("methodArn") || event.has("routeArn") {
        return None;
    }
    let is = |object: &Object<'_>, name, value| {
        object
            .text(name)
            .is_ok_and(|text| text.as_deref() == Some(value))
    };
    let Some(context) = context else {
        let is_lattice = event.has("raw_path") && event.has("method");
        return is_lattice.then_some(Format::LatticeV1);
    };
    if context.has("connectionId") && context.has("eventType") {
        return Some(Format::WebSocket);
    }
    if event.has("rawPath") && context.json("http")?.starts_with('{') {
        let domain = context.text("domainName").ok().flatten();
        return Some(match domain {
            Some(domain) if domain.contains(".lambda-url.") => Format::FunctionUrl,
            _ => Format::HttpApiV2,
        });
    }
    if event.has("method") && event.has("path") {
        let is_lattice = context.has("serviceNetworkArn") || context.has("serviceArn");
        return is_lattice.then_some(Format::LatticeV2);
    }
    if !event.has("httpMethod") || !event.has("path") {
        return None;
    }
    if context.has("elb") {
        let multi_value = event.has("multiValueHeaders");
        return Some(Format::Alb { multi_value });
    }
    match is(event, "version", "1.0") {
        true => Some(Format::HttpApiV1),
        false => Some(Format::Rest),
    }
}
