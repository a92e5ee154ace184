//! Restores the client's request from an event.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::HOST;
use http::{HeaderMap, Method, Request, Uri, Version};

use super::fields::{self, Object};
use super::format::EventFormat;
use super::target::{self, Coding, StripStage, Target};
use super::{Malformed, headers};
use crate::app::forwarded::{self, Peer};
use crate::event::{Address, Body, Origin};
use crate::fronts::lambda::Settings;

pub fn from_event(
    format: EventFormat,
    event: &Object<'_>,
    context: Option<&Object<'_>>,
    settings: &Settings,
) -> Result<(Request<Body>, Origin), Malformed> {
    let facts = facts(format, event, context)?;
    let target = target(format, event, context, settings)?;
    let mut headers = headers::from_event(event)?;
    if matches!(format, EventFormat::HttpApiV2 | EventFormat::FunctionUrl) {
        headers::insert_cookies(&mut headers, &event.list("cookies")?)?;
    }
    if let Some(domain) = facts.domain
        && !headers.contains_key(HOST)
    {
        let host = headers::header_value(&domain, "requestContext.domainName", "host")?;
        headers.insert(HOST, host);
    }
    let mut origin = Origin {
        client: client(format, facts.client.as_deref(), &headers),
        server: None,
        // Only load balancers and Lattice listen without TLS.
        https: headers::https(&headers, !is_balancer(format)),
    };
    if origin.client.is_some() {
        // The service's caller may be a proxy of the client.
        let proxies = &settings.trusted_proxies;
        let peer = Peer::from(origin);
        if let Some(host) = forwarded::host(&peer, &headers, proxies) {
            headers.insert(HOST, host);
        }
        origin = forwarded::origin(&peer, &headers, proxies);
    }
    let mut request = Request::new(body(format, event)?);
    *request.method_mut() = method(&facts.method)?;
    *request.uri_mut() = target;
    *request.version_mut() = version(facts.protocol.as_deref());
    *request.headers_mut() = headers;
    Ok((request, origin))
}

/// Facts that each format has in a different place.
struct RequestFacts<'a> {
    method: Cow<'a, str>,
    protocol: Option<Cow<'a, str>>,
    client: Option<Cow<'a, str>>,
    /// The request's target if it has no `Host`.
    domain: Option<Cow<'a, str>>,
}

fn facts<'a>(
    format: EventFormat,
    event: &Object<'a>,
    context: Option<&Object<'a>>,
) -> Result<RequestFacts<'a>, Malformed> {
    let mut facts = RequestFacts {
        method: Cow::Borrowed("POST"),
        protocol: None,
        client: None,
        domain: None,
    };
    let Some(context) = context else {
        facts.method = event.required("method")?;
        return Ok(facts);
    };
    match format {
        EventFormat::HttpApiV2 | EventFormat::FunctionUrl => {
            if let Some(http) = context.part(&fields::HTTP)? {
                facts.method = http.required("method")?;
                facts.protocol = http.text("protocol")?;
                facts.client = http.text("sourceIp")?;
            }
        }
        EventFormat::Rest | EventFormat::HttpApiV1 => {
            facts.method = event.required("httpMethod")?;
            facts.protocol = context.text("protocol")?;
        }
        EventFormat::Alb { .. } => facts.method = event.required("httpMethod")?,
        EventFormat::LatticeV1 | EventFormat::LatticeV2 => {
            facts.method = event.required("method")?
        }
        // The event is a message on a connection, so the handshake's method does not matter.
        EventFormat::WebSocket => {}
    }
    if matches!(
        format,
        EventFormat::Rest | EventFormat::HttpApiV1 | EventFormat::WebSocket
    ) && let Some(identity) = context.part(&fields::IDENTITY)?
    {
        facts.client = identity.text("sourceIp")?;
    }
    facts.domain = context.text("domainName")?;
    Ok(facts)
}

