//! Warms up the boots of a pool by the pages that clients ask for most. It boots with them,
//! compares its answers with those of the serving boot, and switches if they are the same.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Uri;
use http_body_util::{BodyExt, Limited};
use tokio::sync::OwnedMutexGuard;
use tracing::{info, warn};

use super::boot_lock::BootLock;
use super::boot_proof::{self, ProbeAnswers};
use super::engine_setup::PlannedPool;
use super::revalidation::link_change;
use super::{learned_pages, page_diff, warm_ups};
use crate::app::site::Site;
use crate::engine::{Engine, Prepared};
use crate::engines::learned;
use crate::event::{Event, Failure, Response};
use crate::keeper::Client;
use crate::observe::status::LeftOut;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest answer that is compared.
const MAX_BODY: usize = 2 << 20;

/// How long all boots and comparisons of one change may take.
const LONGEST: Duration = Duration::from_secs(300);

/// How often a learner that was interrupted looks whether another boot serves.
const PAUSE: Duration = Duration::from_secs(1);

/// The keeper, if there is one, and the number that the pool has there.
pub type Keeper = Option<(Arc<Client>, u16)>;

/// A pool that learns.
pub struct Learner {
    pub project: PathBuf,
    pub planned: PlannedPool,
    pub keeper: Keeper,
    pub engine: Arc<dyn Engine>,
    /// Locked while the application boots with pages that are not compared yet: another reload
    /// would use them, too.
    pub booting: Arc<BootLock>,
    /// The site that is served now.
    pub site: Box<dyn Fn() -> Arc<Site> + Send + Sync>,
}

impl Learner {
    /// Runs until it is aborted.
    pub async fn run(self: Arc<Self>) {
        let learned = self.learned();
        learned.start();
        loop {
            let chosen = learned.chosen().await;
            let site = (self.site)();
            let left_out = learned.left_out();
            let mut pages = Vec::new();
            for page in chosen {
                if left_out.iter().all(|left| left.page != page)
                    && get_learned(&page, &site).await.is_some()
                {
                    pages.push(page);
                }
            }
            let before = learned.pages();
            if !pages.iter().all(|page| before.contains(page)) {
                self.change(pages, &site).await;
            }
        }
    }

    fn learned(&self) -> &learned::Learned {
        &self.planned.pool_config.learned
    }

    /// Warms up by the pages that change no answer, and leaves out the others. Tries again later if
    /// the application boots meanwhile.
    async fn change(&self, pages: Vec<String>, site: &Arc<Site>) {
        let generation = self.generation();
        if self.try_change(pages.clone(), site).await.is_ok() {
            return;
        }
        info!(
            engine = self.planned.pool_config.name,
            "learned pages are compared later, because the application boots for another reason"
        );
        let began = Instant::now();
        while self.generation() == generation && began.elapsed() < LONGEST {
            tokio::time::sleep(PAUSE).await;
        }
        self.learned().propose(pages);
    }

    /// The number of the boot that serves.
    fn generation(&self) -> u64 {
        self.engine.status().generation
    }

    async fn try_change(
        &self,
        mut pages: Vec<String>,
        site: &Arc<Site>,
    ) -> Result<(), Interrupted> {
        let began = Instant::now();
        let probes = Probes::new(&pages, site, began + LONGEST).await;
        let Err(refused) = self.try_pages(&pages, &probes).await else {
            return Ok(());
        };
        let mut changes = vec![(pages.first().cloned(), refused.why()?)];
        if pages.len() > 1 && !probes.is_over() {
            changes.clear();
            let mut good = Vec::new();
            for page in &pages {
                match self.boot(std::slice::from_ref(page), &probes).await {
                    Ok(_) => good.push(page.clone()),
                    Err(refused) => changes.push((Some(page.clone()), refused.why()?)),
                }
            }
            pages = good;
            if let Err(refused) = self.try_pages(&pages, &probes).await {
                // Several pages together change an answer.
                let why = refused.why()?;
                changes.extend(pages.into_iter().map(|page| (Some(page), why.clone())));
            }
        }
        if probes.is_over() {
            warn!(
                engine = self.planned.pool_config.name,
                seconds = began.elapsed().as_secs(),
                "learned pages do not warm up the boot: the comparison of answers takes too long"
            );
            return Ok(());
        }
        if self.learned().pages().is_empty() {
            // The next start need not try them.
            self.set(&[], true).await;
        }
        for (page, why) in changes {
            self.leave_out(page.unwrap_or_default(), why, began);
        }
        Ok(())
    }

