//! Asks boots for the pages that warm them up, and for others that these pages could change.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};

use crate::app::site::Site;
use crate::cli::boot_proof::{self, ProbeAnswers};
use crate::cli::{page_diff, warm_ups};
use crate::engine::Engine;
use crate::engines::learned::NO_HOST;
use crate::event::{Event, Failure, Response};

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest answer that is compared.
const MAX_BODY: usize = 2 << 20;

/// The error says why pages are left out.
pub type Outcome<T> = Result<T, String>;

/// What both boots are asked for.
pub struct Probes<'a> {
    pages: Vec<String>,
    pub site: &'a Arc<Site>,
    pub until: Instant,
}

impl Probes<'_> {
    /// The pages themselves, the front page, and a page that does not exist.
    pub async fn new<'a>(pages: &[String], site: &'a Arc<Site>, until: Instant) -> Probes<'a> {
        let mut probes = pages.to_vec();
        let first = pages.first().and_then(|page| page.parse::<Uri>().ok());
        if let Some(first) = first
            && let (Some(scheme), Some(host)) = (first.scheme_str(), first.authority())
        {
            for path in ["/", warm_ups::NO_PAGE] {
                let probe = format!("{scheme}://{host}{path}");
                if !probes.contains(&probe) && get_learned(&probe, site).await.is_some() {
                    probes.push(probe);
                }
            }
        }
        Probes {
            pages: probes,
            site,
            until,
        }
    }

    /// Whether there is no time for another comparison.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Each page, without and with another host, cookie and language.
    pub fn all(&self) -> impl Iterator<Item = (&String, bool)> {
        let both = |page| [(page, false), (page, true)];
        self.pages.iter().flat_map(both)
    }

    /// The answers of a boot to each probe.
    pub async fn answers<A>(&self, ask: impl Fn(Box<Event>) -> A) -> Outcome<Vec<ProbeAnswers>>
    where
        A: Future<Output = Result<Response, Failure>>,
    {
        let mut all = Vec::new();
        for (probe, other) in self.all() {
            let mut answers = Vec::new();
            for _ in 0..boot_proof::ANSWERS {
                let mut event = get_learned(probe, self.site)
                    .await
                    .ok_or_else(|| format!("{probe} has another script by now"))?;
                if other {
                    event = warm_ups::from_another_visitor(event);
                }
                event.deadline = Instant::now() + ANSWER_TIMEOUT;
                let answer = tokio::time::timeout(ANSWER_TIMEOUT, text(ask(Box::new(event)))).await;
                let answer = answer.unwrap_or_else(|_| Err("no whole answer in time".into()));
                answers.push(answer.map_err(|why| format!("{probe}: {why}"))?);
            }
            all.push(answers);
        }
        Ok(all)
    }
}

/// The status that a page answers with.
pub struct PageStatus {
    pub code: StatusCode,
    /// The host that a redirect names.
    target: Option<String>,
}

impl PageStatus {
    pub fn is_ok(&self) -> bool {
        self.code == StatusCode::OK
    }

    /// Whether the application may answer otherwise later: it fails or limits requests.
    pub fn is_temporary(&self) -> bool {
        self.code.is_server_error() || self.code == StatusCode::TOO_MANY_REQUESTS
    }

    /// Why a page that does not answer 200 is left out. Names the host as the remedy only if the
    /// host is the likely cause.
    pub fn reason(&self, page: &str) -> String {
        let uri = page.parse::<Uri>().ok();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        let status = format!("status {} at {host}", self.code.as_u16());
        let leaves = |target: &String| !target.eq_ignore_ascii_case(host);
        let rejects_host = matches!(
            self.code,
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::MISDIRECTED_REQUEST
        );
        if host == NO_HOST || rejects_host || self.target.as_ref().is_some_and(leaves) {
            format!("{status}; name the host that visitors use in [[route]] or [[site]]")
        } else {
            status
        }
    }
}

/// Like [`warm_ups::get_learned`], on a thread that may wait for the disk.
pub async fn get_learned(page: &str, site: &Arc<Site>) -> Option<Event> {
    let (page, site) = (page.to_owned(), site.clone());
    let event = tokio::task::spawn_blocking(move || warm_ups::get_learned(&page, &site));
    event.await.ok().flatten()
}

/// The statuses that a boot answers with at the hosts of the pages. None for a page without an
/// answer.
pub async fn statuses(
    engine: &dyn Engine,
    pages: &[String],
    site: &Arc<Site>,
) -> Vec<Option<PageStatus>> {
    let mut all = Vec::new();
    for page in pages {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, status(engine, page, site));
        all.push(answer.await.ok().flatten());
    }
    all
}

async fn status(engine: &dyn Engine, page: &str, site: &Arc<Site>) -> Option<PageStatus> {
    let mut event = get_learned(page, site).await?;
    event.deadline = Instant::now() + ANSWER_TIMEOUT;
    let (parts, body) = engine.handle(Box::new(event)).await.ok()?.into_parts();
    // To the script, a body that is dropped is a client that has left.
    Limited::new(body, MAX_BODY).collect().await.ok()?;
    let location = parts.headers.get(header::LOCATION);
    let location = location.filter(|_| parts.status.is_redirection());
    let target = location.and_then(|location| Uri::try_from(location.as_bytes()).ok());
    Some(PageStatus {
        code: parts.status,
        target: target.and_then(|target| target.host().map(str::to_owned)),
    })
}

async fn text(answer: impl Future<Output = Result<Response, Failure>>) -> Outcome<Vec<u8>> {
    let (parts, body) = answer
        .await
        .map_err(|error| error.to_string())?
        .into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    Ok(page_diff::comparable(&parts, &body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, target: Option<&str>) -> PageStatus {
        PageStatus {
            code: StatusCode::from_u16(code).unwrap_or_default(),
            target: target.map(str::to_owned),
        }
    }

    #[test]
    fn errors_and_limits_are_temporary() {
        for code in [429, 500, 503] {
            assert!(status(code, None).is_temporary(), "{code}");
        }
        for code in [200, 302, 400, 403, 404] {
            assert!(!status(code, None).is_temporary(), "{code}");
        }
    }

    #[test]
    fn reason_names_the_host_only_if_it_is_the_likely_cause() {
        let page = "http://a.test/";
        for (code, target, is_host) in [
            (400, None, true),
            (404, None, true),
            (421, None, true),
            (301, Some("b.test"), true),
            (301, Some("A.test"), false),
            (302, None, false),
            (403, None, false),
        ] {
            let reason = status(code, target).reason(page);
            assert_eq!(reason.contains("name the host"), is_host, "{reason}");
        }
        let forbidden = status(403, None);
        assert_eq!(forbidden.reason(page), "status 403 at a.test");
        let reason = forbidden.reason("http://localhost/");
        assert!(reason.contains("name the host"), "{reason}");
    }
}
