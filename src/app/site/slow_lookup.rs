//! Looks up paths on threads that may wait for the disk and be busy for long.
//!
//! Each thread of the runtime serves many requests. So a look-up there is prompt: it reads no
//! `.htaccess` file and takes few steps. If it needs more, it ends with
//! [`Resolution::Later`], and the whole look-up is done on another thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tracing::error;

use super::htaccess::{Htaccess, MergedPath};
use super::opened::LookupError;
use super::{Facts, Pace, Resolution, Site};
use crate::observe::rate_limit::RateLimit;

/// The threads for all sites, one for each site at most. The others of tokio's 512 are for files
/// and spools.
const MAX_THREADS: usize = 16;

static THREADS: Semaphore = Semaphore::const_new(MAX_THREADS);

/// How long a request waits for its look-up.
const MAX_WAIT: Duration = Duration::from_secs(30);

impl Site {
    /// The merged `.htaccess` files on the way to a path. None if that is not known promptly.
    pub(super) fn merged(
        &self,
        htaccess: &Htaccess,
        facts: &Facts<'_>,
        directories: &str,
        now: Instant,
    ) -> Option<MergedPath> {
        match facts.pace {
            Pace::Patient => Some(htaccess.merged(&self.root, directories, now)),
            Pace::Prompt => htaccess.merged_if_read(&self.root, directories, now).ok(),
        }
    }

    /// Does a look-up patiently. The request waits for those before it. Returns what was asked,
    /// and what was found.
    pub async fn find_in_turn<T: Send + 'static>(
        self: &Arc<Site>,
        asked: T,
        find: impl Fn(&Site, &T, Pace) -> Resolution + Send + 'static,
    ) -> Result<(T, Resolution), LookupError> {
        let look_up = async {
            let htaccess = self.htaccess.as_ref().ok_or(LookupError::Broken)?;
            let turn = htaccess.turn.clone().lock_owned().await;
            // The request before has probably read the same files.
            match find(self, &asked, Pace::Prompt) {
                Resolution::Later => {}
                found => return Ok((asked, found)),
            }
            let thread = THREADS.acquire().await;
            let site = self.clone();
            let found = spawn_blocking(move || {
                // Until the end, even if the request has ended meanwhile.
                let _busy = (turn, thread);
                let found = find(&site, &asked, Pace::Patient);
                (asked, found)
            });
            found.await.map_err(|_| LookupError::Broken)
        };
        let found = tokio::time::timeout(MAX_WAIT, look_up).await;
        found.unwrap_or_else(|_| {
            static REPORTED: RateLimit = RateLimit::new();
            if REPORTED.is_time(Instant::now()) {
                let root = self.root().display();
                error!(%root, "a request did not get its .htaccess files applied within 30 s: 503; \
                    check the disk, or use fewer rules");
            }
            Err(LookupError::Scarce)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