    fn leave_out(&self, page: String, why: String, began: Instant) {
        warn!(
            engine = self.planned.pool_config.name,
            page,
            reason = why,
            seconds = began.elapsed().as_secs(),
            "a page that clients often ask for is left out of the warm-up"
        );
        self.learned().leave_out(LeftOut { page, why });
    }

    /// Boots with these pages and switches, unless an answer changes.
    async fn try_pages(&self, pages: &[String], probes: &Probes<'_>) -> Result<(), Rejected> {
        let began = Instant::now();
        let before = self.learned().pages();
        if pages.iter().all(|page| before.contains(page)) {
            return Ok(());
        }
        let (prepared, locked) = self.boot(pages, probes).await?;
        let changed = prepared.change_over();
        changed.map_err(|error| Rejected::Pages(format!("{error:#}")))?;
        // The boot has tried each page, too.
        let used = self.engine.status().learned;
        self.set(&used, true).await;
        drop(locked);
        for page in pages.iter().filter(|page| !used.contains(page)) {
            self.leave_out(page.clone(), learned::BY_THE_BOOT.into(), began);
        }
        if !used.is_empty() {
            info!(
                engine = self.planned.pool_config.name,
                pages = ?used,
                took_ms = began.elapsed().as_millis() as u64,
                "the boot is warmed up by the pages that clients ask for most; answers are the same"
            );
        }
        Ok(())
    }

    /// Boots with these pages. Fails if an answer changes, or if another boot is wanted.
    async fn boot(
        &self,
        pages: &[String],
        probes: &Probes<'_>,
    ) -> Result<(Prepared, OwnedMutexGuard<()>), Rejected> {
        let locked = self.booting.lock_in_background().await;
        let (generation, before) = (self.generation(), self.learned().pages());
        let booted = async {
            self.set(pages, false).await;
            let prepared = self.engine.prepare().await;
            // A boot for another reason may begin from here on.
            self.set(&before, false).await;
            let prepared = prepared.map_err(|error| format!("the boot fails: {error:#}"))?;
            self.compare(&prepared, probes).await?;
            Ok::<_, String>(prepared)
        };
        let booted = tokio::select! {
            booted = tokio::time::timeout_at(probes.until.into(), booted) => booted,
            () = self.booting.wanted() => {
                self.set(&before, false).await;
                return Err(Rejected::Interrupted);
            }
        };
        self.set(&before, false).await;
        // Before a page is blamed: the next boot may have other files than the serving one.
        if self.generation() != generation || self.engine.is_outdated().await {
            return Err(Rejected::Interrupted);
        }
        let booted = booted.unwrap_or_else(|_| Err("the comparison takes too long".into()));
        let prepared = booted.map_err(Rejected::Pages)?;
        // Files would stay those of another release.
        match link_change(prepared.report(), &self.project, probes.site.root()) {
            Some(_) => Err(Rejected::Interrupted),
            None => Ok((prepared, locked)),
        }
    }

    async fn compare(&self, prepared: &Prepared, probes: &Probes<'_>) -> Outcome<()> {
        let serving = |event| self.engine.handle(event);
        let before = probes.answers(serving).await?;
        let warm = probes.answers(|event| prepared.handle(event)).await?;
        // A time in seconds differs by then.
        tokio::time::sleep(boot_proof::SECOND).await;
        let after = probes.answers(serving).await?;
        let plain = boot_proof::plain_answers(&before, &after);
        let differences = boot_proof::differences(&plain, &warm);
        let found = probes
            .all()
            .zip(differences)
            .find_map(|((probe, other), found)| {
                let (expected, got) = found?;
                let visitor = if other {
                    ", asked by another visitor,"
                } else {
                    ""
                };
                Some(format!(
                    "{probe}{visitor} answers `{got}` instead of `{expected}`"
                ))
            });
        found.map_or(Ok(()), Err)
    }

