//! The access logs of `surus serve`: the one for all sites, and those of sites with a format or a
//! file of their own.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use crate::config::Config;
use crate::config::sites::SiteConfig;
use crate::fronts::http::AccessLog;
use crate::fronts::http::request::access_log::Settings;
use crate::observe::reopen::SiteLogs;

/// The files of the sites that name one, relative to their project.
pub(super) fn open(project: &Path, config: &Config) -> SiteLogs {
    let named = config.sites.iter().filter_map(|site| {
        let file = site.config.access_log.file.as_ref()?;
        let path = std::path::absolute(site.directory(project).join(file)).ok()?;
        Some((site.name.clone(), path))
    });
    SiteLogs::open(named)
}

/// None where the format is `off`.
pub(super) struct AccessLogs {
    /// For requests that are for no site, and for sites that set nothing else.
    pub common: Option<Arc<AccessLog>>,
    /// In the order of the sites; a single one without `[[site]]`.
    pub sites: Vec<Option<Arc<AccessLog>>>,
}

impl AccessLogs {
    pub fn start(config: &Config, files: &SiteLogs) -> io::Result<AccessLogs> {
        let common = start(&config.access_log, io::stdout())?;
        let of_site = |site: &SiteConfig| {
            let settings = &site.config.access_log;
            match files.writer(&site.name) {
                Some(file) => start(settings, file),
                None if settings.format == config.access_log.format => Ok(common.clone()),
                None => start(settings, io::stdout()),
            }
        };
        let sites = match &config.sites[..] {
            [] => vec![common.clone()],
            sites => sites.iter().map(of_site).collect::<io::Result<_>>()?,
        };
        Ok(AccessLogs { common, sites })
    }

    /// Waits until all lines are written, but not indefinitely.
    pub fn end(&self) {
        let all = self.sites.iter().chain([&self.common]);
        all.flatten().for_each(|log| log.end());
    }
}

fn start(
    settings: &Settings,
    to: impl Write + Send + 'static,
) -> io::Result<Option<Arc<AccessLog>>> {
    Ok(AccessLog::start(&settings.format, to)?.map(Arc::new))
}
