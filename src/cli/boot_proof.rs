//! `surus check --boot`: compares the answers of a warmed-up boot with those of one without
//! warm-ups, and names the warm-ups that change them.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use http::Uri;
use http_body_util::{BodyExt, Limited};

use super::engine_setup::{self, PoolConfig};
use super::page_diff::{self, PlainAnswers};
use super::{learned_pages, warm_ups};
use crate::app::site::Site;
use crate::engine::Engine;
use crate::engines::Warmup;
use crate::observe::metrics::Metrics;
use crate::observe::status::LeftOutReason;

/// How often a boot is asked for each page, in a row. One of a few random values is seldom the same
/// so often.
pub(super) const ANSWERS: usize = 4;
/// Times with seconds differ between two answers with this distance.
pub(super) const SECOND: Duration = Duration::from_millis(1100);

/// The longest page that is compared. All answers to it are in memory.
const MAX_PAGE: usize = 64 << 20;

/// The answers to one probe, as text that can be compared.
pub(super) type ProbeAnswers = Vec<Vec<u8>>;

/// The paths of warm-ups that a boot has left out, and why.
type LeftOutPaths = Vec<(String, LeftOutReason)>;

/// What a comparison has shown.
pub enum BootVerdict {
    /// A page with the same answers.
    Same(String),
    /// A page with another answer, or a cause.
    Changed(String),
    /// A warm-up that the boot does not use.
    LeftOut(String),
}

/// Compares an isolating engine's boots, page by page, and names the warm-up that changes one.
pub async fn compare(pool_config: &PoolConfig, project: &Path) -> anyhow::Result<Vec<BootVerdict>> {
    let (_, site) = engine_setup::script_and_site(project, &pool_config.config)?;
    if pool_config.learns() {
        let mut pages = learned_pages::load(project, pool_config);
        pages.retain(|page| pool_config.learned.has_own_host(page));
        pool_config.learned.set_pages(pages);
    }
    let learned = pool_config.learned.pages();
    let others = engine_setup::warm_up_requests(pool_config, &site)?.left_to_others;
    let urls = pool_config.config.engine.warmup.urls().iter().enumerate();
    let (others, urls): (Vec<_>, Vec<_>) = urls.partition(|(place, _)| others.contains(place));
    let urls: Vec<_> = urls.into_iter().map(|(_, url)| url.clone()).collect();
    let probes = Probes {
        pool_config,
        project,
        site: &site,
        pages: pages(&[&urls[..], &learned].concat(), &site),
    };
    let began = Instant::now();
    let (plain, _) = probes.answers(Warmup::off()).await?;
    let (warm, left_out) = probes
        .answers(pool_config.config.engine.warmup.clone())
        .await?;
    tokio::time::sleep(SECOND.saturating_sub(began.elapsed())).await;
    // All answers are framed by plain ones, because of their dates.
    let plain = plain_answers(&plain, &probes.answers(Warmup::off()).await?.0);
    let differences = differences(&plain, &warm);
    let mut verdicts: Vec<_> = (probes.all().zip(&differences))
        // No comparison shows the effect of a page that the boot has left out.
        .filter(|((page, _), difference)| difference.is_some() || !is_among(page, &left_out))
        .map(|((page, other), difference)| verdict(page, other, difference.as_ref()))
        .collect();
    let others = others
        .into_iter()
        .map(|(_, page)| (page.clone(), LeftOutReason::OtherScript));
    verdicts.extend(left_out.into_iter().chain(others).map(|(page, reason)| {
        let why = reason.in_the_boot();
        BootVerdict::LeftOut(format!(
            "GET {page} is left out of the warm-ups: {why}; the log says more"
        ))
    }));
    if differences.iter().any(Option::is_some) {
        // From here on, each page alone.
        pool_config.learned.set_pages(Vec::new());
        let suspects = suspects(&urls, &learned);
        verdicts.push(BootVerdict::Changed(cause(&probes, &plain, suspects).await));
    }
    Ok(verdicts)
}

/// Whether a page, which may name a host, is one of these paths.
fn is_among(page: &str, left_out: &LeftOutPaths) -> bool {
    let uri = page.parse::<Uri>().ok();
    let path = uri.as_ref().and_then(Uri::path_and_query);
    path.is_some_and(|path| left_out.iter().any(|(left, _)| left == path.as_str()))
}

fn verdict(page: &str, other: bool, difference: Option<&(String, String)>) -> BootVerdict {
    let visitor = match other {
        true => " of another scheme, host, cookie and language",
        false => "",
    };
    match difference {
        None => BootVerdict::Same(format!("GET {page}{visitor}: no other answer")),
        Some((expected, got)) => BootVerdict::Changed(format!(
            "GET {page}{visitor} has another answer after the warm-ups: `{got}` instead of \
             `{expected}`"
        )),
    }
}

