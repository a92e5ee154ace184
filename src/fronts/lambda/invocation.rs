//! One event as the Runtime API delivers it.

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde::Serialize;
use serde_json::Value;

/// An event and its metadata.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// Lambda's request id.
    pub id: HeaderValue,
    /// Sent back with the response if present: Lambda matches the response to this invocation by
    /// it.
    pub nonce: Option<HeaderValue>,
    /// When Lambda ends the function.
    pub deadline: Instant,
    pub payload: Bytes,
    headers: HeaderMap,
}

/// The deadline if Lambda gives none: the longest time that a function may take.
const LONGEST: Duration = Duration::from_secs(900);

impl Invocation {
    /// Reads a response to `/next`. None without a request id: every event has one, and URLs
    /// contain it.
    pub fn new(
        mut headers: HeaderMap,
        payload: Bytes,
        now: Instant,
        epoch: SystemTime,
    ) -> Option<Self> {
        let id = headers.remove("lambda-runtime-aws-request-id")?;
        let is_plain = |c: &u8| c.is_ascii_alphanumeric() || b"-_.".contains(c);
        if id.is_empty() || !id.as_bytes().iter().all(is_plain) {
            return None;
        }
        let nonce = headers.remove("lambda-runtime-invocation-id");
        let invocation = Invocation {
            id,
            nonce: nonce.filter(|nonce| !nonce.is_empty()),
            deadline: now,
            payload,
            headers,
        };
        let left = invocation.deadline_ms().map(|at| {
            let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at);
            at.duration_since(epoch).unwrap_or_default()
        });
        Some(Invocation {
            deadline: now + left.map_or(LONGEST, |left| left.min(LONGEST * 100)),
            ..invocation
        })
    }

    /// Limits `wanted`, the time kept for ending PHP and sending the response, to the time left.
    pub fn deadline_margin(&self, wanted: Duration, now: Instant) -> Duration {
        wanted.min(self.deadline.saturating_duration_since(now) / 4)
    }

    /// The request id as a string.
    pub fn id(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }

    /// The event's X-Ray trace.
    pub fn trace(&self) -> Option<&str> {
        self.header("lambda-runtime-trace-id")
    }

    fn deadline_ms(&self) -> Option<u64> {
        self.header("lambda-runtime-deadline-ms")?.parse().ok()
    }

    /// The deadline of a part of the event that must end at `deadline`.
    fn deadline_ms_of(&self, deadline: Instant) -> Option<u64> {
        let earlier = self.deadline.saturating_duration_since(deadline);
        let earlier = u64::try_from(earlier.as_millis()).unwrap_or(u64::MAX);
        Some(self.deadline_ms()?.saturating_sub(earlier))
    }

    /// A header's value. Lambda sends some headers even when they are empty.
    fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name)?.to_str().ok()?;
        (!value.is_empty()).then_some(value)
    }

    /// `LAMBDA_INVOCATION_CONTEXT`: what Surus tells PHP about the event, under Bref's
    /// names. `deadline` is the event's or that of a part of it.
    pub fn context(&self, deadline: Instant) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Context<'a> {
            aws_request_id: &'a str,
            deadline_ms: u64,
            invoked_function_arn: &'a str,
            trace_id: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            client_context: Option<Value>,
            #[serde(skip_serializing_if = "Option::is_none")]
            identity: Option<Value>,
            #[serde(skip_serializing_if = "Option::is_none")]
            tenant_id: Option<&'a str>,
        }
        // Both are JSON. Anything else is passed on as a string.
        let json = |name| {
            let text = self.header(name)?;
            Some(serde_json::from_str(text).unwrap_or_else(|_| text.into()))
        };
        let context = Context {
            aws_request_id: self.id(),
            deadline_ms: self.deadline_ms_of(deadline).unwrap_or_default(),
            invoked_function_arn: self
                .header("lambda-runtime-invoked-function-arn")
                .unwrap_or_default(),
            trace_id: self.trace().unwrap_or_default(),
            client_context: json("lambda-runtime-client-context"),
            identity: json("lambda-runtime-cognito-identity"),
            tenant_id: self.header("lambda-runtime-aws-tenant-id"),
        };
        // Strings, numbers and JSON always serialize.
        serde_json::to_string(&context).unwrap_or_default()
    }

    /// The variables of this event in PHP's `$_SERVER`, whatever the event's type.
    pub fn variables(
        &self,
        deadline: Instant,
        trace: Option<&str>,
        thawed: Option<Duration>,
    ) -> Vec<(Cow<'static, str>, String)> {
        let mut variables = Vec::with_capacity(4);
        variables.push(("LAMBDA_INVOCATION_CONTEXT".into(), self.context(deadline)));
        if let Some(trace) = trace {
            variables.push(("_X_AMZN_TRACE_ID".into(), trace.to_string()));
        }
        if let Some(thawed) = thawed {
            variables.push(("SURUS_THAWED".into(), thawed.as_secs().to_string()));
        }
        variables
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    fn invocation(fields: &[(&'static str, &str)], now: Instant) -> Option<Invocation> {
        let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        Invocation::new(headers(fields), Bytes::new(), now, epoch)
    }

    #[test]
    fn deadline_is_an_instant_of_this_process() {
        let now = Instant::now();
        let id = ("lambda-runtime-aws-request-id", "a");
        let at = |text| {
            let invocation = invocation(&[id, ("lambda-runtime-deadline-ms", text)], now);
            invocation.unwrap().deadline - now
        };
        assert_eq!(at("1003500"), Duration::from_millis(3500));
        assert_eq!(at("900000"), Duration::ZERO, "it is over already");
        assert_eq!(at(""), LONGEST);
        assert_eq!(at("soon"), LONGEST);
    }

    #[test]
    fn part_of_an_event_gets_its_own_deadline() {
        let id = ("lambda-runtime-aws-request-id", "a");
        let deadline = |value, earlier| {
            let value = [id, ("lambda-runtime-deadline-ms", value)];
            let invocation = invocation(&value, Instant::now()).unwrap();
            let context = invocation.context(invocation.deadline - Duration::from_millis(earlier));
            serde_json::from_str::<Value>(&context).unwrap()["deadlineMs"].clone()
        };
        assert_eq!(deadline("1003500", 0), 1_003_500);
        assert_eq!(deadline("1003500", 1200), 1_002_300);
        assert_eq!(deadline("", 1200), 0, "Lambda gave no deadline");
    }

    #[test]
    fn empty_header_counts_as_missing() {
        let now = Instant::now();
        for id in ["", "a b", "../next"] {
            assert!(invocation(&[("lambda-runtime-aws-request-id", id)], now).is_none());
        }
        let empty = invocation(
            &[
                ("lambda-runtime-aws-request-id", "a"),
                ("lambda-runtime-invocation-id", ""),
                ("lambda-runtime-trace-id", ""),
                ("lambda-runtime-client-context", ""),
                ("lambda-runtime-aws-tenant-id", ""),
            ],
            now,
        )
        .unwrap();
        assert!(empty.nonce.is_none());
        assert_eq!(empty.variables(now, empty.trace(), None).len(), 1);
        let context: Value = serde_json::from_str(&empty.context(now)).unwrap();
        assert_eq!(
            context,
            serde_json::json!({
                "awsRequestId": "a",
                "deadlineMs": 0,
                "invokedFunctionArn": "",
                "traceId": "",
            })
        );
    }

    #[test]
    fn php_gets_all_of_lambdas_metadata() {
        let invocation = invocation(
            &[
                ("lambda-runtime-aws-request-id", "a-1"),
                ("lambda-runtime-deadline-ms", "1003500"),
                ("lambda-runtime-invoked-function-arn", "arn:x"),
                ("lambda-runtime-trace-id", "Root=1"),
                ("lambda-runtime-client-context", r#"{"custom":{"a":1}}"#),
                (
                    "lambda-runtime-cognito-identity",
                    r#"{"cognitoIdentityId":"i"}"#,
                ),
                ("lambda-runtime-aws-tenant-id", "t"),
            ],
            Instant::now(),
        )
        .unwrap();
        let context = invocation.context(invocation.deadline);
        let context: Value = serde_json::from_str(&context).unwrap();
        assert_eq!(
            context,
            serde_json::json!({
                "awsRequestId": "a-1",
                "deadlineMs": 1003500,
                "invokedFunctionArn": "arn:x",
                "traceId": "Root=1",
                "clientContext": {"custom": {"a": 1}},
                "identity": {"cognitoIdentityId": "i"},
                "tenantId": "t",
            })
        );
        let thawed = Some(Duration::from_secs(7));
        let names: Vec<_> = invocation.variables(invocation.deadline, invocation.trace(), thawed);
        assert_eq!(names[1], ("_X_AMZN_TRACE_ID".into(), "Root=1".into()));
        assert_eq!(names[2], ("SURUS_THAWED".into(), "7".into()));
    }
}
