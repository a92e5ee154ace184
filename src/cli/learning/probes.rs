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

/// Why answers cannot be compared.
pub enum Fault {
    Lasting(String),
    /// A page fails for now, as a rate limiter or an outage makes it. Without a page, another
    /// probe does, and nothing can be compared.
    Temporary(Option<String>, String),
}

/// What both boots are asked for.
pub struct Probes<'a> {
    pages: Vec<String>,
    /// How many of them, the first, are pages that clients have got with status 200.
    learned: usize,
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
            learned: pages.len(),
            site,
            until,
        }
    }

    /// Asks for this page no more.
    pub fn remove(&mut self, page: &str) {
        if let Some(at) = self.pages.iter().position(|probe| probe == page) {
            self.pages.remove(at);
            self.learned -= usize::from(at < self.learned);
        }
    }

    /// Fails if the serving boot fails for now: it limits requests, or a page has an error. Clients
    /// have got that page with status 200.
    pub fn check(&self, all: &[ProbeAnswers]) -> Result<(), Fault> {
        for ((probe, other), answers) in self.all().zip(all) {
            let page = self.pages.iter().take(self.learned).find(|it| *it == probe);
            let fails = |status: &StatusCode| match page {
                Some(_) if !other => is_temporary(*status),
                _ => *status == StatusCode::TOO_MANY_REQUESTS,
            };
            if let Some(status) = statuses_of(answers).find(fails) {
                let why = format!("status {} of {probe} in a comparison", status.as_u16());
                return Err(Fault::Temporary(page.cloned(), why));
            }
        }
        Ok(())
    }

    /// Whether one of the answers may be another one later.
    pub fn has_failed(answers: &ProbeAnswers) -> bool {
        statuses_of(answers).any(is_temporary)
    }

    /// Whether there is no time for another comparison.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Each page, without and with another scheme, host, cookie and language.
    pub fn all(&self) -> impl Iterator<Item = (&String, bool)> {
        let both = |page| [(page, false), (page, true)];
        self.pages.iter().flat_map(both)
    }

    /// The answers of a boot to each probe.
    pub async fn answers<A>(
        &self,
        ask: impl Fn(Box<Event>) -> A,
    ) -> Result<Vec<ProbeAnswers>, Fault>
    where
        A: Future<Output = Result<Response, Failure>>,
    {
        let mut all = Vec::new();
        for (probe, other) in self.all() {
            all.push(self.answer(probe, other, &ask).await?);
        }
        Ok(all)
    }

    /// The answers of a boot to one probe.
    pub async fn answer<A>(
        &self,
        probe: &String,
        other: bool,
        ask: impl Fn(Box<Event>) -> A,
    ) -> Result<ProbeAnswers, Fault>
    where
        A: Future<Output = Result<Response, Failure>>,
    {
        let mut answers = Vec::new();
        for _ in 0..boot_proof::ANSWERS {
            let event = get_learned(probe, self.site).await;
            let other_script = || Fault::Lasting(format!("{probe} has another script by now"));
            let mut event = event.ok_or_else(other_script)?;
            if other {
                event = warm_ups::from_another_visitor(event);
            }
            event.deadline = Instant::now() + ANSWER_TIMEOUT;
            let answer = tokio::time::timeout(ANSWER_TIMEOUT, text(ask(Box::new(event)))).await;
            let answer = answer.unwrap_or_else(|_| Err("no whole answer in time".into()));
            answers.push(answer.map_err(|why| Fault::Lasting(format!("{probe}: {why}")))?);
        }
        Ok(answers)
    }
}

/// Whether the application may answer otherwise later: it fails or limits requests.
fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

/// The statuses, which texts of answers begin with.
fn statuses_of(answers: &ProbeAnswers) -> impl Iterator<Item = StatusCode> {
    let status = |text: &Vec<u8>| StatusCode::from_bytes(text.get(..3)?).ok();
    answers.iter().filter_map(status)
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

    pub fn is_temporary(&self) -> bool {
        is_temporary(self.code)
    }

    pub fn text(&self, page: &str) -> String {
        format!("status {} at {}", self.code.as_u16(), host(page))
    }

    /// Why a page that does not answer 200 is left out. Names the host as the remedy only if the
    /// host is the likely cause.
    pub fn reason(&self, page: &str) -> String {
        let (status, host) = (self.text(page), host(page));
        let leaves = |target: &String| !target.eq_ignore_ascii_case(&host);
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

fn host(page: &str) -> String {
    let uri = page.parse::<Uri>().ok();
    let host = uri.as_ref().and_then(Uri::host);
    host.unwrap_or_default().to_owned()
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

/// The error says why there is no answer.
async fn text(answer: impl Future<Output = Result<Response, Failure>>) -> Result<Vec<u8>, String> {
    let (parts, body) = answer
        .await
        .map_err(|error| error.to_string())?
        .into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    Ok(page_diff::comparable(&parts, &body))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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

    #[tokio::test]
    async fn failing_page_is_named_and_removed_and_other_probes_may_have_errors() {
        let project = tempfile::tempdir().unwrap();
        std::fs::write(project.path().join("index.php"), "<?php").unwrap();
        let site = Site::open(project.path(), &Default::default(), None).unwrap();
        let (page, site) = ("http://localhost/page".to_owned(), Arc::new(site));
        let mut probes = Probes::new(std::slice::from_ref(&page), &site, Instant::now()).await;
        assert_eq!(probes.all().count(), 6);
        let answers = |texts: [&str; 6]| texts.map(|text| vec![text.as_bytes().to_vec()]);
        let check = |probes: &Probes, texts| match probes.check(&answers(texts)) {
            Ok(()) => None,
            Err(Fault::Temporary(page, _)) => Some(page),
            Err(Fault::Lasting(why)) => panic!("{why}"),
        };
        let ok = "200\n\n";
        assert_eq!(check(&probes, [ok, "500\n", "503\n", ok, ok, ""]), None);
        for failing in ["429\n", "500\n", "503\n"] {
            let texts = [failing, ok, ok, ok, ok, ok];
            assert_eq!(check(&probes, texts), Some(Some(page.clone())), "{failing}");
        }
        let limited = [ok, ok, "429\n", ok, ok, ok];
        assert_eq!(check(&probes, limited), Some(None));
        probes.remove(&page);
        assert_eq!((probes.all().count(), probes.learned), (4, 0));
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
