//! Converts HTTP events of AWS Lambda to requests, and responses to what each service accepts.
//!
//! Seven services send HTTP requests as events, each in its own format. [`read`] restores the
//! client's request as far as the service has kept it; [`write`] and [`prelude`] write the
//! response. None of them does I/O. `docs/reference/lambda-http.md` lists what each service loses,
//! and what Surus does about it.

mod answer;
mod binary;
mod fields;
mod format;
mod headers;
pub mod limits;
mod request;
mod target;

use http::Request;

pub use answer::{EncodedResponse, prelude, write};
pub use binary::MediaType;
pub use format::EventFormat;
pub use target::{PathPrefix, StripStage};

use super::{ResponseMode, Settings};
use crate::event::{Body, Origin};
use fields::Object;

/// An HTTP request that a service sent as an event.
#[derive(Debug)]
pub struct HttpEvent {
    /// Its URI has no authority; `Host` names the target.
    pub request: Request<Body>,
    pub origin: Origin,
    /// The sending service, which determines the response's format.
    pub format: EventFormat,
    /// Whether the service decodes a base64 response.
    pub decodes_base64: bool,
    /// The JSON of `requestContext`, unchanged.
    pub request_context: Option<String>,
}

/// Why an event cannot be read: it is not JSON, or not a valid request of its service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}")]
pub struct Malformed {
    /// The part of the event, such as `headers`.
    pub at: String,
    pub what: String,
}

/// Maximum length of a message, which may quote parts of the event.
const LONGEST: usize = 300;

impl Malformed {
    fn new(at: impl Into<String>, what: impl Into<String>) -> Malformed {
        let mut what = what.into();
        if what.len() > LONGEST {
            let is_end = |at: &usize| what.is_char_boundary(*at);
            what.truncate((0..=LONGEST).rev().find(is_end).unwrap_or(0));
            what.push('\u{2026}');
        }
        Malformed {
            at: at.into(),
            what,
        }
    }
}

/// Converts an event to a request. None if the event is JSON, but not of a service that sends HTTP.
pub fn read(event: &[u8], settings: &Settings) -> Result<Option<HttpEvent>, Malformed> {
    let text = std::str::from_utf8(event).map_err(|error| {
        let what = format!("not UTF-8 after {} bytes", error.valid_up_to());
        Malformed::new("the event", what)
    })?;
    let Some(event) = Object::parse_event(text)? else {
        return Ok(None);
    };
    let context = event.part(&fields::CONTEXT)?;
    let Some(format) = format::recognize(&event, context.as_ref()) else {
        return Ok(None);
    };
    let (request, origin) = request::from_event(format, &event, context.as_ref(), settings)?;
    // Streamed bytes are never encoded.
    let decodes_base64 = settings.mode == ResponseMode::Stream
        || binary::decodes(format, &settings.binary_media_types, request.headers());
    Ok(Some(HttpEvent {
        request,
        origin,
        format,
        decodes_base64,
        request_context: event.json("requestContext").map(str::to_string),
    }))
}
