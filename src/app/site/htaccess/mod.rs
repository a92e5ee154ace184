//! Finds the `.htaccess` files on the way to a path, caches them, and merges them as Apache does.
//!
//! `parse.rs` parses lines, and `read.rs` turns them into the directives of `rules.rs`; `known.rs`
//! has what Surus knows of Apache. `merged.rs` merges the directives of a directory; `access.rs`,
//! `handler.rs` and `rewrite.rs` evaluate them. `htaccess_walk.rs`, next to this directory, applies
//! all of it to a request.

mod access;
pub(super) mod condition;
pub(super) mod cost;
pub mod facts;
pub(super) mod handler;
mod known;
mod link_options;
mod merged;
mod parse;
mod pattern;
mod pattern_size;
mod pcre_groups;
mod pcre_syntax;
mod read;
mod read_require;
mod read_rewrite;
pub(super) mod rewrite;
mod rule;
pub(super) mod rules;
mod space;
pub(super) mod template;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod translate;
mod wildcards;

use std::collections::HashMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use surus_sys::openat2::Access as For;
use tracing::warn;

use self::cost::{Excess, ReadingRate};
use self::rules::HtaccessFile;
use super::document_root::Root;
use super::lookup_cache::Recent;
use super::opened::{LookupError, OpenedPath};

pub use self::cost::SiteMemory;
pub(super) use self::merged::{FileRules, MergedRules};
pub use self::read::read;
pub use self::rules::{Problem, Scope};

/// A longer file denies its directory, because its end would not be applied.
pub const MAX_BYTES: u64 = 1 << 20;

/// The limit of cached files. Clients cannot create more: they are files of the site.
const MAX_FILES: usize = 4096;

/// The cached `.htaccess` files and merged directories of a site.
#[derive(Debug)]
pub(super) struct Htaccess {
    directories: Recent<Directory>,
    /// Returned if there is no file.
    nothing: Arc<MergedRules>,
    /// Parsed files by device and inode.
    files: Mutex<Parsed>,
    /// Locked while a file is read, so that one thread reads it for all requests that need it.
    reading: Mutex<ReadingRate>,
    /// The memory for all files.
    memory: SiteMemory,
}

type Parsed = HashMap<(u64, u64), (ContentIdentity, Arc<HtaccessFile>)>;

/// Changes with the content of a file.
type ContentIdentity = (u64, i64, i64, i64, i64);

/// A cached directory that exists. Missing ones are looked up again, because a new one may have an
/// `.htaccess` file that denies access.
#[derive(Debug, Clone)]
struct Directory {
    above: Option<Arc<MergedRules>>,
    merged: Arc<MergedRules>,
}

impl Htaccess {
    pub(super) fn new() -> Htaccess {
        Htaccess {
            directories: Recent::new(),
            nothing: Arc::default(),
            files: Mutex::default(),
            reading: Mutex::default(),
            memory: SiteMemory::default(),
        }
    }

    /// Returns the merged files on the way to a path, and the end of the path's part that names
    /// existing directories. The path begins with a slash.
    pub(super) fn merged(
        &self,
        root: &Root,
        path: &str,
        now: Instant,
    ) -> (Arc<MergedRules>, usize) {
        // The document root was opened at the start; without it, no file exists.
        let top = self.directory(root, "", None, now);
        let mut merged = top.unwrap_or_else(|| self.nothing.clone());
        let mut end = 1;
        while let Some(rest) = path.as_bytes().get(end..)
            && let Some(slash) = memchr::memchr(b'/', rest)
        {
            match self.directory(root, &path[..end + slash], Some(&merged), now) {
                Some(below) => merged = below,
                None => break,
            }
            end += slash + 1;
        }
        (merged, end)
    }

