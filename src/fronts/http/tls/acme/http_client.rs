//! Sends the requests of the ACME client: one connection each, over TLS only, bounded in time and
//! size. Notes the times in its answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient, Problem};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::schedule::{LONGEST_WAIT, USUAL_LIMIT};
use crate::connect;
use crate::fronts::http::tls::clock::ClockDifference;

/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The limit of a response. A chain has a few kilobytes.
const LARGEST: usize = 1 << 20;

/// The status of a limit that was reached (RFC 6585, 4).
const TOO_MANY_REQUESTS: u16 = 429;

#[derive(Clone)]
pub struct Https {
    connector: TlsConnector,
    timing: Arc<Mutex<AuthorityTiming>>,
}

/// Times from an authority's answers: its clock, and how long to wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuthorityTiming {
    pub clock: ClockDifference,
    /// How long errors have asked to wait before the next request.
    pub wait: Option<Duration>,
}

impl Https {
    /// Trusts these roots, or without them those that browsers trust.
    pub fn new(roots: Option<RootCertStore>) -> anyhow::Result<Https> {
        let roots = roots.unwrap_or_else(|| RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        });
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Https {
            connector: TlsConnector::from(Arc::new(config)),
            timing: Arc::default(),
        })
    }

    /// A client for another authority.
    pub fn for_another(&self) -> Https {
        Https {
            connector: self.connector.clone(),
            timing: Arc::default(),
        }
    }

    pub fn timing(&self) -> AuthorityTiming {
        *self.timing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AuthorityTiming {
    /// Notes the times in an answer's headers, and makes its `Retry-After` a number of seconds
    /// within bounds: instant-acme compares dates with this machine's clock.
    fn note(&mut self, parts: &mut Parts, now: SystemTime) {
        let date = date(&parts.headers, header::DATE);
        if let Some(date) = date {
            self.clock = ClockDifference::between(now, date);
        }
        let wait = retry_after(&parts.headers, date.unwrap_or(now));
        parts.headers.remove(header::RETRY_AFTER);
        if let Some(wait) = wait {
            let seconds = HeaderValue::from(wait.as_secs());
            parts.headers.insert(header::RETRY_AFTER, seconds);
        }
        let is_limit = parts.status.as_u16() == TOO_MANY_REQUESTS;
        let wait = wait.or(is_limit.then_some(USUAL_LIMIT));
        if parts.status.is_client_error() || parts.status.is_server_error() {
            self.wait = self.wait.max(wait);
        }
    }
}

fn date(headers: &HeaderMap, name: header::HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?.trim()).ok()
}

/// A number of seconds, or a date by the authority's clock (RFC 9110, 10.2.3).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let wait = match is_number {
        // It has more digits than a number can have.
        true => text.parse().map_or(LONGEST_WAIT, Duration::from_secs),
        false => {
            let until = date(headers, header::RETRY_AFTER)?;
            until.duration_since(now).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_WAIT))
}

impl HttpClient for Https {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let https = self.clone();
        Box::pin(async move {
            let host = request.uri().host().unwrap_or_default().to_owned();
            let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
            let sent = tokio::time::timeout(TIMEOUT, send(https.connector, request)).await;
            let sent = sent
                .map_err(|_| anyhow!("no response within {TIMEOUT:?}"))
                .and_then(|sent| sent)
                .with_context(|| format!("cannot reach {host}"));
            let checked = sent.and_then(|(mut parts, body)| {
                let mut timing = https.timing.lock().unwrap_or_else(PoisonError::into_inner);
                timing.note(&mut parts, SystemTime::now());
                check(&host, parts.status, is_read, &body)?;
                Ok(BytesResponse {
                    parts,
                    body: Box::new(body),
                })
            });
            checked.map_err(|error| Error::Other(error.into()))
        })
    }
}

/// Returns an error for an answer that instant-acme would reject without its status: for invalid
/// JSON, or for missing fields of a directory.
fn check(host: &str, status: StatusCode, is_read: bool, body: &[u8]) -> anyhow::Result<()> {
    if status.as_u16() < 400 {
        return Ok(());
    }
    let problem: Option<Problem> = serde_json::from_slice(body).ok();
    match problem {
        Some(problem) if is_read => bail!("{host} has answered {status}: {problem}"),
        Some(_) => Ok(()),
        None => bail!("{host} has answered {status}"),
    }
}

