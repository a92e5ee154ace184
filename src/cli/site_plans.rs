//! Plans the sites of a server: their directories and the pools of each.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use tracing::error;

use super::engine_setup::{self, PlannedPool};
use crate::app::host::HostPattern;
use crate::config::Config;
use crate::config::sites::SiteConfig;

/// The sites of a server, and the pools of all.
pub struct Plans {
    pub sites: Vec<SitePlan>,
    pub pools: Vec<PlannedPool>,
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
    /// Why the site cannot be served before the next start.
    pub error: Option<String>,
}

impl Plans {
    /// Plans all sites. One that cannot be planned does not stop the others.
    pub fn new(project: &Path, config: &Config) -> anyhow::Result<Plans> {
        let mut plans = Plans {
            sites: Vec::new(),
            pools: Vec::new(),
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
        let prefix: &'static str = match name {
            "" => "",
            name => format!("{name}/").leak(),
        };
        let directory = site.project.clone();
        let directory = directory.unwrap_or_else(|| project.to_path_buf());
        let first = self.pools.len();
        let mut plan = SitePlan {
            name,
            prefix,
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

    pub fn site(&self, number: u16) -> anyhow::Result<&SitePlan> {
        let site = self.sites.get(usize::from(number));
        site.with_context(|| format!("there is no site {number}"))
    }

    pub fn pool(&self, number: u16) -> anyhow::Result<&PlannedPool> {
        self.pools.get(usize::from(number)).context("unknown pool")
    }

    /// The number of a pool's site.
    pub fn site_of(&self, pool: u16) -> anyhow::Result<u16> {
        let has = |site: &SitePlan| site.pools.contains(&usize::from(pool));
        let number = self.sites.iter().position(has);
        let number = number.and_then(|number| u16::try_from(number).ok());
        number.context("unknown pool")
    }
}

impl SitePlan {
    /// The name of the main engine, and the pools.
    fn pools(&self) -> anyhow::Result<(&'static str, Vec<PlannedPool>)> {
        let (project, config) = (&self.project, &self.config);
        let mut pool_configs = engine_setup::pools(project, config, &self.hosts)?;
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