fn target(
    format: EventFormat,
    event: &Object<'_>,
    context: Option<&Object<'_>>,
    settings: &Settings,
) -> Result<Uri, Malformed> {
    let (at, path) = path(format, event, context, settings)?;
    let mut path = &*path;
    let mut after = None;
    if matches!(format, EventFormat::LatticeV1 | EventFormat::LatticeV2)
        && let Some((before, query)) = path.split_once('?')
    {
        // Lattice may send path and query in the path field.
        (path, after) = (before, Some(query));
    }
    let path = settings
        .base_path
        .as_ref()
        .map_or(path, |prefix| prefix.strip(path));
    let raw = event.text("rawQueryString")?;
    let raw = after.or(raw.as_deref());
    let mut target = Target::new(path, raw.map_or(QUERY, str::len));
    match raw {
        Some(query) => target.query(query),
        None => {
            let mut pairs = event.pairs("multiValueQueryStringParameters")?;
            if pairs.is_empty() {
                pairs = event.pairs(match format {
                    EventFormat::LatticeV1 => "query_string_parameters",
                    _ => "queryStringParameters",
                })?;
            }
            let coding = match is_balancer(format) {
                true => Coding::Kept,
                false => Coding::Decoded,
            };
            target.pairs(&pairs, coding);
        }
    }
    let target = target
        .finish()
        .map_err(|error| Malformed::new(at, format!("not a valid request target: {error}")))?;
    Ok(Uri::from(target))
}

/// Initial capacity for the query.
const QUERY: usize = 64;

/// The path before `base_path` is removed, and its field.
fn path<'a>(
    format: EventFormat,
    event: &Object<'a>,
    context: Option<&Object<'a>>,
    settings: &Settings,
) -> Result<(&'static str, Cow<'a, str>), Malformed> {
    let (at, mut path) = match (format, context) {
        (EventFormat::HttpApiV2 | EventFormat::FunctionUrl, _) => {
            ("rawPath", event.required("rawPath")?)
        }
        (EventFormat::LatticeV1, _) => ("raw_path", event.required("raw_path")?),
        (EventFormat::WebSocket, Some(context)) => {
            let route = context.required("routeKey")?;
            return Ok(("requestContext.routeKey", websocket_path(&route).into()));
        }
        // The path that the client requested; `path` lacks the stage.
        (EventFormat::Rest, Some(context))
            if settings.strip_stage == StripStage::Never && context.has("path") =>
        {
            ("requestContext.path", context.required("path")?)
        }
        _ => ("path", event.required("path")?),
    };
    if path.is_empty() {
        path = "/".into();
    }
    if !path.starts_with('/') {
        return Err(Malformed::new(
            at,
            format!("{path:?} does not start with a slash"),
        ));
    }
    let strip = match settings.strip_stage {
        StripStage::Auto => matches!(format, EventFormat::HttpApiV1 | EventFormat::HttpApiV2),
        StripStage::Always => true,
        StripStage::Never => false,
    };
    if strip
        && let Some(context) = context
        && let Some(stage) = context.text("stage")?
        && stage != "$default"
    {
        let rest = target::strip_stage(&path, &stage);
        if rest != path {
            path = rest.to_string().into();
        }
    }
    Ok((at, path))
}

/// The path of a WebSocket route's events.
fn websocket_path(route: &str) -> String {
    let segment = route.replace('%', "%25").replace('/', "%2F");
    format!("/websocket/{segment}")
}

fn method(name: &str) -> Result<Method, Malformed> {
    Method::from_bytes(name.as_bytes())
        .map_err(|_| Malformed::new("the event", format!("{name:?} is not a method")))
}

fn version(protocol: Option<&str>) -> Version {
    match protocol {
        Some("HTTP/1.0") => Version::HTTP_10,
        Some("HTTP/2.0" | "HTTP/2") => Version::HTTP_2,
        Some("HTTP/3.0" | "HTTP/3") => Version::HTTP_3,
        _ => Version::HTTP_11,
    }
}

fn client(format: EventFormat, facts: Option<&str>, headers: &HeaderMap) -> Option<Address> {
    match is_balancer(format) {
        true => headers::forwarded_for(headers),
        false => headers::address(facts?),
    }
}

/// Whether the service passes queries on undecoded, gives the client's address only in a header,
/// and may lack TLS.
fn is_balancer(format: EventFormat) -> bool {
    matches!(
        format,
        EventFormat::Alb { .. } | EventFormat::LatticeV1 | EventFormat::LatticeV2
    )
}

fn body(format: EventFormat, event: &Object<'_>) -> Result<Body, Malformed> {
    let is_base64 = event.flag(match format {
        EventFormat::LatticeV1 => "is_base64_encoded",
        _ => "isBase64Encoded",
    })?;
    let Some(text) = event.text("body")?.filter(|text| !text.is_empty()) else {
        return Ok(Body::Empty);
    };
    let bytes = match is_base64 {
        false => text.into_owned().into_bytes(),
        true => BASE64
            .decode(text.as_bytes())
            .map_err(|error| Malformed::new("body", format!("not base64: {error}")))?,
    };
    Ok(Body::Memory(bytes.into()))
}

/// Handwritten events often lack the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
