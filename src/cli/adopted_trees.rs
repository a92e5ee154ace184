//! Serves from the directories that the keeper has opened, in the front end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use tracing::error;

use crate::app::DocumentTree;
use crate::app::error_pages::ErrorPages;
use crate::app::site::file_opener::Opener;
use crate::app::site::routes::Routes;
use crate::app::site::{AccessCheck, Described, Site};
use crate::app::x_sendfile::SendFile;
use crate::config::Config;
use crate::keeper::{self, Client};

/// Describes to the front end the directories whose descriptors it gets.
#[derive(Serialize, Deserialize)]
pub(super) struct Layout {
    /// In the order of [`adopt`].
    pub described: Vec<Described>,
    /// Pools with a front controller of their own, whose directories are the last.
    pub pool_sites: Vec<String>,
}

/// The shortest time between two replacements of an opener.
const PAUSE: Duration = Duration::from_millis(500);

/// Asks the keeper to replace the opener of a document root that has exited or
/// does not answer.
pub fn attend(keeper: &Arc<Client>, (directories, opener): (u32, Arc<Opener>)) {
    let (keeper, failures) = (keeper.clone(), opener.failures());
    let opener = Arc::downgrade(&opener);
    tokio::spawn(async move {
        loop {
            failures.notified().await;
            let Some(opener) = opener.upgrade() else {
                return;
            };
            if opener.recover().await {
                continue;
            }
            let replaced = keeper.opener(directories).await;
            if let Err(error) = replaced.and_then(|socket| Ok(opener.replace(socket)?)) {
                error!(error = format!("{error:#}"), "cannot replace the opener");
                failures.notify_one();
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
}

/// Serves from the directories that the keeper has opened. Returns what
/// [`attend`] takes, too.
pub fn adopt(
    config: &Config,
    directories: keeper::ServedDirectories,
) -> anyhow::Result<(DocumentTree, (u32, Arc<Opener>))> {
    let number = directories.number;
    let Layout {
        described,
        pool_sites,
    } = serde_json::from_slice(&directories.text)?;
    let mut fds = directories.fds.into_iter();
    let socket = fds
        .next()
        .context("the keeper sent no socket of an opener")?;
    let opener = Opener::new(socket)?;
    if fds.len() != described.len() {
        bail!(
            "the keeper sent {} directories and described {}",
            fds.len(),
            described.len()
        );
    }
    let mut all = described.into_iter().zip(fds).zip(0..);
    let mut next = || {
        let ((described, dir), tree) = all.next().context("the keeper sent too few directories")?;
        Ok::<_, anyhow::Error>((described, dir, AccessCheck::new(opener.clone(), tree)))
    };
    let (described, dir, reader) = next()?;
    let site = Arc::new(Site::adopt(&config.site, described, dir, reader)?);
    let mut files = |_: &Path| {
        let (described, dir, reader) = next()?;
        let symlinks = config.site.symlinks;
        Ok(Site::adopt_files(symlinks, described, dir, reader))
    };
    let send_file = SendFile::open_by(site.clone(), &config.x_sendfile, &mut files)?;
    let routes = Routes::open(&config.route, &mut |root| {
        let files = files(root)?.protected(&config.site)?;
        Ok(files.of_site(&site))
    })?;
    let mut adopted = BTreeMap::new();
    for name in pool_sites {
        let (described, dir, reader) = next()?;
        let front = Site::adopt(&config.site, described, dir, reader)?.of_site(&site);
        adopted.insert(name, Arc::new(front));
    }
    let error_site = match &config.error_pages.directory {
        Some(_) => {
            let (described, dir, reader) = next()?;
            let symlinks = config.site.symlinks;
            Some(Site::adopt_files(symlinks, described, dir, reader))
        }
        None => None,
    };
    let tree = DocumentTree {
        site,
        pool_sites: adopted,
        send_file,
        routes,
        error_site,
        error_pages: ErrorPages::default(),
    };
    Ok((tree, (number, opener)))
}
