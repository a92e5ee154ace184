//! Finds the `.htaccess` files on the way to a path, caches them, and merges them as Apache does.
//!
//! `parse.rs` parses lines, and `read.rs` turns them into the directives of `rules.rs`; `known.rs`
//! has what Surus knows of Apache. `merged.rs` merges the directives of a directory; `access.rs`,
//! `handler.rs` and `rewrite.rs` evaluate them. `htaccess_walk.rs`, next to this directory, applies
//! all of it to a request.

mod access;
mod automaton;
pub(super) mod condition;
pub(super) mod cost;
pub mod facts;
pub(super) mod handler;
mod known;
mod link_options;
mod match_groups;
mod merged;
mod parse;
mod pattern;
mod pattern_size;
mod pcre_groups;
mod pcre_syntax;
mod read;
mod read_handler;
mod read_ignored;
mod read_require;
mod read_rewrite;
pub(super) mod rewrite;
mod rule;
pub(super) mod rules;
mod run_length;
mod space;
pub(super) mod template;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod translate;
mod wildcards;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use surus_sys::openat2::Access as For;
use tokio::sync::Mutex as AsyncMutex;
use tracing::warn;

use self::cost::{Excess, ReadingRate};
use self::rules::HtaccessFile;
use super::document_root::Root;
use super::lookup_cache::Recent;
use super::opened::{LookupError, OpenedPath};

pub use self::cost::{Pace, SiteMemory, Steps};
pub(super) use self::merged::{FileRules, MergedRules};
pub use self::read::read;
pub use self::rules::{Problem, Scope};

/// A longer file denies its directory, because its end would not be applied.
pub const MAX_BYTES: u64 = 1 << 20;

/// The limit of cached files. Clients cannot create more: they are files of the site.
const MAX_FILES: usize = 4096;

/// The pause before a file is read again that did not fit into the memory of its site.
const RETRY: Duration = Duration::from_secs(10);

/// The bytes that a failed reading counts as, even if it read fewer.
const FAILED_READING: usize = 64 << 10;

/// The merged directories of a document tree.
#[derive(Debug)]
pub(super) struct Htaccess {
    directories: Recent<Directory>,
    /// Returned if there is no file.
    nothing: Arc<MergedRules>,
    pub(super) site: Arc<SiteFiles>,
}

/// The cached `.htaccess` files of a site, and its limits. All its document trees share them.
#[derive(Debug, Default)]
pub(super) struct SiteFiles {
    /// Parsed files by device and inode.
    files: Mutex<HashMap<(u64, u64), Parsed>>,
    /// Locked while a file is read, so that one thread reads it for all requests that need it.
    pub(super) reading: Mutex<ReadingRate>,
    /// Held by the request that has a thread to look up its path. The others wait without one.
    pub(super) turn: Arc<AsyncMutex<()>>,
    /// The memory for all files.
    memory: SiteMemory,
}

#[derive(Debug)]
struct Parsed {
    content: ContentIdentity,
    /// None for a file that has only comments.
    file: Option<Arc<HtaccessFile>>,
    /// When it is read again, if other files left too little memory for it.
    retry: Option<Instant>,
}

/// Changes with the content of a file.
type ContentIdentity = (u64, i64, i64, i64, i64);

/// A cached directory that exists. Missing ones are looked up again, because a new one may have an
/// `.htaccess` file that denies access.
#[derive(Debug, Clone)]
struct Directory {
    above: Option<Arc<MergedRules>>,
    merged: Arc<MergedRules>,
}

/// The merged files on the way to a path, and the end of the path's part that names existing
/// directories.
pub(super) type MergedPath = (Arc<MergedRules>, usize);

/// A file has not been read yet, or what was read must be merged, which may take as long.
#[derive(Debug)]
pub(super) struct Unread;

/// Merging that takes more [work](MergedRules::work_below) may take long. This takes some
/// microseconds.
const MERGED_AT_ONCE: usize = 1000;

/// Held while a file is parsed, so that files of several sites take one CPU in all.
static PARSING: Mutex<()> = Mutex::new(());

impl Htaccess {
    /// The files of one more document tree of a site.
    pub(super) fn new(site: Arc<SiteFiles>) -> Htaccess {
        Htaccess {
            directories: Recent::new(),
            nothing: Arc::default(),
            site,
        }
    }

