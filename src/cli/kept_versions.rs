//! The configurations of a server that root has started, as its keeper has read and planned them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use surus_sys::privileges::Identity;
use surus_sys::process::KnownUsers;

use super::engine_setup::PlannedPool;
use super::site_plans::{Plans, SitePlan};
use crate::config::Config;
use crate::config::reread::ConfigOrigin;
use crate::observe::rate_limit::BurstRate;

/// Earlier configurations that are kept.
const MAX_OLDER: usize = 3;

/// How long the pools of an earlier configuration may recover, after `http.shutdown_timeout`: the
/// front end's clock starts a little earlier or later.
const RESERVE: Duration = Duration::from_secs(10);

/// How often sites are planned at once; later once a second. A front end can ask for it at any time
/// while a changed configuration is not applied.
const PLANNINGS: u64 = 16;

/// A configuration.
pub struct KeptVersion {
    /// What is common to all sites.
    pub config: Config,
    /// How it was read.
    pub origin: ConfigOrigin,
    pub plans: Arc<Plans>,
    /// PHP's user in each site, with its groups as they were when it was read: a look-up may need
    /// the network. None if a `[[site]]` names a user that cannot be used.
    pub php: Vec<Option<Identity>>,
    /// These users, and others that were looked up. The next configuration finds them here.
    pub known_users: KnownUsers,
}

/// A configuration that another one has replaced.
struct OlderVersion {
    version: Rc<KeptVersion>,
    /// Until then, its pools may recover for requests that have begun with it.
    until: Instant,
}

/// A site of one of the configurations.
pub struct KeptSite {
    version: Rc<KeptVersion>,
    index: usize,
}

/// A pool of one of the configurations.
pub struct KeptPool {
    pub site: KeptSite,
    number: u32,
}

/// The configurations.
pub struct KeptVersions {
    /// The one that new front ends get.
    current: Rc<KeptVersion>,
    /// Those before it, the newest first.
    older: Vec<OlderVersion>,
    /// One that a front end boots.
    next: Option<Rc<KeptVersion>>,
    /// The one that the running front end was forked with. Its rights are for this one.
    forked: Rc<KeptVersion>,
    plannings: BurstRate,
}

/// The same, for the keeper and the front ends that are forked from it.
pub type SharedVersions = Rc<RefCell<KeptVersions>>;

impl KeptVersions {
    pub fn new(first: KeptVersion) -> SharedVersions {
        let first = Rc::new(first);
        Rc::new(RefCell::new(KeptVersions {
            current: first.clone(),
            older: Vec::new(),
            next: None,
            forked: first,
            plannings: BurstRate::new(),
        }))
    }

    /// A front end is about to be forked with the current one. The others were its predecessor's.
    pub fn fork(&mut self) -> Rc<KeptVersion> {
        self.next = None;
        self.older.clear();
        self.forked = self.current.clone();
        self.current()
    }

    /// The one that the running front end was forked with.
    pub fn forked(&self) -> Rc<KeptVersion> {
        self.forked.clone()
    }

    /// Whether sites may be planned now. Counts that.
    pub fn may_plan(&mut self, now: Instant) -> bool {
        self.plannings.take(PLANNINGS, now)
    }

    pub fn current(&self) -> Rc<KeptVersion> {
        self.current.clone()
    }

    /// The one that was planned last.
    pub fn last(&self) -> Rc<KeptVersion> {
        self.next.as_ref().unwrap_or(&self.current).clone()
    }

    /// Offers this one to a front end. It replaces an offered one that was not applied.
    pub fn offer(&mut self, next: KeptVersion) {
        self.next = Some(Rc::new(next));
    }

    /// A front end serves the one whose first site has this number from now on.
    pub fn apply(&mut self, first_site: u32, now: Instant) -> anyhow::Result<()> {
        let next = self
            .next
            .take_if(|next| next.plans.first_site == first_site);
        let next = next.context("no such configuration was offered")?;
        let version = std::mem::replace(&mut self.current, next);
        let until = now + version.config.http.shutdown_timeout.0 + RESERVE;
        self.older.insert(0, OlderVersion { version, until });
        self.older.truncate(MAX_OLDER);
        Ok(())
    }

