//! Errors as Lambda reports them to the caller.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::http_event::{self, limits::TooMuch};
use crate::event::Failure;

/// An error as Lambda shows it to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionError {
    /// Begins with `Runtime.` or `Function.`; Lambda reports anything else as
    /// `Runtime.Unknown`.
    pub kind: Cow<'static, str>,
    /// The error's own name, such as a PHP exception's class; `kind` if it has none.
    pub name: Option<String>,
    pub message: String,
    pub stack: Vec<String>,
    /// Further fields that the PHP library reports, such as a command's exit code.
    pub more: Map<String, Value>,
}

impl FunctionError {
    pub fn new(kind: &'static str, message: impl Into<String>) -> FunctionError {
        FunctionError {
            kind: kind.into(),
            name: None,
            message: message.into(),
            stack: Vec::new(),
            more: Map::new(),
        }
    }

    /// Converts an engine's failure.
    pub fn from_failure(failure: &Failure) -> FunctionError {
        match failure {
            Failure::Thrown(what) => FunctionError::new(THROWN, what.clone()),
            Failure::WorkerCrashed(_) => {
                FunctionError::new(EXITED, format!("{failure}; see the log for the cause"))
            }
            Failure::TimedOut => FunctionError::new(
                TIMED_OUT,
                "PHP did not respond in time and was stopped; see the log for where. Raise the \
                 function's timeout or shorten the work",
            ),
            Failure::QueueFull(_) | Failure::QueueTimeout(_) | Failure::Busy(_) => {
                FunctionError::new(BUSY, failure.to_string())
            }
            Failure::Malformed(_) => FunctionError::new(MALFORMED_ANSWER, failure.to_string()),
            Failure::TooLarge(_) | Failure::BodyTooLarge(_) => {
                FunctionError::new(TOO_LARGE, failure.to_string())
            }
        }
    }

    /// A response above Lambda's limit.
    pub fn too_large(size: u64, max: u64) -> FunctionError {
        FunctionError::new(
            TOO_LARGE,
            format!(
                "the response has {size} bytes, Lambda accepts {max}; stream it (lambda.mode = \
                 \"stream\" and a function URL or REST API that streams), or put it into S3 and \
                 respond with a link"
            ),
        )
    }

    /// A response above the limit of the service that sent the request.
    pub fn rejected(service: &http_event::EventFormat, too_much: TooMuch) -> FunctionError {
        let TooMuch {
            what,
            size,
            max,
            remedy,
        } = too_much;
        FunctionError::new(
            TOO_LARGE,
            format!("{what} {size} bytes, {service} accepts {max}; {remedy}"),
        )
    }

    /// A streamed response above Lambda's limit.
    pub fn too_long(max: u64) -> FunctionError {
        let message = format!(
            "the streamed response exceeds the {max} bytes that Lambda accepts; put it into S3 \
             and respond with a link"
        );
        FunctionError::new(TOO_LARGE, message)
    }

    /// Reads an error that the PHP library reports: the header's value and the body.
    pub fn reported(kind: &str, body: &[u8]) -> FunctionError {
        let reported: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut more = reported.as_object().cloned().unwrap_or_default();
        more.retain(|name, _| !["errorMessage", "errorType", "stackTrace"].contains(&&**name));
        let text = |name: &str| {
            reported
                .get(name)
                .and_then(Value::as_str)
                .map(str::to_string)
        };
        let stack = reported.get("stackTrace").and_then(Value::as_array);
        FunctionError {
            kind: match is_kind(kind) {
                true => Cow::Owned(kind.to_string()),
                false => THROWN.into(),
            },
            name: text("errorType"),
            message: text("errorMessage").unwrap_or_else(|| shortened(body)),
            stack: stack
                .into_iter()
                .flatten()
                .map(|frame| frame.as_str().map_or_else(|| frame.to_string(), Into::into))
                .collect(),
            more,
        }
    }

    /// The error's JSON, shortened if it exceeds Lambda's limit.
    pub fn body(&self) -> Bytes {
        let body = self.written();
        match body.len() > LARGEST {
            true => self.within(body.len()).written(),
            false => body,
        }
    }