    /// Merges the files on the way to a path that begins with a slash. Reads those that have not
    /// been read, so the thread may have to wait for the disk.
    pub(super) fn merged(&self, root: &Root, path: &str, now: Instant) -> MergedPath {
        let Ok(merged) = self.merge(root, path, now, &|| Ok::<_, Infallible>(()));
        merged
    }

    /// The same if all of them have been read.
    pub(super) fn merged_if_read(
        &self,
        root: &Root,
        path: &str,
        now: Instant,
    ) -> Result<MergedPath, Unread> {
        self.merge(root, path, now, &|| Err(Unread))
    }

    /// `may_be_long` is called before anything that may take long, and can prevent it.
    fn merge<E>(
        &self,
        root: &Root,
        path: &str,
        now: Instant,
        may_be_long: &impl Fn() -> Result<(), E>,
    ) -> Result<MergedPath, E> {
        // The document root was opened at the start; without it, no file exists.
        let top = self.directory(root, "", None, now, may_be_long)?;
        let mut merged = top.unwrap_or_else(|| self.nothing.clone());
        let mut end = 1;
        while let Some(rest) = path.as_bytes().get(end..)
            && let Some(slash) = memchr::memchr(b'/', rest)
        {
            let below = &path[..end + slash];
            match self.directory(root, below, Some(&merged), now, may_be_long)? {
                Some(below) => merged = below,
                None => break,
            }
            end += slash + 1;
        }
        Ok((merged, end))
    }

    /// The merged files down to a directory. The path has no trailing slash and is empty for the
    /// document root. None if there is no such directory.
    fn directory<E>(
        &self,
        root: &Root,
        path: &str,
        above: Option<&Arc<MergedRules>>,
        now: Instant,
        may_be_long: &impl Fn() -> Result<(), E>,
    ) -> Result<Option<Arc<MergedRules>>, E> {
        let is_of = |directory: &Directory| match (&directory.above, above) {
            (None, None) => true,
            (Some(known), Some(above)) => Arc::ptr_eq(known, above),
            _ => false,
        };
        if let Some(directory) = self.directories.get(path.as_bytes(), now).filter(is_of) {
            return Ok(Some(directory.merged));
        }
        let below = path.strip_prefix('/').unwrap_or_default();
        if !path.is_empty() && !is_directory(root, below) {
            return Ok(None);
        }
        let merged = match self.file(root, below, now, may_be_long)? {
            None => above.unwrap_or(&self.nothing).clone(),
            Some(file) => {
                // Unchanged, so the directories below need not be merged again.
                let known = self.directories.last(path.as_bytes()).filter(is_of);
                let known = known.map(|known| known.merged);
                match known.filter(|merged| merged.ends_in(&file)) {
                    Some(merged) => merged,
                    None => {
                        let above = above.map(Arc::as_ref);
                        if MergedRules::work_below(above, &file) > MERGED_AT_ONCE {
                            may_be_long()?;
                        }
                        let path = format!("{path}/");
                        Arc::new(MergedRules::below(above, &path, file, &self.site.memory))
                    }
                }
            }
        };
        let directory = Directory {
            above: above.cloned(),
            merged: merged.clone(),
        };
        if merged.failed().is_none() {
            self.directories.put(path.as_bytes(), directory, now);
        }
        Ok(Some(merged))
    }

    /// The parsed file of a directory; none if there is no file or it has only comments.
    fn file<E>(
        &self,
        root: &Root,
        directory: &str,
        now: Instant,
        may_be_long: &impl Fn() -> Result<(), E>,
    ) -> Result<Option<Arc<HtaccessFile>>, E> {
        let name = match directory {
            "" => ".htaccess".to_owned(),
            directory => format!("{directory}/.htaccess"),
        };
        let (file, metadata) = match root.get(Path::new(&name), For::Read) {
            OpenedPath::Regular { file, metadata, .. } => (file, metadata),
            OpenedPath::Missing => return Ok(None),
            // As in Apache: a file that cannot be read may deny access.
            OpenedPath::Directory | OpenedPath::Denied(_) => {
                return Ok(Some(Arc::new(rules::unreadable())));
            }
            OpenedPath::Failed(error) => return Ok(Some(Arc::new(rules::failed(error)))),
        };
        if let Some(parsed) = self.site.parsed(&metadata, now) {
            return Ok(parsed);
        }
        may_be_long()?;
        Ok(self.site.read(&name, file, &metadata, now))
    }
}