    /// Those whose pools may start processes.
    fn all(&self, now: Instant) -> impl Iterator<Item = &Rc<KeptVersion>> {
        let older = self.older.iter().filter(move |older| now < older.until);
        self.newest().chain(older.map(|older| &older.version))
    }

    /// Those whose processes of an installed PHP may still run.
    pub fn running(&self, now: Instant) -> impl Iterator<Item = &Rc<KeptVersion>> {
        let is_running = move |older: &&OlderVersion| {
            let is_forked = Rc::ptr_eq(&older.version, &self.forked);
            // Each running PHP holds its own in a `KeptStarter`.
            now < older.until || Rc::strong_count(&older.version) > 1 + usize::from(is_forked)
        };
        let older = self.older.iter().filter(is_running);
        self.newest().chain(older.map(|older| &older.version))
    }

    fn newest(&self) -> impl Iterator<Item = &Rc<KeptVersion>> {
        self.next.iter().chain([&self.current])
    }

    /// The one whose first site has this number.
    pub fn version(&self, first_site: u32) -> anyhow::Result<Rc<KeptVersion>> {
        let mut all = self.all(Instant::now());
        let found = all.find(|version| version.plans.first_site == first_site);
        let found = found.context("there is no such configuration")?;
        Ok(found.clone())
    }

    pub fn site(&self, number: u32) -> anyhow::Result<KeptSite> {
        let find = |version: &Rc<KeptVersion>| {
            let index = version.plans.site_index(number)?;
            let version = version.clone();
            Some(KeptSite { version, index })
        };
        let found = self.all(Instant::now()).find_map(find);
        found.with_context(|| format!("there is no site {number}"))
    }

    pub fn pool(&self, number: u32) -> anyhow::Result<KeptPool> {
        let find = |version: &Rc<KeptVersion>| {
            let (_, index) = version.plans.pool(number)?;
            let version = version.clone();
            let site = KeptSite { version, index };
            Some(KeptPool { site, number })
        };
        let found = self.all(Instant::now()).find_map(find);
        found.with_context(|| format!("there is no pool {number}"))
    }
}

impl KeptSite {
    pub fn plan(&self) -> &SitePlan {
        &self.version.plans.sites[self.index]
    }

    /// PHP's user.
    pub fn php(&self) -> anyhow::Result<&Identity> {
        let php = self.version.php.get(self.index).and_then(Option::as_ref);
        php.context("the site has no user for PHP (engine.user)")
    }
}

impl KeptPool {
    pub fn planned(&self) -> anyhow::Result<&PlannedPool> {
        let found = self.site.version.plans.pool(self.number);
        found.map(|(planned, _)| planned).context("unknown pool")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn version(number: u32, text: &str) -> KeptVersion {
        let plans = Plans {
            sites: Vec::new(),
            pools: Vec::new(),
            first_site: number,
            first_pool: number,
        };
        KeptVersion {
            config: toml::from_str(text).unwrap(),
            origin: ConfigOrigin::default(),
            plans: Arc::new(plans),
            php: Vec::new(),
            known_users: KnownUsers::default(),
        }
    }

    fn numbers<'a>(versions: impl Iterator<Item = &'a Rc<KeptVersion>>) -> Vec<u32> {
        versions.map(|version| version.plans.first_site).collect()
    }

    #[test]
    fn replaced_configuration_starts_nothing_after_the_timeout_of_its_requests() {
        let versions = KeptVersions::new(version(0, "http.shutdown_timeout = '30s'"));
        let mut versions = versions.borrow_mut();
        let start = Instant::now();
        versions.offer(version(1, "http.shutdown_timeout = '1s'"));
        versions.apply(1, start).unwrap();
        let during = start + Duration::from_secs(30);
        assert_eq!(numbers(versions.all(during)), [1, 0]);
        let after = during + RESERVE;
        assert_eq!(numbers(versions.all(after)), [1]);
        assert_eq!(numbers(versions.running(after)), [1]);
        // A process still runs, which counts.
        let started_with = versions.older[0].version.clone();
        assert_eq!(numbers(versions.all(after)), [1]);
        assert_eq!(numbers(versions.running(after)), [1, 0]);
        drop(started_with);
        assert_eq!(numbers(versions.running(after)), [1]);
    }
}
