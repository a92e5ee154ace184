//! What the caller hears when there is no answer.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::http_event::{self, limits::TooMuch};
use super::runtime_api::LARGEST;
use crate::event::Failure;

/// An error as Lambda shows it to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// `Runtime.` or `Function.`, as Lambda counts them; other words it calls `Runtime.Unknown`.
    pub kind: Cow<'static, str>,
    /// The error's own name, such as that of a PHP exception; `kind` when it has none.
    pub name: Option<String>,
    pub message: String,
    pub stack: Vec<String>,
    /// What the PHP library tells beside that, such as the exit code of a command.
    pub more: Map<String, Value>,
}

impl Fault {
    pub fn new(kind: &'static str, message: impl Into<String>) -> Fault {
        Fault {
            kind: kind.into(),
            name: None,
            message: message.into(),
            stack: Vec::new(),
            more: Map::new(),
        }
    }

    /// Of what an engine says.
    pub fn of(failure: &Failure) -> Fault {
        match failure {
            Failure::Thrown(what) => Fault::new(THROWN, what.clone()),
            Failure::Died(_) => Fault::new(DIED, format!("{failure}; the log may say why")),
            Failure::TimedOut => Fault::new(
                TIMED_OUT,
                "PHP has not answered in time and was stopped; the log says where. Give the function a longer timeout, or it less \
                 to do",
            ),
            Failure::Busy(_) => Fault::new(BUSY, failure.to_string()),
            Failure::Malformed(_) => Fault::new(MALFORMED_ANSWER, failure.to_string()),
            Failure::TooLarge(_) => Fault::new(TOO_LARGE, failure.to_string()),
        }
    }

    /// An answer that Lambda would not take.
    pub fn too_large(size: u64, most: u64) -> Fault {
        Fault::new(
            TOO_LARGE,
            format!(
                "the answer has {size} bytes and Lambda takes {most}; stream it (lambda.mode = \"stream\" and a function URL or REST API \
                 that streams), or put it into S3 and answer with a link"
            ),
        )
    }

    /// An answer that Lambda would take, and the service that has sent the event would not.
    pub fn refused(service: &http_event::Format, too_much: TooMuch) -> Fault {
        let TooMuch {
            what,
            size,
            most,
            remedy,
        } = too_much;
        Fault::new(
            TOO_LARGE,
            format!("{what} {size} bytes and {service} takes {most}; {remedy}"),
        )
    }

    /// A streamed answer of which Lambda would not take more.
    pub fn too_long(most: u64) -> Fault {
        let message = format!(
            "the streamed answer has more than the {most} bytes that Lambda takes; put it into S3 and answer with a link"
        );
        Fault::new(TOO_LARGE, message)
    }

