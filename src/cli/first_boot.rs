//! Boots a site of `surus serve` for the first time, and again until that succeeds.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use tokio::sync::mpsc;
use tracing::{debug, error, info};

use super::revalidation::BootPace;
use super::served::{PoolSizes, ServedSite};
use super::{boot_engines, config_lint, learning, other_scripts};
use crate::app::compression::dav_scripts::DavScripts;
use crate::app::{Application, DocumentTree};

/// How often a site that could not be booted is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

impl ServedSite {
    /// Boots for the first time, and sends the result. If that has failed, tries again with growing
    /// pauses, and when files change: a database may be late, or a deployment may mend the site.
    pub(super) async fn begin(
        self: Arc<Self>,
        tree: anyhow::Result<DocumentTree>,
        results: mpsc::Sender<anyhow::Result<()>>,
    ) {
        let began = Instant::now();
        let booted = {
            let _booting = self.booting.lock().await;
            self.withdraw().await;
            let tree = tree.map(|tree| self.with_error_pages(tree));
            match self.is_planned().and(tree) {
                // A changed file has caused a boot already.
                Ok(_) if self.hosted.application.get().is_some() => Ok(()),
                Ok(tree) => self.boot(tree, &PoolSizes::new()).await,
                Err(error) => Err(error),
            }
        };
        let booted = booted.inspect_err(|error| self.record_failure(error));
        self.hosted.first_boot.end();
        let is_served = booted.is_ok();
        // The server may have begun to serve another site.
        let _ = results.send(booted).await;
        drop(results);
        // Without [[site]], the start has failed.
        if !is_served && !self.plan().name.is_empty() && self.plan().error.is_none() {
            self.retry(began).await;
        }
    }

    /// Tries to boot until the site is served, perhaps by a reload.
    async fn retry(self: Arc<Self>, began: Instant) {
        let site = self.plan().name;
        let mut pace = BootPace::default();
        pace.booted(began, true);
        loop {
            let files = SiteFiles::of(&self);
            tokio::select! {
                () = pace.wait() => {}
                () = files.changed() => pace = BootPace::default(),
            }
            let _booting = self.booting.lock().await;
            if self.hosted.application.get().is_some() {
                return;
            }
            let began = Instant::now();
            if self.boot_again().await.is_ok() {
                info!(site, "the site has booted and is served now");
                return;
            }
            pace.booted(began, true);
        }
    }

    /// Boots a site that could not be booted.
    pub(super) async fn boot_again(self: &Arc<Self>) -> anyhow::Result<()> {
        let booted = async {
            self.is_planned()?;
            let tree = self.with_error_pages(self.open().await?);
            self.boot(tree, &PoolSizes::new()).await
        };
        booted.await.inspect_err(|error| self.record_failure(error))
    }

    /// Boots the site of another configuration, while those of the old one are served. Pools begin
    /// with the `sizes` of the old ones, whose requests they get all at once.
    pub(super) async fn boot_beside(self: Arc<Self>, sizes: &PoolSizes) -> anyhow::Result<()> {
        let _booting = self.booting.lock().await;
        let tree = self.open().await;
        let tree = tree.map(|tree| self.with_error_pages(tree));
        match &self.plan().error {
            None => self.boot(tree?, sizes).await,
            Some(error) => bail!("{error}"),
        }
    }

    /// Goes on after [`boot_beside`](Self::boot_beside) has failed: tries again later.
    pub(super) fn boot_later(self: &Arc<Self>, error: &anyhow::Error) {
        self.record_failure(error);
        self.hosted.first_boot.end();
        if self.plan().error.is_none() {
            let retry = tokio::spawn(self.clone().retry(Instant::now()));
            self.lock_tasks().push(retry);
        }
    }

    /// Reports why the site cannot be served: in the log, its metric and its status.
    fn record_failure(&self, error: &anyhow::Error) {
        let site = self.plan().name;
        if site.is_empty() {
            return; // The server does not start.
        }
        let error = format!("{error:#}");
        let mut known = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        match known.as_ref() == Some(&error) {
            true => debug!(site, error, "the site still cannot be booted"),
            false => error!(
                site,
                error, "the site cannot be booted; its hosts get status 503, and it is tried again"
            ),
        }
        *known = Some(error);
        self.metrics.sites.set(site, false);
    }

    /// Reads the error pages, which clients get until the site has booted. PHP's errors are shown
    /// only then.
    fn with_error_pages(&self, mut tree: DocumentTree) -> DocumentTree {
        let reads_source = self.keeper.is_none();
        tree.read_error_pages(&self.plan().config.error_pages, false, reads_source);
        let pages = Arc::new(tree.error_pages.clone());
        self.hosted.unbooted_pages.store(pages);
        tree
    }

    /// Makes the first boot use no page that another front end has learned.
    async fn withdraw(&self) {
        for (number, planned) in self.pools().filter(|(_, it)| it.pool_config.learns()) {
            let keeper = self.keeper.clone().map(|keeper| (keeper, number));
            learning::withdraw(planned, &keeper).await;
        }
    }

    /// Fails if the site could not be planned.
    fn is_planned(&self) -> anyhow::Result<()> {
        match &self.plan().error {
            None => Ok(()),
            Some(error) => bail!(
                "{error}; correct the configuration and reload Surus, or correct another cause and \
                 restart Surus"
            ),
        }
    }

