//! Recognizes the service that has sent an event.

use std::fmt;

use super::fields::Object;

/// A service that sends HTTP requests as events, with its payload version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventFormat {
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

impl fmt::Display for EventFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EventFormat::Rest => "API Gateway REST",
            EventFormat::HttpApiV1 => "API Gateway HTTP 1.0",
            EventFormat::HttpApiV2 => "API Gateway HTTP 2.0",
            EventFormat::FunctionUrl => "Function URL",
            EventFormat::Alb { multi_value: false } => "ALB",
            EventFormat::Alb { multi_value: true } => "ALB, multi-value headers",
            EventFormat::LatticeV1 => "VPC Lattice V1",
            EventFormat::LatticeV2 => "VPC Lattice V2",
            EventFormat::WebSocket => "API Gateway WebSocket",
        })
    }
}

/// None for every event that is not for an HTTP application.
pub fn recognize(event: &Object<'_>, context: Option<&Object<'_>>) -> Option<EventFormat> {
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
        return is_lattice.then_some(EventFormat::LatticeV1);
    };
    if context.has("connectionId") && context.has("eventType") {
        return Some(EventFormat::WebSocket);
    }
    if event.has("rawPath") && context.json("http")?.starts_with('{') {
        let domain = context.text("domainName").ok().flatten();
        return Some(match domain {
            Some(domain) if domain.contains(".lambda-url.") => EventFormat::FunctionUrl,
            _ => EventFormat::HttpApiV2,
        });
    }
    if event.has("method") && event.has("path") {
        let is_lattice = context.has("serviceNetworkArn") || context.has("serviceArn");
        return is_lattice.then_some(EventFormat::LatticeV2);
    }
    if !event.has("httpMethod") || !event.has("path") {
        return None;
    }
    if context.has("elb") {
        let multi_value = event.has("multiValueHeaders");
        return Some(EventFormat::Alb { multi_value });
    }
    match is(event, "version", "1.0") {
        true => Some(EventFormat::HttpApiV1),
        false => Some(EventFormat::Rest),
    }
}