/// Tries the warm-ups one by one.
async fn cause(
    probes: &Probes<'_>,
    plain: &[Option<PlainAnswers>],
    suspects: Vec<(Warmup, String)>,
) -> String {
    for (warmup, remedy) in suspects {
        let changes = match probes.answers(warmup).await {
            Ok((answers, _)) => differences(plain, &answers).iter().any(Option::is_some),
            Err(_) => true,
        };
        if changes {
            return remedy;
        }
    }
    "no warm-up changes it alone; take several out of engine.warmup".into()
}

/// Front page, an unknown page, and the configured ones, if PHP answers them.
fn pages(urls: &[String], site: &Site) -> Vec<String> {
    let mut pages: Vec<String> = vec!["/".into(), warm_ups::NO_PAGE.into()];
    pages.extend(urls.iter().cloned());
    let mut seen = HashSet::new();
    pages.retain(|page| seen.insert(page.clone()) && warm_ups::get(page, site).is_ok());
    pages
}

/// Warm-ups to try one by one, each with what to do if it is the cause.
fn suspects(urls: &[String], learned: &[String]) -> Vec<(Warmup, String)> {
    let alone = (
        Warmup::Auto,
        "the cause is the warm-up that Surus adds; engine.warmup = [] turns warm-ups off".into(),
    );
    let named = urls.iter().map(|url| {
        let remedy = format!("the cause is the warm-up {url}; take it out of engine.warmup");
        (Warmup::Urls(vec![url.clone()]), remedy)
    });
    let learned = learned.iter().map(|url| {
        let remedy = format!("the cause is the learned page {url}; name others in engine.warmup");
        (Warmup::Urls(vec![url.clone()]), remedy)
    });
    [alone].into_iter().chain(named).chain(learned).collect()
}

/// What a boot has answered to each probe, before and after another.
pub(super) fn plain_answers(
    before: &[ProbeAnswers],
    after: &[ProbeAnswers],
) -> Vec<Option<PlainAnswers>> {
    let both = before.iter().zip(after);
    both.map(|(before, after)| PlainAnswers::new(before, after))
        .collect()
}

/// The first difference of the answers to each probe.
pub(super) fn differences(
    plain: &[Option<PlainAnswers>],
    all: &[ProbeAnswers],
) -> Vec<Option<(String, String)>> {
    let difference = |(plain, answers): (&Option<PlainAnswers>, &ProbeAnswers)| {
        let plain = plain.as_ref()?;
        plain.difference(answers)
    };
    plain.iter().zip(all).map(difference).collect()
}

struct Probes<'a> {
    pool_config: &'a PoolConfig,
    project: &'a Path,
    site: &'a Site,
    pages: Vec<String>,
}

impl Probes<'_> {
    /// Boots with these warm-ups and asks for each page. Also returns the warm-ups that the boot
    /// has left out.
    async fn answers(&self, warmup: Warmup) -> anyhow::Result<(Vec<ProbeAnswers>, LeftOutPaths)> {
        let mut pool_config = self.pool_config.clone();
        pool_config.config.engine.warmup = warmup;
        let warm_ups = engine_setup::warm_up_requests(&pool_config, self.site)?;
        let metrics = Arc::new(Metrics::default());
        let pool = engine_setup::boot_one(&pool_config, self.project, &metrics).await?;
        let mut all = Vec::new();
        for (page, other) in self.all() {
            let mut answers = Vec::new();
            for _ in 0..ANSWERS {
                let answer = self.ask(&*pool, page, other).await;
                answers.push(answer.with_context(|| format!("GET {page}"))?);
            }
            all.push(answers);
        }
        let report = pool.report();
        let left_out = report
            .left_out()
            .into_iter()
            .filter_map(|(number, reason)| {
                let warm_up = warm_ups.events.get(number.checked_sub(1)?)?;
                Some((warm_up.request.uri().to_string(), reason))
            });
        let left_out = left_out.collect();
        pool.drain().await;
        Ok((all, left_out))
    }

    /// Each page, without and with another scheme, host, cookie and language.
    fn all(&self) -> impl Iterator<Item = (&String, bool)> {
        let both = |page| [(page, false), (page, true)];
        self.pages.iter().flat_map(both)
    }

    async fn ask(&self, pool: &dyn Engine, page: &str, other: bool) -> anyhow::Result<Vec<u8>> {
        let mut event = warm_ups::get(page, self.site)?;
        if other {
            event = warm_ups::from_another_visitor(event);
        }
        let (parts, body) = pool.handle(Box::new(event)).await?.into_parts();
        let body = Limited::new(body, MAX_PAGE).collect().await;
        let body = body
            .map_err(|error| anyhow!(error))
            .with_context(|| format!("pages of at most {} MiB are compared", MAX_PAGE >> 20))?;
        let body = body.to_bytes();
        Ok(page_diff::comparable(&parts, &body))
    }
}