    /// Boots the site's engines, with the numbers of workers that `sizes` names, and serves it. The
    /// tree [has its error pages](Self::with_error_pages).
    async fn boot(
        self: &Arc<Self>,
        mut tree: DocumentTree,
        sizes: &PoolSizes,
    ) -> anyhow::Result<()> {
        let plan = self.plan();
        let mut pools = self.plans.pools[plan.pools.clone()].to_vec();
        for pool in &mut pools {
            if let Some(size) = sizes.get(pool.pool_config.name) {
                pool.plan.begin_with(*size);
            }
        }
        let first = u32::try_from(plan.pools.start).ok();
        let first = first.and_then(|first| self.plans.first_pool.checked_add(first));
        let first = first.context("too many pools")?;
        let engines =
            boot_engines::boot(&pools, first, &self.keeper, &self.metrics, &self.booting).await?;
        let displays_errors = config_lint::displays_errors(engines.values());
        tree.error_pages
            .set_details(&plan.config.error_pages, displays_errors);
        let application = Arc::new(Application {
            tree: arc_swap::ArcSwap::from_pointee(tree),
            engine: plan.main,
            others: other_scripts::engine(pools.iter().map(|it| &it.pool_config), plan.prefix),
            prefix: plan.prefix,
            engines,
            metrics: self.metrics.clone(),
            compress: plan.config.compress.clone(),
            dav_scripts: DavScripts::default(),
        });
        *self.learners.lock().unwrap_or_else(PoisonError::into_inner) = self.learners(&application);
        let is_first = self.hosted.application.set(application).is_ok();
        if !is_first {
            return Err(anyhow!("the application has booted already"));
        }
        if !plan.name.is_empty() {
            self.metrics.sites.set(plan.name, true);
        }
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.watch();
        Ok(())
    }
}

/// Files of a site whose change makes another attempt worthwhile: those that PHP's error names, and
/// those that deployments change. The front end may look at them, but not list directories.
struct SiteFiles {
    paths: Vec<PathBuf>,
}

/// What deployments change, below the project.
const DEPLOYED: [&str; 7] = [
    "",
    ".env",
    ".git/index",
    "composer.lock",
    "index.php",
    "public/index.php",
    "vendor/composer/installed.php",
];

/// Files of an error that are looked at.
const MAX_NAMED: usize = 20;

/// Device, inode, size, and time of the last change of a file; None if there is no file.
type FileStamp = Option<(u64, u64, u64, i64, i64)>;

impl SiteFiles {
    fn of(site: &ServedSite) -> SiteFiles {
        let plan = site.plan();
        let error = site.error.lock().unwrap_or_else(PoisonError::into_inner);
        let named = named(error.as_deref().unwrap_or_default(), &plan.project);
        let script = plan.config.engine.script.clone();
        let script = script.map(|script| plan.project.join(script));
        let deployed = DEPLOYED.iter().map(|path| plan.project.join(path));
        SiteFiles {
            paths: deployed.chain(script).chain(named).collect(),
        }
    }

    /// Returns when one of them has changed.
    async fn changed(self) {
        let mut before = None;
        loop {
            let paths = self.paths.clone();
            // A file system may hang.
            let stamps = tokio::task::spawn_blocking(move || {
                paths.iter().map(|path| stamp(path)).collect::<Vec<_>>()
            });
            let stamps = stamps.await.unwrap_or_default();
            match before.is_some_and(|before| before != stamps) {
                true => return,
                false => before = Some(stamps),
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// The PHP files of the project that an error names.
fn named(error: &str, project: &Path) -> BTreeSet<PathBuf> {
    let real = project.canonicalize().ok();
    let is_within = |path: &&str| {
        let is_below = |root: &Path| Path::new(path).starts_with(root);
        is_below(project) || real.as_deref().is_some_and(is_below)
    };
    let ends = |c: char| c.is_whitespace() || "\"'(),:".contains(c);
    let words = error.split(ends);
    let files = words.filter(|word| word.starts_with('/') && word.ends_with(".php"));
    files
        .filter(is_within)
        .take(MAX_NAMED)
        .map(PathBuf::from)
        .collect()
}

fn stamp(path: &Path) -> FileStamp {
    let found = path.metadata().ok()?;
    Some((
        found.dev(),
        found.ino(),
        found.size(),
        found.mtime(),
        found.mtime_nsec(),
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn change_of_a_named_file_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.php");
        std::fs::write(&path, "old").unwrap();
        let paths = vec![dir.path().join("none"), path.clone()];
        let changed = tokio::spawn(SiteFiles { paths }.changed());
        while !changed.is_finished() {
            // Again and again: the first stamps may be those of the changed file.
            let text = format!("{:?}", Instant::now());
            std::fs::write(&path, text).unwrap();
            tokio::time::sleep(INTERVAL / 4).await;
        }
        changed.await.unwrap();
    }

    #[test]
    fn files_of_the_project_in_an_error_are_found() {
        let error = "PHP Fatal error:  Uncaught Exception: at the boot in /srv/a/src/b.php:12\n\
                     #0 /srv/a/index.php(3): require()\n  thrown in /srv/a/src/c.php on line 12 \
                     /etc/x.php '/srv/ab/d.php' /srv/a/e.txt";
        let found = named(error, Path::new("/srv/a"));
        let names = ["/srv/a/index.php", "/srv/a/src/b.php", "/srv/a/src/c.php"];
        assert_eq!(found, names.map(PathBuf::from).into());
    }
}
