//! Apache's `.htaccess` files: finds those on the way to a path, keeps what they say, and merges it
//! as Apache does.
//!
//! `parse.rs` reads lines, `read.rs` makes of them the directives of `rules.rs`, with what
//! `known.rs` knows of Apache; `way.rs` merges them for a directory; `access.rs`, `handler.rs` and
//! `rewrite.rs` evaluate them. `htaccess_walk.rs`, next to this directory, applies all of it to a
//! request.

mod access;
pub(super) mod condition;
pub mod facts;
pub(super) mod handler;
mod known;
mod link_options;
mod memory;
mod parse;
mod pattern;
mod read;
mod read_require;
mod read_rewrite;
pub(super) mod rewrite;
mod rule;
pub(super) mod rules;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod translate;
mod way;
mod wildcards;

use std::collections::HashMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use surus_sys::openat2::Access as For;
use tracing::warn;

use self::memory::Memory;
use self::read::read_within;
use self::rules::File;
use super::document_root::Root;
use super::lookup_cache::Recent;
use super::opened::Opened;

pub use self::read::read;
pub use self::rules::{Problem, Scope};
pub(super) use self::way::{About, Way};

/// Longer files are closed: what they say beyond would not be heard.
pub const MAX_BYTES: u64 = 1 << 20;

/// Parsed files that are kept. They are files of the site, so that no client makes more of them.
const MAX_FILES: usize = 4096;

/// What directories have said.
#[derive(Debug)]
pub(super) struct Htaccess {
    directories: Recent<Directory>,
    /// Where no file is.
    nothing: Arc<Way>,
    /// By device and inode.
    files: Mutex<Parsed>,
    /// For the patterns of all files.
    memory: Memory,
}

type Parsed = HashMap<(u64, u64), (Identity, Arc<File>)>;

/// What is another one for another text.
type Identity = (u64, i64, i64, i64, i64);

/// A directory that is there: missing ones are looked up again, because one that appears may close
/// what it holds.
#[derive(Debug, Clone)]
struct Directory {
    above: Option<Arc<Way>>,
    way: Arc<Way>,
}

impl Htaccess {
    pub(super) fn new() -> Htaccess {
        Htaccess {
            directories: Recent::new(),
            nothing: Arc::default(),
            files: Mutex::default(),
            memory: Memory::default(),
        }
    }

    /// The way to a path, which begins with a slash, and the end of the part of it that names
    /// directories which are there.
    pub(super) fn way(&self, root: &Root, path: &str, now: Instant) -> (Arc<Way>, usize) {
        // The document root has been opened at the start; without it, nothing is there.
        let top = self.directory(root, "", None, now);
        let mut way = top.unwrap_or_else(|| self.nothing.clone());
        let mut end = 1;
        while let Some(rest) = path.as_bytes().get(end..)
            && let Some(slash) = memchr::memchr(b'/', rest)
        {
            match self.directory(root, &path[..end + slash], Some(&way), now) {
                Some(below) => way = below,
                None => break,
            }
            end += slash + 1;
        }
        (way, end)
    }

    /// The way to the directory at a path without a trailing slash, which is empty for the document
    /// root; none where none is there.
    fn directory(
        &self,
        root: &Root,
        path: &str,
        above: Option<&Arc<Way>>,
        now: Instant,
    ) -> Option<Arc<Way>> {
        let is_of = |directory: &Directory| match (&directory.above, above) {
            (None, None) => true,
            (Some(known), Some(above)) => Arc::ptr_eq(known, above),
            _ => false,
        };
        if let Some(directory) = self.directories.get(path.as_bytes(), now).filter(is_of) {
            return Some(directory.way);
        }
        let below = path.strip_prefix('/').unwrap_or_default();
        if !path.is_empty() && !is_directory(root, below) {
            return None;
        }
        let way = match self.file(root, below) {
            None => above.unwrap_or(&self.nothing).clone(),
            Some(file) => {
                // The same as before, so that nothing below has to be merged again.
                let known = self.directories.last(path.as_bytes()).filter(is_of);
                let known = known.map(|known| known.way);
                known.filter(|way| way.ends_in(&file)).unwrap_or_else(|| {
                    let above = above.map(Arc::as_ref);
                    Arc::new(Way::below(above, &format!("{path}/"), file))
                })
            }
        };
        let directory = Directory {
            above: above.cloned(),
            way: way.clone(),
        };
        if way.failed().is_none() {
            self.directories.put(path.as_bytes(), directory, now);
        }
        Some(way)
    }

    /// The file of a directory, parsed; none where there is none, or nothing but comments in it.
    fn file(&self, root: &Root, directory: &str) -> Option<Arc<File>> {
        let name = match directory {
            "" => ".htaccess".to_owned(),
            directory => format!("{directory}/.htaccess"),
        };
        let (mut file, metadata) = match root.get(Path::new(&name), For::Read) {
            Opened::Regular { file, metadata, .. } => (file, metadata),
            Opened::Missing => return None,
            // As Apache: what cannot be read may deny.
            Opened::Directory | Opened::Denied(_) => {
                return Some(Arc::new(rules::unreadable()));
            }
            Opened::Failed(trouble) => return Some(Arc::new(rules::failed(trouble))),
        };
        let id = (metadata.dev(), metadata.ino());
        let identity = (
            metadata.len(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        );
        let files = || self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, file)) = files().get(&id)
            && *known == identity
        {
            return Some(file.clone());
        }
        let mut text = Vec::new();
        let whole = metadata.len() <= MAX_BYTES
            && Read::by_ref(&mut file)
                .take(MAX_BYTES)
                .read_to_end(&mut text)
                .is_ok();
        if whole && has_only_comments(&text) {
            return None;
        }
        let parsed = Arc::new(match whole {
            true => self.parse(&name, &String::from_utf8_lossy(&text)),
            false => rules::unreadable(),
        });
        let mut files = files();
        if files.len() >= MAX_FILES {
            files.clear();
        }
        files.insert(id, (identity, parsed.clone()));
        Some(parsed)
    }

    fn parse(&self, name: &str, text: &str) -> File {
        let file = self.parse_within(name, text);
        for problem in file.problems.iter().filter(|problem| problem.is_logged) {
            let (line, what) = (problem.line, &problem.what);
            warn!(
                file = name,
                line, what, "a line of a .htaccess file is not heard"
            );
        }
        file
    }

    fn parse_within(&self, name: &str, text: &str) -> File {
        let file = read_within(text, &self.memory);
        if !self.memory.was_short() {
            return file;
        }
        // Those of directories that are not asked for any more.
        drop(file);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.clear();
        drop(files);
        let file = read_within(text, &self.memory);
        if self.memory.was_short() {
            warn!(
                file = name,
                "the patterns of all .htaccess files together would take more than 64 MiB; what \
                 those of this file protect is closed"
            );
        }
        file
    }
}

fn has_only_comments(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    // A comment that is continued goes on in the next line, which then looks like a directive.
    lines.all(|line| line.is_empty() || line.starts_with(b"#"))
}

fn is_directory(root: &Root, path: &str) -> bool {
    // One that may not be entered is there, and what is below is denied by that.
    !matches!(
        root.get(Path::new(path), For::Look),
        Opened::Missing | Opened::Regular { .. }
    )
}