    /// Of an answer of the PHP library that tells of an error: its header's value, and its body.
    pub fn told(kind: &str, body: &[u8]) -> Fault {
        let told: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut more = told.as_object().cloned().unwrap_or_default();
        more.retain(|name, _| !["errorMessage", "errorType", "stackTrace"].contains(&&**name));
        let text = |name: &str| told.get(name).and_then(Value::as_str).map(str::to_string);
        let stack = told.get("stackTrace").and_then(Value::as_array);
        Fault {
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

    /// The error as the API takes it: shortened when it is larger than that.
    pub fn body(&self) -> Bytes {
        let body = self.written();
        match body.len() > LARGEST {
            true => self.within(body.len()).written(),
            false => body,
        }
    }

    /// What an error of so many bytes keeps of itself.
    fn within(&self, size: usize) -> Fault {
        let mut left = MOST_KEPT;
        let frames = self.stack.iter().take_while(|frame| {
            let fits = frame.len() <= left;
            left = left.saturating_sub(frame.len());
            fits
        });
        let message = beginning(&self.message, MOST_KEPT);
        Fault {
            kind: self.kind.clone(),
            name: self
                .name
                .as_deref()
                .map(|name| beginning(name, MOST_QUOTED).into()),
            message: format!(
                "{message}… (shortened: the error has {size} bytes and Lambda takes {LARGEST}; the log has its whole message)"
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
        // Texts and lists of texts can always be written.
        serde_json::to_vec(&body).unwrap_or_default().into()
    }

    /// For X-Ray: what went wrong and where. None when it would be larger than a header should be.
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

/// For who asks for one of many, and hears of it what an engine would say.
impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        match &*fault.kind {
            DIED => Failure::Died(fault.message),
            TIMED_OUT => Failure::TimedOut,
            _ => Failure::Thrown(fault.message),
        }
    }
}

pub const THROWN: &str = "Function.Error";
pub const TIMED_OUT: &str = "Function.Timeout";
pub const TOO_LARGE: &str = "Function.ResponseSizeTooLarge";
pub const MALFORMED_ANSWER: &str = "Function.MalformedResponse";
/// As Lambda itself says of a runtime that has died; the same alarms see it.
pub const DIED: &str = "Runtime.ExitError";
pub const BUSY: &str = "Runtime.Unavailable";
pub const MALFORMED_EVENT: &str = "Runtime.MalformedEvent";
pub const BUG: &str = "Runtime.InternalError";
pub const NO_HANDLER: &str = "Runtime.HandlerNotFound";
pub const INIT: &str = "Runtime.InitError";
pub const BEFORE_SNAPSHOT: &str = "Runtime.BeforeCheckpointError";
pub const AFTER_RESTORE: &str = "Runtime.AfterRestoreError";

/// X-Ray drops more than 64 KB, and so do we rather than have the whole error refused.
const LARGEST_CAUSE: usize = 60_000;

/// What is quoted of an answer that is no error in words.
const MOST_QUOTED: usize = 1000;

/// Bytes that are kept of the message, and of the stack, of an error that Lambda would not take. In JSON, one may become six.
const MOST_KEPT: usize = 256 * 1024;

/// Does Lambda know such words? `(Runtime|Function)\.[A-Z][a-zA-Z]+`.
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

/// `#0 /var/task/a.php(12): f()` or `/var/task/a.php:12` as X-Ray has it.
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

/// JSON in characters that a header may have.
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

/// As many whole characters as so many bytes have.
fn beginning(text: &str, most: usize) -> &str {
    let mut at = most.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    &text[..at]
}

/// The beginning of a text.
pub fn shortened(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    match text.char_indices().nth(MOST_QUOTED) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.into_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_one_that_lambda_knows() {
        for kind in [
            THROWN,
            TIMED_OUT,
            TOO_LARGE,
            MALFORMED_ANSWER,
            DIED,
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
    fn what_the_library_tells_reaches_the_caller() {
        let body = br##"{"errorType":"LogicException","errorMessage":"no","stackTrace":["#0 /a.php(3): f()"]}"##;
        let fault = Fault::told("Function.Error", body);
        let said: Value = serde_json::from_slice(&fault.body()).unwrap();
        assert_eq!(said, serde_json::from_slice::<Value>(body).unwrap());
        assert_eq!(Fault::told("nonsense", b"oops").kind, THROWN);
        assert_eq!(Fault::told("nonsense", b"oops").message, "oops");
    }

    #[test]
    fn what_lambda_would_not_take_is_shortened_and_says_so() {
        let mut fault = Fault::new(THROWN, "\u{1f418}".repeat(LARGEST / 4 - 100));
        assert!(fault.body().len() <= LARGEST);
        let said: Value = serde_json::from_slice(&fault.body()).unwrap();
        assert_eq!(said["errorMessage"], fault.message, "it fits");
        for message in ["\u{1f418}", "\u{1}", "x"] {
            fault.message = message.repeat(LARGEST / message.len() + 1);
            fault.name = Some("N".repeat(LARGEST));
            fault.stack = vec!["\u{1}".repeat(1000); 10_000];
            let size = fault.written().len();
            let body = fault.body();
            assert!(body.len() <= LARGEST, "{}", body.len());
            let said: Value = serde_json::from_slice(&body).unwrap();
            let shortened = said["errorMessage"].as_str().unwrap();
            assert!(shortened.starts_with(message) && shortened.contains(&size.to_string()));
            assert!(!said["stackTrace"].as_array().unwrap().is_empty());
        }
    }

    #[test]
    fn the_cause_is_a_header_of_ascii() {
        let mut fault = Fault::new(THROWN, "gr\u{fc}n \u{1f418}\n");
        fault.stack = vec!["#0 /var/task/a.php(12): f()".into(), "{main}".into()];
        let text = fault.cause("/var/task").unwrap();
        assert!(http::HeaderValue::from_str(&text).is_ok(), "{text}");
        let cause: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(cause["exceptions"][0]["message"], "gr\u{fc}n \u{1f418}\n");
        assert_eq!(
            cause["exceptions"][0]["stack"][0],
            json!({"path": "/var/task/a.php", "line": 12, "label": "f()"})
        );
        fault.message = "x".repeat(70_000);
        assert!(fault.cause("/").is_none());
    }
}
