//! Warms up the boots of a pool by the pages that clients ask for most. It boots with them,
//! compares its answers with those of the serving boot, and switches if they are the same.

mod comparison;
mod probes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;
use tracing::{info, warn};

use super::engine_setup::PlannedPool;
use super::learned_pages;
use super::revalidation::link_change;
use crate::app::site::Site;
use crate::engine::{Engine, Prepared};
use crate::engines::boot_lock::BootLock;
use crate::engines::learned::{self, NothingLearned};
use crate::keeper::Client;
use crate::observe::status::{LeftOut, LeftOutReason};
use comparison::{Rejected, failed_boot};
use probes::{PageStatus, Probes, get_learned};

/// How long all boots and comparisons of one change may take. Also the first pause before a page
/// that fails for now is tried again; later ones double.
const LONGEST: Duration = Duration::from_secs(300);

/// How often a learner that was interrupted looks whether another boot serves.
const PAUSE: Duration = Duration::from_secs(1);

/// The keeper, if there is one, and the number that the pool has there.
pub type PoolKeeper = Option<(Arc<Client>, u32)>;

/// A pool that learns.
pub struct Learner {
    pub project: PathBuf,
    pub planned: PlannedPool,
    pub keeper: PoolKeeper,
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
        let mut retry: Option<Retry> = None;
        loop {
            let chosen = tokio::select! {
                // A reload proposes pages that failed, too.
                biased;
                chosen = learned.chosen() => chosen,
                () = self.due(retry.as_ref()) => {
                    Ok(retry.take().map(|retry| retry.pages).unwrap_or_default())
                }
            };
            let chosen = match chosen {
                Ok(pages) if pages.is_empty() => continue,
                Ok(pages) => pages,
                Err(nothing) => {
                    self.report_nothing(nothing);
                    continue;
                }
            };
            let site = (self.site)();
            let mut pages = Vec::new();
            // Pages that fail for now are tried with those that were chosen meanwhile.
            let waiting = retry.take().map(|retry| retry.pages).unwrap_or_default();
            let is_new = |page: &String| !chosen.contains(page);
            let more: Vec<_> = waiting.into_iter().filter(is_new).collect();
            for page in chosen.into_iter().chain(more).take(learned::MOST_PAGES) {
                if !learned.is_left_out(&page) && get_learned(&page, &site).await.is_some() {
                    pages.push(page);
                }
            }
            let status = self.engine.status();
            if pages.iter().all(|page| status.learned.contains(page)) {
                continue;
            }
            retry = match status.instead {
                None => self.change(pages, &site).await,
                // An engine that boots nothing serves the application for now.
                Some(_) => Some(Retry {
                    pages,
                    generation: status.generation,
                    at: Instant::now() + LONGEST,
                }),
            };
        }
    }

    /// Returns when pages must be tried again: after a pause, or when another boot serves.
    async fn due(&self, retry: Option<&Retry>) {
        let Some(retry) = retry else {
            return std::future::pending().await;
        };
        while self.generation() == retry.generation && Instant::now() < retry.at {
            tokio::time::sleep(PAUSE).await;
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

    /// Warms up by the pages that change no answer, and leaves out the others. Returns what to try
    /// again: all pages if the application boots meanwhile, or if one fails for now.
    async fn change(&self, pages: Vec<String>, site: &Arc<Site>) -> Option<Retry> {
        let mut generation = self.generation();
        let mut pause = LONGEST;
        match self.try_change(pages.clone(), site).await {
            Ok(()) => {
                let learned = self.learned();
                let failing = pages.iter().filter(|page| !learned.is_left_out(page));
                let tries = failing.map(|page| learned.tries(page)).max()?;
                pause *= 1 << tries.checked_sub(1)?;
                // The other pages may have made another boot serve.
                generation = self.generation();
            }
            Err(Interrupted) => info!(
                engine = self.planned.pool_config.name,
                "learned pages are compared later: the application boots for another reason, its \
                 files have changed since it booted, or a page that warms it up fails for now"
            ),
        }
        let at = Instant::now() + pause;
        Some(Retry {
            pages,
            generation,
            at,
        })
    }

    /// The learned pages that warm up the serving boot.
    fn used(&self) -> Vec<String> {
        self.engine.status().learned
    }

    /// The number of the boot that serves.
    fn generation(&self) -> u64 {
        self.engine.status().generation
    }

    /// Whether another boot serves, or the files have changed. The check may take seconds, in which
    /// PHP may have restarted.
    async fn has_changed_since(&self, generation: u64) -> bool {
        self.engine.is_outdated().await || self.generation() != generation
    }

    async fn try_change(&self, pages: Vec<String>, site: &Arc<Site>) -> Result<(), Interrupted> {
        let began = Instant::now();
        let mut pages = self.with_status_200(pages, site).await?;
        let mut probes = Probes::new(&pages, site, began + LONGEST).await;
        let refused = loop {
            match self.try_pages(&pages, &probes).await {
                Ok(()) => return Ok(()),
                Err(Rejected::Temporary(failing, why)) if !probes.is_over() => {
                    let fails = |page: &String| failing.as_ref().is_none_or(|it| it == page);
                    for page in pages.extract_if(.., |page| fails(page)) {
                        self.fails_for_now(&page, why.clone())?;
                        probes.remove(&page);
                    }
                }
                Err(refused) => break refused,
            }
        };
        let mut changes = Vec::new();
        if pages.len() == 1 {
            self.note(pages.remove(0), refused, &mut changes)?;
        } else if let Rejected::Interrupted = refused {
            return Err(Interrupted);
        } else if !probes.is_over() {
            self.try_alone(pages, &probes, &mut changes).await?;
        }
        if probes.is_over() {
            warn!(
                engine = self.planned.pool_config.name,
                seconds = began.elapsed().as_secs(),
                "learned pages do not warm up the boot: the comparison of answers takes too long"
            );
            return Ok(());
        }
        for left_out in changes {
            self.leave_out(left_out, began);
        }
        self.store().await;
        Ok(())
    }

    /// Boots with each page alone, and then with all that are fine. Adds the others to `changes`.
    async fn try_alone(
        &self,
        pages: Vec<String>,
        probes: &Probes<'_>,
        changes: &mut Vec<LeftOut>,
    ) -> Result<(), Interrupted> {
        let mut good = Vec::new();
        for page in pages {
            match self.boot(std::slice::from_ref(&page), probes).await {
                Ok(_) => good.push(page),
                Err(refused) => self.note(page, refused, changes)?,
            }
        }
        if let Err(refused) = self.try_pages(&good, probes).await {
            // Several pages together change an answer.
            for page in good {
                self.note(page, refused.clone(), changes)?;
            }
        }
        Ok(())
    }

    /// Notes why a page does not warm up the boot.
    fn note(
        &self,
        page: String,
        refused: Rejected,
        changes: &mut Vec<LeftOut>,
    ) -> Result<(), Interrupted> {
        match refused {
            Rejected::Pages(reason, why) => changes.push(LeftOut { page, reason, why }),
            // It is another page that fails, which says nothing about this one.
            Rejected::Temporary(Some(failing), _) if failing != page => return Err(Interrupted),
            Rejected::Temporary(_, why) => self.fails_for_now(&page, why)?,
            Rejected::Interrupted => return Err(Interrupted),
        }
        Ok(())
    }

    /// Leaves out pages that clients got with status 200, and that answer with another one at the
    /// host of warm-ups: they would warm up what sends that answer. Pages that fail for now are not
    /// returned either, but may be tried again.
    async fn with_status_200(
        &self,
        pages: Vec<String>,
        site: &Arc<Site>,
    ) -> Result<Vec<String>, Interrupted> {
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
        if statuses.iter().flatten().any(is_other) && self.has_changed_since(generation).await {
            return Err(Interrupted);
        }
        let mut good = Vec::new();
        for (page, status) in pages.into_iter().zip(statuses) {
            match status.filter(is_other) {
                Some(status) if status.is_temporary() => {
                    self.fails_for_now(&page, status.text(&page))?;
                }
                Some(status) => {
                    let (reason, why) = (LeftOutReason::Status, status.reason(&page));
                    self.leave_out(LeftOut { page, reason, why }, began);
                }
                None => good.push(page),
            }
        }
        Ok(good)
    }

    /// Notes that a page fails for now. A page that warms up the serving boot is not blamed, or it
    /// would be left out by the next one.
    fn fails_for_now(&self, page: &str, why: String) -> Result<(), Interrupted> {
        if self.used().iter().any(|used| used == page) {
            return Err(Interrupted);
        }
        self.failed(page, why);
        Ok(())
    }

    /// Counts and logs a try that has failed.
    fn failed(&self, page: &str, why: String) {
        let engine = self.planned.pool_config.name;
        let tries = self.learned().failed(page, why.clone());
        match tries < learned::TRIES {
            true => info!(
                engine,
                page,
                reason = why,
                tries,
                "a learned page fails for now and is asked for again later"
            ),
            false => warn!(
                engine,
                page,
                reason = why,
                tries,
                "a learned page has failed at each try and waits for the next start or reload"
            ),
        }
    }

    fn leave_out(&self, left_out: LeftOut, began: Instant) {
        warn!(
            engine = self.planned.pool_config.name,
            page = left_out.page,
            reason = left_out.why,
            seconds = began.elapsed().as_secs(),
            "a page that clients often ask for is left out of the warm-up"
        );
        self.learned().leave_out(left_out);
    }

    /// Boots with these pages and switches, unless an answer changes.
    async fn try_pages(&self, pages: &[String], probes: &Probes<'_>) -> Result<(), Rejected> {
        let began = Instant::now();
        let before = self.used();
        if pages.iter().all(|page| before.contains(page)) {
            self.store().await;
            return Ok(());
        }
        let (prepared, locked) = self.boot(pages, probes).await?;
        let changed = prepared.change_over();
        changed.map_err(|error| failed_boot(format!("{error:#}")))?;
        // The boot has tried each page, too.
        let status = self.engine.status();
        let used = status.learned;
        self.learned().succeeded(&used);
        for page in pages.iter().filter(|page| !used.contains(page)) {
            let mut of_page = status.left_out.iter().filter(|it| it.page == *page);
            let reason = of_page.next().map(|it| it.reason).unwrap_or_default();
            let (page, why) = (page.clone(), reason.in_the_boot().into());
            match reason {
                LeftOutReason::Temporary => self.failed(&page, why),
                _ => self.leave_out(LeftOut { page, reason, why }, began),
            }
        }
        self.store().await;
        drop(locked);
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
        let generation = self.generation();
        // A boot with other files would say nothing about the pages.
        if self.within(probes, self.engine.is_outdated()).await? {
            return Err(Rejected::Interrupted);
        }
        // PHP may exit meanwhile, and nothing has compared these pages yet.
        let recovery = self.within(probes, self.engine.hold_recovery()).await?;
        let booted = async {
            self.set(pages).await;
            self.engine.prepare().await
        };
        let booted = self.within(probes, booted).await;
        self.set(&[]).await;
        drop(recovery);
        let compared = async {
            let failed = |error: anyhow::Error| failed_boot(format!("the boot fails: {error:#}"));
            let prepared = booted?.map_err(failed)?;
            let comparison = comparison::compare(&*self.engine, &prepared, probes);
            self.within(probes, comparison).await??;
            Ok::<_, Rejected>(prepared)
        };
        let compared = compared.await;
        if let Err(Rejected::Interrupted) = compared {
            return Err(Rejected::Interrupted);
        }
        // Before a page is blamed: the next boot may have other files than the serving one.
        if self.has_changed_since(generation).await {
            return Err(Rejected::Interrupted);
        }
        let prepared = compared?;
        // Files would stay those of another release.
        match link_change(prepared.report(), &self.project, probes.site.root()) {
            Some(_) => Err(Rejected::Interrupted),
            None => Ok((prepared, locked)),
        }
    }

    /// Does `work` until the time for it is over, or another boot is wanted.
    async fn within<T>(
        &self,
        probes: &Probes<'_>,
        work: impl Future<Output = T>,
    ) -> Result<T, Rejected> {
        tokio::select! {
            done = tokio::time::timeout_at(probes.until.into(), work) => {
                done.map_err(|_| failed_boot("the comparison takes too long".into()))
            }
            () = self.booting.wanted() => Err(Rejected::Interrupted),
        }
    }

    /// Makes the next boots use these pages.
    async fn set(&self, pages: &[String]) {
        set(&self.planned, &self.keeper, pages).await;
    }

    /// Stores the pages that are used, and those that fail for now. The next start tries them.
    async fn store(&self) {
        let pool_config = &self.planned.pool_config;
        let mut pages = self.used();
        for page in self.learned().failing() {
            if pages.len() < learned::MOST_PAGES && !pages.contains(&page) {
                pages.push(page);
            }
        }
        let stored = match &self.keeper {
            Some((keeper, pool)) => keeper.pages(*pool, true, learned::text(&pages)).await,
            None => learned_pages::keep(&self.project, pool_config, &pages),
        };
        if let Err(error) = stored {
            let error = format!("{error:#}");
            warn!(
                engine = pool_config.name,
                error, "cannot store the learned pages; the next start will not be warm"
            );
        }
    }
}

/// Reloads without learned pages, because they are proven for the old version only, and proposes
/// them for the new one.
pub async fn prove_again(
    learners: &[Arc<Learner>],
    reload: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    reload.await?;
    for learner in learners {
        let learned = learner.learned();
        let failing = learned.failing();
        learned.start_again();
        learned.prove_again();
        learned.propose(failing);
    }
    Ok(())
}

/// Makes the next boots of a pool use no learned page. A front end that has exited while it booted
/// with some has left them to the keeper.
pub async fn withdraw(planned: &PlannedPool, keeper: &PoolKeeper) {
    set(planned, keeper, &[]).await;
}

/// Makes the next boots of a pool use these pages.
async fn set(planned: &PlannedPool, keeper: &PoolKeeper, pages: &[String]) {
    let pool_config = &planned.pool_config;
    if let Some((keeper, pool)) = keeper
        && let Err(error) = keeper.pages(*pool, false, learned::text(pages)).await
    {
        let error = format!("{error:#}");
        warn!(
            engine = pool_config.name,
            error, "cannot tell the keeper which learned pages warm up the next boot"
        );
    }
    pool_config.learned.set_pages(pages.to_vec());
}

/// Pages to try again.
struct Retry {
    pages: Vec<String>,
    /// Another boot makes it due at once.
    generation: u64,
    at: Instant,
}

/// The application boots for another reason, so a comparison says nothing about the pages.
struct Interrupted;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