    /// Warms up the next boots by these pages, and with `keep` those of the next start.
    async fn set(&self, pages: &[String], keep: bool) {
        let pool_config = &self.planned.pool_config;
        let set = match &self.keeper {
            Some((keeper, pool)) => keeper.pages(*pool, keep, learned::text(pages)).await,
            None if keep => learned_pages::keep(&self.project, pool_config, pages),
            None => Ok(()),
        };
        if let Err(error) = set {
            let error = format!("{error:#}");
            warn!(
                engine = pool_config.name,
                error, "cannot store the learned pages; the next start will not be warm"
            );
        }
        pool_config.learned.set_pages(pages.to_vec());
    }
}

/// Reloads without learned pages, because they are proved for the old version only, and proposes
/// them for the new one. If the reload fails, the old version goes on with them.
pub async fn prove_again(
    learners: &[Arc<Learner>],
    reload: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let mut withdrawn = Vec::new();
    for learner in learners {
        withdrawn.push((learner, withdraw(&learner.planned, &learner.keeper).await));
    }
    let reloaded = reload.await;
    for (learner, pages) in withdrawn {
        match reloaded {
            Ok(()) => {
                learner.learned().start_again();
                learner.learned().propose(pages);
            }
            Err(_) if pages.is_empty() => {}
            Err(_) => learner.set(&pages, false).await,
        }
    }
    reloaded
}

/// Makes the next boots of a pool use no learned page, and returns those that they would use.
pub async fn withdraw(planned: &PlannedPool, keeper: &Keeper) -> Vec<String> {
    let pages = planned.pool_config.learned.pages();
    if !pages.is_empty() {
        if let Some((keeper, pool)) = keeper
            && let Err(error) = keeper.pages(*pool, false, learned::text(&[])).await
        {
            let error = format!("{error:#}");
            warn!(error, "cannot make the keeper drop the learned pages");
        }
        planned.pool_config.learned.set_pages(Vec::new());
    }
    pages
}

/// The error says why pages are left out.
type Outcome<T> = Result<T, String>;

/// The application boots for another reason, so a comparison says nothing about the pages.
struct Interrupted;

/// Why a boot with pages does not serve.
enum Rejected {
    /// Because of the pages.
    Pages(String),
    Interrupted,
}

impl Rejected {
    fn why(self) -> Result<String, Interrupted> {
        match self {
            Rejected::Pages(why) => Ok(why),
            Rejected::Interrupted => Err(Interrupted),
        }
    }
}

/// What both boots are asked for.
struct Probes<'a> {
    pages: Vec<String>,
    site: &'a Arc<Site>,
    until: Instant,
}

impl Probes<'_> {
    /// The pages themselves, the front page, and a page that does not exist.
    async fn new<'a>(pages: &[String], site: &'a Arc<Site>, until: Instant) -> Probes<'a> {
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
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Each page, without and with another host, cookie and language.
    fn all(&self) -> impl Iterator<Item = (&String, bool)> {
        let both = |page| [(page, false), (page, true)];
        self.pages.iter().flat_map(both)
    }

    /// The answers of a boot to each probe.
    async fn answers<A>(&self, ask: impl Fn(Box<Event>) -> A) -> Outcome<Vec<ProbeAnswers>>
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

/// Like [`warm_ups::get_learned`], on a thread that may wait for the disk.
async fn get_learned(page: &str, site: &Arc<Site>) -> Option<Event> {
    let (page, site) = (page.to_owned(), site.clone());
    let event = tokio::task::spawn_blocking(move || warm_ups::get_learned(&page, &site));
    event.await.ok().flatten()
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