    /// A shortened copy of an error whose JSON has `size` bytes.
    fn within(&self, size: usize) -> FunctionError {
        let mut left = MAX_KEPT;
        let frames = self.stack.iter().take_while(|frame| {
            let fits = frame.len() <= left;
            left = left.saturating_sub(frame.len());
            fits
        });
        let message = beginning(&self.message, MAX_KEPT);
        FunctionError {
            kind: self.kind.clone(),
            name: self
                .name
                .as_deref()
                .map(|name| beginning(name, MAX_QUOTED).into()),
            message: format!(
                "{message}… (shortened: the error has {size} bytes, Lambda accepts {LARGEST}; the \
                 log has the whole message)"
            ),
            stack: frames.cloned().collect(),
            more: Map::new(),
        }
    }

    fn written(&self) -> Bytes {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Body<'a> {
            error_message: &'a str,
            error_type: &'a str,
            stack_trace: &'a [String],
            #[serde(flatten)]
            more: &'a Map<String, Value>,
        }
        let body = Body {
            error_message: &self.message,
            error_type: self.name(),
            stack_trace: &self.stack,
            more: &self.more,
        };
        // Strings and lists of strings always serialize.
        serde_json::to_vec(&body).unwrap_or_default().into()
    }

    /// The error for X-Ray: message and stack. None if it is too large for a header.
    pub fn cause(&self, directory: &str) -> Option<String> {
        let stack: Vec<_> = self.stack.iter().map(|frame| frame_of(frame)).collect();
        let mut paths: Vec<_> = stack.iter().map(|frame| &frame["path"]).collect();
        paths.dedup();
        let cause = json!({
            "working_directory": directory,
            "exceptions": [{"type": self.name(), "message": self.message, "stack": stack}],
            "paths": paths,
        });
        let text = ascii(&cause.to_string());
        (text.len() <= LARGEST_CAUSE).then_some(text)
    }

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.kind)
    }
}

/// For the records of a batch, which fail like calls of an engine.
impl From<FunctionError> for Failure {
    fn from(error: FunctionError) -> Failure {
        match &*error.kind {
            EXITED => Failure::WorkerCrashed(error.message),
            TIMED_OUT => Failure::TimedOut,
            _ => Failure::Thrown(error.message),
        }
    }
}

pub const THROWN: &str = "Function.Error";
pub const TIMED_OUT: &str = "Function.Timeout";
pub const TOO_LARGE: &str = "Function.ResponseSizeTooLarge";
pub const MALFORMED_ANSWER: &str = "Function.MalformedResponse";
/// Lambda's own kind for a runtime that has crashed, so that the same alarms match.
pub const EXITED: &str = "Runtime.ExitError";
pub const BUSY: &str = "Runtime.Unavailable";
pub const MALFORMED_EVENT: &str = "Runtime.MalformedEvent";
pub const BUG: &str = "Runtime.InternalError";
pub const NO_HANDLER: &str = "Runtime.HandlerNotFound";
pub const INIT: &str = "Runtime.InitError";
pub const BEFORE_SNAPSHOT: &str = "Runtime.BeforeCheckpointError";
pub const AFTER_RESTORE: &str = "Runtime.AfterRestoreError";

/// Lambda's limit for a buffered response.
pub const LARGEST: usize = 6 * 1024 * 1024 + 100;

/// X-Ray ignores causes above 64 KB. A larger one is left out, so that Lambda does not reject the
/// whole error.
const LARGEST_CAUSE: usize = 60_000;

/// Characters quoted of a response that is not an error message.
const MAX_QUOTED: usize = 1000;

/// Bytes kept of the message and of the stack of an error above Lambda's limit. JSON may turn one
/// byte into six.
const MAX_KEPT: usize = 256 * 1024;

/// Whether Lambda accepts the kind: `(Runtime|Function)\.[A-Z][a-zA-Z]+`.
fn is_kind(kind: &str) -> bool {
    let name = kind
        .strip_prefix("Runtime.")
        .or_else(|| kind.strip_prefix("Function."));
    name.is_some_and(|name| {
        name.len() > 1
            && name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphabetic())
    })
}

