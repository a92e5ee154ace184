//! Lets look-ups wait for the disk or take long, without keeping other requests waiting.
//!
//! Each thread of the runtime serves many requests. So a look-up there is [prompt](Pace::Prompt):
//! it reads no `.htaccess` file, merges few directives and takes few steps. If it needs more, it
//! ends with [`Resolution::Later`], and the request waits for its turn to use another thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio::task::spawn_blocking;
use tracing::error;

use super::htaccess::{Htaccess, MergedPath};
use super::opened::LookupError;
use super::{Facts, Pace, Resolution, Site};
use crate::observe::rate_limit::RateLimit;

/// Why a prompt look-up has ended without a result.
#[derive(Debug)]
pub enum Later {
    /// The `.htaccess` files on the way to these directories must be read or merged.
    Unread(String),
    /// The rules take too many steps.
    Costly,
}

/// The threads for all sites, one for each site at most. The others of tokio's 512 are for files
/// and spools.
const MAX_THREADS: usize = 16;

static THREADS: Semaphore = Semaphore::const_new(MAX_THREADS);

/// How long a request waits for its look-up.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// How often a look-up continues after files have been read: for its own path and each that rules
/// lead to. A thread does all of one that needs more, or whose files change all the time.
const MAX_READ: usize = 16;

impl Site {
    /// The merged `.htaccess` files on the way to a path. If that is not known promptly, the error
    /// is the result of the look-up.
    pub(super) fn merged(
        &self,
        htaccess: &Htaccess,
        facts: &Facts<'_>,
        directories: &str,
        now: Instant,
    ) -> Result<MergedPath, Later> {
        let unread = |_| Later::Unread(directories.to_owned());
        match facts.pace {
            Pace::Patient => Ok(htaccess.merged(&self.root, directories, now)),
            Pace::Prompt => htaccess
                .merged_if_read(&self.root, directories, now)
                .map_err(unread),
        }
    }

    /// Does a look-up that was put off, after the earlier ones of the site. Returns the question
    /// and the result.
    pub async fn find_in_turn<T: Send + 'static>(
        self: &Arc<Site>,
        later: Later,
        question: T,
        find: impl Fn(&Site, &T, Pace) -> Resolution + Send + 'static,
    ) -> Result<(T, Resolution), LookupError> {
        let found = tokio::time::timeout(MAX_WAIT, self.find_slowly(later, question, find)).await;
        found.unwrap_or_else(|_| {
            static REPORTED: RateLimit = RateLimit::new();
            if REPORTED.is_time(Instant::now()) {
                let root = self.root().display();
                error!(%root, "the .htaccess files of a site were not applied within 30 s: 503; \
                    check the disk, or use fewer rules");
            }
            Err(LookupError::Scarce)
        })
    }

    async fn find_slowly<T: Send + 'static>(
        self: &Arc<Site>,
        later: Later,
        question: T,
        find: impl Fn(&Site, &T, Pace) -> Resolution + Send + 'static,
    ) -> Result<(T, Resolution), LookupError> {
        let htaccess = self.htaccess.as_ref().ok_or(LookupError::Broken)?;
        let mut turn = htaccess.site.turn.clone().lock_owned().await;
        let reads = match later {
            Later::Unread(_) => MAX_READ,
            Later::Costly => 0,
        };
        for _ in 0..reads {
            // Usually an earlier request has cached the same files. Most rules take few steps, so
            // they are evaluated here.
            let directories = match find(self, &question, Pace::Prompt) {
                Resolution::Later(Later::Unread(directories)) => directories,
                Resolution::Later(Later::Costly) => break,
                found => return Ok((question, found)),
            };
            let site = self.clone();
            let read = move || {
                if let Some(htaccess) = &site.htaccess {
                    htaccess.merged(&site.root, &directories, Instant::now());
                }
            };
            (turn, ()) = on_another_thread(turn, read).await?;
        }
        let site = self.clone();
        let find = move || {
            let found = find(&site, &question, Pace::Patient);
            (question, found)
        };
        Ok(on_another_thread(turn, find).await?.1)
    }
}

/// The turn lasts until the end, even if the request has ended meanwhile.
async fn on_another_thread<T: Send + 'static>(
    turn: OwnedMutexGuard<()>,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<(OwnedMutexGuard<()>, T), LookupError> {
    let thread = THREADS.acquire().await;
    let done = spawn_blocking(move || {
        let _busy = thread;
        (turn, job())
    });
    done.await.map_err(|_| LookupError::Broken)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
