//! Warms up the boots of a pool by the pages that clients ask for most. It boots with them,
//! compares its answers with those of the serving boot, and switches if they are the same.

mod probes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;
use tracing::{info, warn};

use super::boot_lock::BootLock;
use super::boot_proof;
use super::engine_setup::PlannedPool;
use super::learned_pages;
use super::revalidation::link_change;
use crate::app::site::Site;
use crate::engine::{Engine, Prepared};
use crate::engines::learned::{self, NothingLearned};
use crate::keeper::Client;
use crate::observe::status::LeftOut;
use probes::{Outcome, PageStatus, Probes, get_learned};

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
            let chosen = match learned.chosen().await {
                Ok(pages) => pages,
                Err(nothing) => {
                    self.report_nothing(nothing);
                    continue;
                }
            };
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

    fn report_nothing(&self, nothing: NothingLearned) {
        warn!(
            engine = self.planned.pool_config.name,
            reason = nothing.reason,
            remedy = nothing.remedy,
            "learning has found no page to warm up the boot by"
        );
    }

    fn learned(&self) -> &learned::Learned {
        &self.planned.pool_config.learned
    }

    /// Warms up by the pages that change no answer, and leaves out the others. Tries again later if
    /// the application boots meanwhile, or if a page fails for now.
    async fn change(&self, pages: Vec<String>, site: &Arc<Site>) {
        let mut generation = self.generation();
        match self.try_change(pages.clone(), site).await {
            Ok(PageTrial::All) => return,
            // The other pages may have made another boot serve.
            Ok(PageTrial::ExceptFailing) => generation = self.generation(),
            Err(Interrupted) => info!(
                engine = self.planned.pool_config.name,
                "learned pages are compared later, because the application boots for another reason"
            ),
        }
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
    ) -> Result<PageTrial, Interrupted> {
        let began = Instant::now();
        let tried;
        (pages, tried) = self.with_status_200(pages, site).await?;
        if pages.is_empty() {
            self.forget_pages(tried).await;
            return Ok(tried);
        }
        let probes = Probes::new(&pages, site, began + LONGEST).await;
        let Err(refused) = self.try_pages(&pages, &probes).await else {
            return Ok(tried);
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
            return Ok(tried);
        }
        self.forget_pages(tried).await;
        for (page, why) in changes {
            self.leave_out(page.unwrap_or_default(), why, began);
        }
        Ok(tried)
    }

    /// Makes the next start try no page, if none warms up this boot and all were tried.
    async fn forget_pages(&self, tried: PageTrial) {
        if tried == PageTrial::All && self.learned().pages().is_empty() {
            self.set(&[], true).await;
        }
    }

    /// Leaves out pages that clients got with status 200, and that answer with another one at the
    /// host of warm-ups: they would warm up what sends that answer. Pages that fail for now are not
    /// returned either, but may be asked again.
    async fn with_status_200(
        &self,
        pages: Vec<String>,
        site: &Arc<Site>,
    ) -> Result<(Vec<String>, PageTrial), Interrupted> {
        let began = Instant::now();
        // So that other boots wait: `wanted` could miss one that need not.
        let _locked = self.booting.lock_in_background().await;
        let generation = self.generation();
        let statuses = tokio::select! {
            statuses = probes::statuses(&*self.engine, &pages, site) => statuses,
            () = self.booting.wanted() => return Err(Interrupted),
        };
        let is_other = |status: &PageStatus| !status.is_ok();
        // Before a page is blamed: files may be those of another release.
        if statuses.iter().flatten().any(is_other)
            && (self.generation() != generation || self.engine.is_outdated().await)
        {
            return Err(Interrupted);
        }
        let (mut good, mut tried) = (Vec::new(), PageTrial::All);
        for (page, status) in pages.into_iter().zip(statuses) {
            match status.filter(is_other) {
                Some(status) if status.is_temporary() => {
                    info!(
                        engine = self.planned.pool_config.name,
                        page,
                        status = status.code.as_u16(),
                        "a learned page fails for now and is asked for again later"
                    );
                    tried = PageTrial::ExceptFailing;
                }
                Some(status) => {
                    let why = status.reason(&page);
                    self.leave_out(page, why, began);
                }
                None => good.push(page),
            }
        }
        Ok((good, tried))
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

/// Which pages an attempt has tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageTrial {
    All,
    /// All but those that fail for now.
    ExceptFailing,
}

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