/// Parses `#0 /var/task/a.php(12): f()` or `/var/task/a.php:12` to X-Ray's format.
fn frame_of(text: &str) -> Value {
    let text = match text.split_once(' ') {
        Some((number, rest)) if number.starts_with('#') => rest,
        _ => text,
    };
    let (place, label) = text.split_once(": ").unwrap_or((text, ""));
    let cut = |open: char| {
        let (path, line) = place.rsplit_once(open)?;
        let line = line.trim_end_matches(')').parse::<u32>().ok()?;
        Some((path, line))
    };
    match cut('(').or_else(|| cut(':')) {
        Some((path, line)) => json!({"path": path, "line": line, "label": label}),
        None => json!({"path": place, "line": 0, "label": label}),
    }
}

/// Escapes JSON to ASCII, which a header can carry.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            text.push(c);
            continue;
        }
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units) {
            text.push_str(&format!("\\u{unit:04x}"));
        }
    }
    text
}

/// The longest prefix of at most `most` bytes that ends between characters.
fn beginning(text: &str, max: usize) -> &str {
    let mut at = max.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    &text[..at]
}

/// The beginning of a text.
pub fn shortened(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    match text.char_indices().nth(MAX_QUOTED) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.into_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_error_kind_is_valid() {
        for kind in [
            THROWN,
            TIMED_OUT,
            TOO_LARGE,
            MALFORMED_ANSWER,
            EXITED,
            BUSY,
            MALFORMED_EVENT,
            BUG,
            NO_HANDLER,
            INIT,
            BEFORE_SNAPSHOT,
            AFTER_RESTORE,
        ] {
            assert!(is_kind(kind), "{kind}");
        }
        for kind in [
            "Function.",
            "Function.x",
            "Other.Error",
            "Runtime.Exit1",
            "RuntimeException",
        ] {
            assert!(!is_kind(kind), "{kind}");
        }
    }

    #[test]
    fn library_error_reaches_the_caller() {
        let body = br##"{
            "errorType": "LogicException",
            "errorMessage": "no",
            "stackTrace": ["#0 /a.php(3): f()"]
        }"##;
        let error = FunctionError::reported("Function.Error", body);
        let written: Value = serde_json::from_slice(&error.body()).unwrap();
        assert_eq!(written, serde_json::from_slice::<Value>(body).unwrap());
        assert_eq!(FunctionError::reported("nonsense", b"oops").kind, THROWN);
        assert_eq!(FunctionError::reported("nonsense", b"oops").message, "oops");
    }

    #[test]
    fn large_error_is_shortened_with_a_notice() {
        let mut error = FunctionError::new(THROWN, "\u{1f418}".repeat(LARGEST / 4 - 100));
        assert!(error.body().len() <= LARGEST);
        let written: Value = serde_json::from_slice(&error.body()).unwrap();
        assert_eq!(written["errorMessage"], error.message, "it fits");
        for message in ["\u{1f418}", "\u{1}", "x"] {
            error.message = message.repeat(LARGEST / message.len() + 1);
            error.name = Some("N".repeat(LARGEST));
            error.stack = vec!["\u{1}".repeat(1000); 10_000];
            let size = error.written().len();
            let body = error.body();
            assert!(body.len() <= LARGEST, "{}", body.len());
            let written: Value = serde_json::from_slice(&body).unwrap();
            let shortened = written["errorMessage"].as_str().unwrap();
            assert!(shortened.starts_with(message) && shortened.contains(&size.to_string()));
            assert!(!written["stackTrace"].as_array().unwrap().is_empty());
        }
    }

    #[test]
    fn xray_cause_is_ascii() {
        let mut error = FunctionError::new(THROWN, "gr\u{fc}n \u{1f418}\n");
        error.stack = vec!["#0 /var/task/a.php(12): f()".into(), "{main}".into()];
        let text = error.cause("/var/task").unwrap();
        assert!(http::HeaderValue::from_str(&text).is_ok(), "{text}");
        let cause: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(cause["exceptions"][0]["message"], "gr\u{fc}n \u{1f418}\n");
        assert_eq!(
            cause["exceptions"][0]["stack"][0],
            json!({"path": "/var/task/a.php", "line": 12, "label": "f()"})
        );
        error.message = "x".repeat(70_000);
        assert!(error.cause("/").is_none());
    }
}