impl SiteFiles {
    /// What an unchanged file was parsed to, if it was.
    fn parsed(&self, metadata: &Metadata, now: Instant) -> Option<Option<Arc<HtaccessFile>>> {
        let files = self.files();
        let known = files.get(&id(metadata))?;
        let is_due = known.retry.is_some_and(|retry| retry <= now);
        (known.content == content_identity(metadata) && !is_due).then(|| known.file.clone())
    }

    fn read(
        &self,
        name: &str,
        mut file: File,
        metadata: &Metadata,
        now: Instant,
    ) -> Option<Arc<HtaccessFile>> {
        let mut rate = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have read it meanwhile.
        if let Some(parsed) = self.parsed(metadata, now) {
            return parsed;
        }
        if !rate.allows(now) {
            warn!(
                file = name,
                "the site's .htaccess files change too often, or are too many and too large, to be \
                 read now; the request gets 503"
            );
            return Some(Arc::new(rules::failed(LookupError::Scarce)));
        }
        let mut text = Vec::new();
        let is_short = metadata.len() <= MAX_BYTES;
        if is_short
            && let Err(error) = Read::by_ref(&mut file)
                .take(MAX_BYTES)
                .read_to_end(&mut text)
        {
            rate.spend(text.len() + FAILED_READING);
            warn!(file = name, %error, "cannot read an .htaccess file; the request fails");
            return Some(Arc::new(rules::failed(LookupError::Broken)));
        }
        rate.spend(text.len());
        let parsed = match is_short {
            true if has_only_comments(&text) => None,
            true => Some(Arc::new(self.parse(name, &String::from_utf8_lossy(&text)))),
            false => Some(Arc::new(rules::unreadable())),
        };
        rate.spend(parsed.as_ref().map_or(0, |parsed| parsed.spent));
        let is_full = self.files().len() >= MAX_FILES;
        if is_full && !self.forget_unused() {
            let _all = std::mem::take(&mut *self.files());
        }
        let excess = parsed.as_ref().and_then(|parsed| parsed.excess);
        let entry = Parsed {
            content: content_identity(metadata),
            file: parsed.clone(),
            retry: (excess == Some(Excess::SiteMemory)).then(|| now + RETRY),
        };
        // Freed once other threads can look up files again.
        let _replaced = self.files().insert(id(metadata), entry);
        parsed
    }

    fn files(&self) -> MutexGuard<'_, HashMap<(u64, u64), Parsed>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parse(&self, name: &str, text: &str) -> HtaccessFile {
        let file = self.parse_alone(text);
        if let Some(excess) = file.excess {
            let reason = excess.why();
            warn!(
                file = name,
                reason, "an .htaccess file exceeds a limit; access to what is below it is denied"
            );
            return file;
        }
        for problem in file.problems.iter().filter(|problem| problem.is_logged) {
            let (line, what) = (problem.line, &problem.what);
            warn!(
                file = name,
                line, what, "a line of an .htaccess file is not applied"
            );
        }
        file
    }

    fn parse_alone(&self, text: &str) -> HtaccessFile {
        let _alone = PARSING.lock().unwrap_or_else(PoisonError::into_inner);
        let file = read(text, &self.memory);
        match file.excess {
            Some(Excess::SiteMemory) if self.forget_unused() => read(text, &self.memory),
            _ => file,
        }
    }

    /// Frees the files that no cached directory uses. Whether there were any.
    fn forget_unused(&self) -> bool {
        let is_unused = |file: &Option<Arc<HtaccessFile>>| {
            file.as_ref().is_none_or(|it| Arc::strong_count(it) == 1)
        };
        // Freed once other threads can look up files again.
        let unused: Vec<_> = self
            .files()
            .extract_if(|_, parsed| is_unused(&parsed.file))
            .collect();
        !unused.is_empty()
    }
}

/// Device and inode.
fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn content_identity(metadata: &Metadata) -> ContentIdentity {
    (
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    )
}

fn has_only_comments(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    // A continued comment hides the next line, but this check takes that line for a directive.
    lines.all(|line| line.is_empty() || line.starts_with(b"#"))
}

fn is_directory(root: &Root, path: &str) -> bool {
    // A directory that cannot be entered exists; access to what is below is denied.
    !matches!(
        root.get(Path::new(path), For::Metadata),
        OpenedPath::Missing | OpenedPath::Regular { .. }
    )
}
