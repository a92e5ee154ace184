//! Plans the sites of a server: their directories and the pools of each.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use tracing::{error, info, warn};

use super::engine_setup::{self, PlannedPool};
use super::{boot_script, learned_pages, other_scripts};
use crate::app::host::HostPattern;
use crate::config::Config;
use crate::config::sites::SiteConfig;

/// The sites of a server, and the pools of all.
pub struct Plans {
    pub sites: Vec<SitePlan>,
    pub pools: Vec<PlannedPool>,
    /// The keeper's numbers of the first site and of the first pool.
    pub first_site: u32,
    pub first_pool: u32,
}

/// A site as it is planned.
pub struct SitePlan {
    /// Empty without `[[site]]`.
    pub name: &'static str,
    /// The site's name and a slash, with which the names of its engines begin.
    pub prefix: &'static str,
    pub hosts: Vec<HostPattern>,
    pub is_default: bool,
    pub project: PathBuf,
    pub config: Config,
    /// The engine for requests for which no route names another.
    pub main: &'static str,
    /// The site's part of [`Plans::pools`].
    pub pools: Range<usize>,
    /// Why the site cannot be served: until a reload with another configuration, or until a restart
    /// if the cause is outside of the configuration.
    pub error: Option<String>,
}

impl Plans {
    /// Plans all sites. One that cannot be planned does not stop the others.
    pub fn new(project: &Path, config: &Config) -> anyhow::Result<Plans> {
        Plans::at(0, 0, project, config)
    }

    /// Plans all sites of another configuration. No two plans of a keeper have a number in common.
    pub fn after(before: &Plans, project: &Path, config: &Config) -> anyhow::Result<Plans> {
        let end = |first: u32, count: usize| first.checked_add(u32::try_from(count).ok()?);
        let site = end(before.first_site, before.sites.len());
        let pool = end(before.first_pool, before.pools.len());
        let full =
            "so many configurations were loaded that only a restart of Surus applies another";
        let (site, pool) = site.zip(pool).context(full)?;
        Plans::at(site, pool, project, config)
    }

    fn at(
        first_site: u32,
        first_pool: u32,
        project: &Path,
        config: &Config,
    ) -> anyhow::Result<Plans> {
        let mut plans = Plans {
            sites: Vec::new(),
            pools: Vec::new(),
            first_site,
            first_pool,
        };
        for site in all(config) {
            plans.add(site, project)?;
        }
        let errors = plans.sites.iter().map(|site| site.error.as_ref());
        if let Some(Some(error)) = errors.min_by_key(|error| error.is_some()) {
            return Err(anyhow!("{error}")).context("no site can be served");
        }
        Ok(plans)
    }

    fn add(&mut self, site: SiteConfig, project: &Path) -> anyhow::Result<()> {
        // Leaked because they are needed until the program exits, like the names of engines.
        let name: &'static str = site.name.clone().leak();
        let directory = site.project.clone();
        let directory = directory.unwrap_or_else(|| project.to_path_buf());
        let first = self.pools.len();
        let mut plan = SitePlan {
            name,
            prefix: SitePlan::prefix(name),
            hosts: site.hosts,
            is_default: site.is_default,
            project: directory,
            config: site.config,
            main: "",
            pools: first..first,
            error: None,
        };
        match plan.pools() {
            Ok((main, pools)) => {
                self.pools.extend(pools);
                plan.main = main;
                plan.pools = first..self.pools.len();
            }
            Err(error) if name.is_empty() => return Err(error),
            Err(error) => {
                let error = format!("{error:#}");
                error!(site = name, error, "a site cannot be served");
                plan.error = Some(error);
            }
        }
        self.sites.push(plan);
        Ok(())
    }

    /// The index of the site with a number of the keeper.
    pub fn site_index(&self, number: u32) -> Option<usize> {
        let index = usize::try_from(number.checked_sub(self.first_site)?).ok()?;
        Some(index).filter(|index| *index < self.sites.len())
    }

    /// The pool with a number of the keeper, and the index of its site.
    pub fn pool(&self, number: u32) -> Option<(&PlannedPool, usize)> {
        let index = usize::try_from(number.checked_sub(self.first_pool)?).ok()?;
        let has = |site: &SitePlan| site.pools.contains(&index);
        self.pools.get(index).zip(self.sites.iter().position(has))
    }

    /// Proposes the pages that earlier servers have learned, and reports what the sites lack.
    pub fn prepare(&self) {
        for site in &self.sites {
            let pools = &self.pools[site.pools.clone()];
            for planned in pools.iter().filter(|planned| planned.pool_config.learns()) {
                // Not used before a comparison of answers.
                let pages = learned_pages::load(&site.project, &planned.pool_config);
                planned.pool_config.learned.propose(pages);
            }
            for planned in pools
                .iter()
                .filter(|planned| planned.pool_config.could_learn())
            {
                info!(
                    engine = planned.pool_config.name,
                    "the boot is warmed up by a page that does not exist; with engine.warmup = \
                     \"learn\", also by pages that clients often ask for, which saves more CPU time"
                );
            }
            if let Some(obstacle) = boot_script::configured_obstacle(&site.config) {
                let site = (!site.name.is_empty()).then_some(site.name);
                warn!(
                    site,
                    application = obstacle,
                    "the application cannot be booted; `classic` serves it instead; restart Surus \
                     when it can be"
                );
            }
        }
    }
}

impl SitePlan {
    /// What the names of the engines of a site begin with.
    pub fn prefix(name: &str) -> &'static str {
        match name {
            "" => "",
            name => format!("{name}/").leak(),
        }
    }

    /// The name of the main engine, and the pools.
    fn pools(&self) -> anyhow::Result<(&'static str, Vec<PlannedPool>)> {
        let (project, config) = (&self.project, &self.config);
        let pool_configs = engine_setup::pools(project, config, &self.hosts)?;
        let mut pool_configs = other_scripts::with_pool(pool_configs, project)?;
        for pool in &mut pool_configs {
            pool.name = self.label(pool.name);
            let limit = config.http.slow_request.0;
            pool.config.engine.slow_request = (!limit.is_zero()).then_some(limit);
        }
        let main = self.label(engine_setup::chosen(project, config)?.name);
        Ok((main, engine_setup::plan_all(pool_configs, project)?))
    }

    /// The name of an engine of the site in logs, metrics and the status.
    fn label(&self, engine: &'static str) -> &'static str {
        match self.prefix {
            "" => engine,
            prefix => format!("{prefix}{engine}").leak(),
        }
    }
}

/// The `[[site]]` tables, or the one site without them.
pub fn all(config: &Config) -> Vec<SiteConfig> {
    match config.sites.is_empty() {
        false => config.sites.clone(),
        true => vec![SiteConfig {
            is_default: true,
            config: config.clone(),
            ..SiteConfig::default()
        }],
    }
}