async fn send(
    connector: TlsConnector,
    request: Request<BodyWrapper<Bytes>>,
) -> anyhow::Result<(Parts, Bytes)> {
    let (mut parts, body) = request.into_parts();
    let uri = std::mem::take(&mut parts.uri);
    let authority = uri.authority().context("the URL has no host")?;
    if uri.scheme_str() != Some("https") {
        bail!("{uri} is not an https URL");
    }
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let value = HeaderValue::from_str(authority.as_str())?;
    parts.headers.insert(header::HOST, value);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = Uri::try_from(path)?;
    let stream = connect::to_host(&host, authority.port_u16().unwrap_or(443)).await?;
    let stream = connector.connect(ServerName::try_from(host)?, stream).await;
    let stream =
        stream.context("the TLS handshake failed; check the clock of this machine, too")?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driven = tokio::spawn(connection);
    let body = body.collect().await?.to_bytes();
    let response = sender
        .send_request(Request::from_parts(parts, Full::new(body)))
        .await?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, LARGEST).collect().await;
    driven.abort();
    let body = body.map_err(|error| anyhow!(error))?.to_bytes();
    Ok((parts, body))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// 2024-01-02 00:00:00 UTC.
    const DATE: &str = "Tue, 02 Jan 2024 00:00:00 GMT";
    const DAY: Duration = Duration::from_secs(86400);

    /// The timing that an answer leaves, and its `Retry-After` after that.
    fn timing(status: u16, retry: &str, now: SystemTime) -> (AuthorityTiming, Option<String>) {
        let mut answer = http::Response::builder()
            .status(status)
            .header("date", DATE);
        if !retry.is_empty() {
            answer = answer.header("retry-after", retry);
        }
        let (mut parts, ()) = answer.body(()).unwrap().into_parts();
        let mut timing = AuthorityTiming::default();
        timing.note(&mut parts, now);
        let left = parts.headers.get("retry-after");
        (timing, left.map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn wait_of_errors_is_bounded_and_measured_by_the_authoritys_clock() {
        let now = httpdate::parse_http_date(DATE).unwrap();
        let hour = "Tue, 02 Jan 2024 01:00:00 GMT";
        for (status, retry, wait) in [
            (429, "90", Some(90)),
            (429, "", Some(3600)),
            (429, hour, Some(3600)),
            (429, "Mon, 01 Jan 2024 00:00:00 GMT", Some(0)),
            (429, "soon", Some(3600)),
            (403, "90", Some(90)),
            (503, "18446744073709551615", Some(7 * 86400)),
            (503, "99999999999999999999999", Some(7 * 86400)),
            (503, "Tue, 02 Jan 2074 00:00:00 GMT", Some(7 * 86400)),
            (503, "", None),
            (400, "", None),
            (200, "90", None),
        ] {
            for clock in [now, now + 400 * DAY, now - 400 * DAY] {
                let (timing, left) = timing(status, retry, clock);
                let expected = wait.map(Duration::from_secs);
                assert_eq!(timing.wait, expected, "{status} {retry}");
                let is_seconds = left.is_none_or(|left| left.parse::<u32>().is_ok());
                assert!(is_seconds, "{status} {retry}");
            }
        }
        assert_eq!(timing(200, hour, now).1.as_deref(), Some("3600"));
    }

    #[test]
    fn difference_of_the_clocks_is_noted() {
        let now = httpdate::parse_http_date(DATE).unwrap();
        let clock = |now| timing(200, "", now).0.clock;
        assert_eq!(clock(now), ClockDifference::None);
        assert_eq!(clock(now + DAY), ClockDifference::Ahead(DAY));
        assert_eq!(clock(now - DAY), ClockDifference::Behind(DAY));
    }

    #[test]
    fn error_that_is_no_answer_of_acme_is_reported_by_its_status() {
        let error_of = |status, is_read, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            check("ca.example", status, is_read, body.as_bytes())
                .err()
                .map(|error| error.to_string())
        };
        let problem = r#"{"type": "urn:x", "detail": "too many"}"#;
        assert_eq!(error_of(200, true, "<html>"), None);
        assert_eq!(error_of(429, false, problem), None);
        let read = error_of(429, true, problem).unwrap();
        assert!(read.contains("429") && read.contains("too many"), "{read}");
        let page = error_of(503, false, "<html>").unwrap();
        assert_eq!(page, "ca.example has answered 503 Service Unavailable");
    }
}