    /// The merged files down to a directory. The path has no trailing slash and is empty for the
    /// document root. None if there is no such directory.
    fn directory(
        &self,
        root: &Root,
        path: &str,
        above: Option<&Arc<MergedRules>>,
        now: Instant,
    ) -> Option<Arc<MergedRules>> {
        let is_of = |directory: &Directory| match (&directory.above, above) {
            (None, None) => true,
            (Some(known), Some(above)) => Arc::ptr_eq(known, above),
            _ => false,
        };
        if let Some(directory) = self.directories.get(path.as_bytes(), now).filter(is_of) {
            return Some(directory.merged);
        }
        let below = path.strip_prefix('/').unwrap_or_default();
        if !path.is_empty() && !is_directory(root, below) {
            return None;
        }
        let merged = match self.file(root, below, now) {
            None => above.unwrap_or(&self.nothing).clone(),
            Some(file) => {
                // Unchanged, so the directories below need not be merged again.
                let known = self.directories.last(path.as_bytes()).filter(is_of);
                let known = known.map(|known| known.merged);
                known
                    .filter(|merged| merged.ends_in(&file))
                    .unwrap_or_else(|| {
                        let above = above.map(Arc::as_ref);
                        let path = format!("{path}/");
                        Arc::new(MergedRules::below(above, &path, file, &self.memory))
                    })
            }
        };
        let directory = Directory {
            above: above.cloned(),
            merged: merged.clone(),
        };
        if merged.failed().is_none() {
            self.directories.put(path.as_bytes(), directory, now);
        }
        Some(merged)
    }

    /// The parsed file of a directory; none if there is no file or it has only comments.
    fn file(&self, root: &Root, directory: &str, now: Instant) -> Option<Arc<HtaccessFile>> {
        let name = match directory {
            "" => ".htaccess".to_owned(),
            directory => format!("{directory}/.htaccess"),
        };
        let (mut file, metadata) = match root.get(Path::new(&name), For::Read) {
            OpenedPath::Regular { file, metadata, .. } => (file, metadata),
            OpenedPath::Missing => return None,
            // As in Apache: a file that cannot be read may deny access.
            OpenedPath::Directory | OpenedPath::Denied(_) => {
                return Some(Arc::new(rules::unreadable()));
            }
            OpenedPath::Failed(error) => return Some(Arc::new(rules::failed(error))),
        };
        let id = (metadata.dev(), metadata.ino());
        let identity = (
            metadata.len(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        );
        let known = || {
            let files = self.files();
            let (known, file) = files.get(&id)?;
            (*known == identity).then(|| file.clone())
        };
        if let Some(file) = known() {
            return Some(file);
        }
        let mut rate = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have read it meanwhile.
        if let Some(file) = known() {
            return Some(file);
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
        let whole = metadata.len() <= MAX_BYTES
            && Read::by_ref(&mut file)
                .take(MAX_BYTES)
                .read_to_end(&mut text)
                .is_ok();
        rate.spend(text.len());
        if whole && has_only_comments(&text) {
            return None;
        }
        let parsed = Arc::new(match whole {
            true => self.parse(&name, &String::from_utf8_lossy(&text)),
            false => rules::unreadable(),
        });
        rate.spend(parsed.spent);
        let is_full = self.files().len() >= MAX_FILES;
        if is_full && !self.forget_unused() {
            self.files().clear();
        }
        self.files().insert(id, (identity, parsed.clone()));
        Some(parsed)
    }

    fn files(&self) -> MutexGuard<'_, Parsed> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parse(&self, name: &str, text: &str) -> HtaccessFile {
        let mut file = read(text, &self.memory);
        if file.excess == Some(Excess::SiteMemory) && self.forget_unused() {
            file = read(text, &self.memory);
        }
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

    /// Frees the files that no cached directory uses. Whether there were any.
    fn forget_unused(&self) -> bool {
        let mut files = self.files();
        let before = files.len();
        files.retain(|_, (_, file)| Arc::strong_count(file) > 1);
        files.len() < before
    }
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
