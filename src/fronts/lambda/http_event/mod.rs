//! HTTP requests that arrive as events of AWS Lambda, and their answers.
//!
//! Seven services send them, each in a format of its own. [`read`] makes the request that the client sent, as far as its service
//! has kept it; [`write`] and [`prelude`] make the answer that this service understands. Neither does any I/O.
//! `docs/lambda-http.md` says what each service loses on the way, and what is made of it.

mod answer;
mod binary;
mod fields;
mod format;
mod headers;
pub mod limits;
mod request;
mod target;

use http::Request;

pub use answer::{Written, prelude, write};
pub use binary::MediaType;
pub use format::Format;
pub use target::{PathPrefix, StripStage};

use super::{Mode, Settings};
use crate::event::{Body, Origin};
use fields::Object;

/// An HTTP request that a service sent as an event.
#[derive(Debug)]
pub struct HttpEvent {
    /// Its URI has no authority; `Host` is who the request is for.
    pub request: Request<Body>,
    pub origin: Origin,
    /// Who sent it; its answer needs that.
    pub format: Format,
    /// The service decodes an answer in base64.
    pub decodes_base64: bool,
    /// The JSON of `requestContext`, as it came.
    pub request_context: Option<String>,
}

/// Why an event is no request although its service sends requests only, or no JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}")]
pub struct Malformed {
    /// Which part of the event, such as `headers`.
    pub at: String,
    pub what: String,
}

/// Bytes of a message: it quotes what is wrong, which may be all of the event.
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

/// Makes a request of an event. None when the event is JSON, but not of a service that sends HTTP.
pub fn read(event: &[u8], settings: &Settings) -> Result<Option<HttpEvent>, Malformed> {
    let text = std::str::from_utf8(event).map_err(|error| {
        let what = format!("not UTF-8 after {} bytes", error.valid_up_to());
        Malformed::new("the event", what)
    })?;
    let Some(event) = Object::of_event(text)? else {
        return Ok(None);
    };
    let context = event.part(&fields::CONTEXT)?;
    let Some(format) = format::of(&event, context.as_ref()) else {
        return Ok(None);
    };
    let (request, origin) = request::of(format, &event, context.as_ref(), settings)?;
    // A stream has no base64: its bytes arrive as they are.
    let decodes_base64 = settings.mode == Mode::Stream
        || binary::decodes(format, &settings.binary_media_types, request.headers());
    Ok(Some(HttpEvent {
        request,
        origin,
        format,
        decodes_base64,
        request_context: event.json("requestContext").map(str::to_string),
    }))
}
