//! Reads and merges `.htaccess` files on threads that may wait for the disk and be busy for long.
//!
//! The threads of the runtime serve many requests each, so a look-up there uses only what has been
//! read. Otherwise it ends with [`Resolution::Unread`](super::Resolution::Unread). The request then
//! waits for [`Site::read_htaccess`] and looks its path up again with the result. So each look-up
//! gets further, whatever the caches have lost meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tracing::error;

use super::Site;
use super::htaccess::facts::Facts;
use super::htaccess::{Htaccess, MergedPath, MergedRules};
use super::opened::LookupError;
use crate::observe::rate_limit::RateLimit;

/// The threads that read for all sites, one for each site at most. The others of tokio's 512 are
/// for files and spools.
const MAX_READERS: usize = 32;

static READERS: Semaphore = Semaphore::const_new(MAX_READERS);

/// How long a request waits.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The merged `.htaccess` files on the way to a path, read for one request.
pub struct ReadRules {
    site: Arc<Site>,
    directories: String,
    merged: MergedPath,
}

impl Site {
    /// The merged files on the way to a path. None if they must be read first.
    pub(super) fn merged(
        &self,
        htaccess: &Htaccess,
        facts: &Facts<'_>,
        directories: &str,
        now: Instant,
    ) -> Option<MergedPath> {
        let Some(read) = facts.read else {
            return Some(htaccess.merged(&self.root, directories, now));
        };
        // A reload replaces the site.
        let is_it = |read: &&ReadRules| {
            std::ptr::eq(&*read.site, self) && read.directories == directories
        };
        match read.iter().find(is_it) {
            Some(read) => Some(read.merged.clone()),
            None => htaccess.merged_if_read(&self.root, directories, now).ok(),
        }
    }

    /// Reads the files on the way to a path, for a request that waits. If they cannot be read in
    /// time, the result is that they have failed.
    pub async fn read_htaccess(self: &Arc<Site>, directories: String) -> ReadRules {
        let read = self.clone().read_in_turn(directories.clone());
        let merged = tokio::time::timeout(MAX_WAIT, read).await;
        ReadRules {
            site: self.clone(),
            directories,
            merged: merged.unwrap_or_else(|_| {
                static REPORTED: RateLimit = RateLimit::new();
                if REPORTED.is_time(Instant::now()) {
                    let root = self.root().display();
                    error!(%root, "an .htaccess file was not read within 30 s: 503; check the disk");
                }
                failed(LookupError::Scarce)
            }),
        }
    }

    async fn read_in_turn(self: Arc<Site>, directories: String) -> MergedPath {
        let Some(htaccess) = &self.htaccess else {
            return failed(LookupError::Broken);
        };
        let turn = htaccess.turn.clone().lock_owned().await;
        // The request before has probably read the same files.
        let now = Instant::now();
        if let Ok(merged) = htaccess.merged_if_read(&self.root, &directories, now) {
            return merged;
        }
        let reader = READERS.acquire().await;
        let site = self.clone();
        let read = spawn_blocking(move || {
            // Until it has read, even if the request has ended meanwhile.
            let _busy = (turn, reader);
            let htaccess = site.htaccess.as_ref()?;
            Some(htaccess.merged(&site.root, &directories, Instant::now()))
        });
        let read = read.await.ok().flatten();
        read.unwrap_or_else(|| failed(LookupError::Broken))
    }
}

fn failed(error: LookupError) -> MergedPath {
    (Arc::new(MergedRules::failing(error)), 1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
