//! Apache's `.htaccess` files: finds those on the way to a path, keeps what they say, and merges it
//! as Apache does.
//!
//! `parse.rs` reads lines, `read.rs` makes of them the directives of `rules.rs`; `access.rs`,
//! `handler.rs` and `rewrite.rs` evaluate them. `heard.rs` beside this directory leads a request
//! through all of it.

mod access;
pub(super) mod condition;
pub mod facts;
mod handler;
mod parse;
mod pattern;
mod read;
pub(super) mod rewrite;
mod rules;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::HashMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use surus_sys::open::Access as For;

use self::access::{Access, Closed};
use self::facts::{Env, Facts};
use self::handler::Php;
use self::rewrite::{Inherits, Rules};
use self::rules::{Block, File};
use super::recent::Recent;
use super::root::{Denial, Opened, Root};

pub use self::read::read;
pub use self::rules::Problem;

/// Longer files are closed: what they say beyond would not be heard.
const MAX_BYTES: u64 = 1 << 20;

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
}

type Parsed = HashMap<(u64, u64), (Identity, Arc<File>)>;

/// What is another one for another text.
type Identity = (u64, i64, i64, i64, i64);

#[derive(Debug, Clone)]
enum Directory {
    Missing,
    Here {
        above: Option<Arc<Way>>,
        way: Arc<Way>,
    },
}

/// What the `.htaccess` files from the document root down to a directory say together.
#[derive(Debug, Default)]
pub(super) struct Way {
    levels: Vec<(Arc<str>, Arc<File>)>,
    rules: Option<Rules>,
    is_broken: bool,
    has_access: bool,
    has_handlers: bool,
    has_redirects: bool,
    has_env: bool,
}

impl Htaccess {
    pub(super) fn new() -> Htaccess {
        Htaccess {
            directories: Recent::new(),
            nothing: Arc::default(),
            files: Mutex::default(),
        }
    }

    /// The way to a path, which begins with a slash, and the end of the part of it that names
    /// directories which are there.
    pub(super) fn way(&self, root: &Root, path: &str, now: Instant) -> (Arc<Way>, usize) {
        let mut way = match self.directory(root, "", None, now) {
            Directory::Here { way, .. } => way,
            // It has been opened at the start; without it, nothing is there.
            Directory::Missing => self.nothing.clone(),
        };
        let mut end = 1;
        while let Some(rest) = path.as_bytes().get(end..)
            && let Some(slash) = memchr::memchr(b'/', rest)
        {
            match self.directory(root, &path[..end + slash], Some(&way), now) {
                Directory::Here { way: below, .. } => way = below,
                Directory::Missing => break,
            }
            end += slash + 1;
        }
        (way, end)
    }

    /// The directory at a path without a trailing slash; empty for the document root.
    fn directory(
        &self,
        root: &Root,
        path: &str,
        above: Option<&Arc<Way>>,
        now: Instant,
    ) -> Directory {
        let is_of = |directory: &Directory| match directory {
            Directory::Missing => true,
            Directory::Here { above: known, .. } => match (known, above) {
                (None, None) => true,
                (Some(known), Some(above)) => Arc::ptr_eq(known, above),
                _ => false,
            },
        };
        if let Some(directory) = self.directories.get(path.as_bytes(), now).filter(is_of) {
            return directory;
        }
        let below = path.strip_prefix('/').unwrap_or_default();
        let is_there = path.is_empty() || is_directory(root, below);
        let directory = match is_there.then(|| self.file(root, below)) {
            None => Directory::Missing,
            Some(None) => Directory::Here {
                way: above.unwrap_or(&self.nothing).clone(),
                above: above.cloned(),
            },
            Some(Some(file)) => {
                // The same as before, so that nothing below has to be merged again.
                let known = self.directories.last(path.as_bytes()).filter(is_of);
                let known = known.and_then(|known| match known {
                    Directory::Here { way, .. } if way.ends_in(&file) => Some(way),
                    _ => None,
                });
                Directory::Here {
                    way: known.unwrap_or_else(|| {
                        Arc::new(Way::below(
                            above.map(Arc::as_ref),
                            &format!("{path}/"),
                            file,
                        ))
                    }),
                    above: above.cloned(),
                }
            }
        };
        self.directories
            .put(path.as_bytes(), directory.clone(), now);
        directory
    }

    /// The file of a directory, parsed; none where there is none, or nothing but comments in it.
    fn file(&self, root: &Root, directory: &str) -> Option<Arc<File>> {
        let name = match directory {
            "" => ".htaccess".to_owned(),
            directory => format!("{directory}/.htaccess"),
        };
        let (mut file, metadata) = match root.get(Path::new(&name), For::Read) {
            Opened::Regular { file, metadata, .. } => (file, metadata),
            Opened::Missing | Opened::Directory => return None,
            // As Apache: what cannot be read may deny.
            Opened::Denied(_) | Opened::Failed(_) => return Some(Arc::new(rules::unreadable())),
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
            true => read(&String::from_utf8_lossy(&text)),
            false => rules::unreadable(),
        });
        let mut files = files();
        if files.len() >= MAX_FILES {
            files.clear();
        }
        files.insert(id, (identity, parsed.clone()));
        Some(parsed)
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

impl Way {
    fn below(above: Option<&Way>, directory: &str, file: Arc<File>) -> Way {
        let mut levels = above.map_or_else(Vec::new, |above| above.levels.clone());
        levels.push((directory.into(), file));
        let blocks = || levels.iter().flat_map(|(_, file)| &file.blocks);
        let any = |has: fn(&Block) -> bool| blocks().any(has);
        Way {
            is_broken: levels.iter().any(|(_, file)| file.is_broken),
            has_access: any(|b| !b.compat.is_empty() || !b.require.is_empty() || b.closes),
            has_handlers: any(|b| !b.handlers.is_empty()),
            has_redirects: any(|b| !b.redirects.is_empty()),
            has_env: any(|b| !b.env.is_empty()),
            rules: rules_of(&levels),
            levels,
        }
    }

    /// No file is on it at all.
    pub(super) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// A file on it cannot be read as Apache would.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn ends_in(&self, file: &Arc<File>) -> bool {
        let last = self.levels.last();
        last.is_some_and(|(_, last)| Arc::ptr_eq(last, file))
    }

    /// The rules of mod_rewrite, where they are switched on.
    pub(super) fn rules(&self) -> Option<&Rules> {
        self.rules.as_ref()
    }

    /// `DirectoryIndex`.
    pub(super) fn index(&self) -> Option<&[String]> {
        let mut files = self.levels.iter().rev();
        files.find_map(|(_, file)| file.index.as_deref())
    }

    /// `FallbackResource`.
    pub(super) fn fallback(&self) -> Option<&str> {
        let mut files = self.levels.iter().rev();
        files
            .find_map(|(_, file)| file.fallback.as_ref())?
            .as_deref()
    }

    /// The blocks that are about a file of this name, in the order in which Apache merges them, and
    /// those of which that is not certain.
    fn blocks(&self, name: &str) -> (Vec<&Block>, Vec<&Block>) {
        let files = || self.levels.iter().map(|(_, file)| file);
        let mut certain: Vec<_> = files().filter_map(|file| file.blocks.first()).collect();
        let mut uncertain = Vec::new();
        for block in files().flat_map(|file| file.blocks.iter().skip(1)) {
            match block.is_about(name) {
                Some(true) => certain.push(block),
                Some(false) => {}
                None => uncertain.push(block),
            }
        }
        (certain, uncertain)
    }

    /// Sets what `SetEnvIf` sets.
    pub(super) fn set_env(&self, name: &str, facts: &Facts<'_>, path: &str, env: &mut Env) {
        if self.has_env {
            let (certain, _) = self.blocks(name);
            for set in certain.iter().flat_map(|block| &block.env) {
                set.apply(facts, path, env);
            }
        }
    }

    /// May this client have a file of this name?
    pub(super) fn check(&self, name: &str, facts: &Facts<'_>, env: &Env) -> Result<(), Denial> {
        if !self.has_access {
            return Ok(());
        }
        let (certain, uncertain) = self.blocks(name);
        let mut access = Access::default();
        for block in &certain {
            access.merge(&block.compat, &block.require, block.merging);
        }
        let check = |access: &Access<'_>| {
            access.check(facts, env).map_err(|closed| match closed {
                Closed::Denied => Denial::Closed,
                Closed::NeedsUser => Denial::NeedsUser,
            })
        };
        check(&access)?;
        for block in &uncertain {
            let mut access = access.clone();
            access.merge(&block.compat, &block.require, block.merging);
            check(&access)?;
        }
        match certain.iter().chain(&uncertain).any(|block| block.closes) {
            true => Err(Denial::Closed),
            false => Ok(()),
        }
    }

    /// Is a PHP file of this name run? `forced` is what a rule of mod_rewrite has said.
    pub(super) fn runs_php(&self, name: &str, forced: Option<bool>) -> bool {
        if forced == Some(false) {
            return false;
        }
        if !self.has_handlers {
            return true;
        }
        let (certain, uncertain) = self.blocks(name);
        let php = heard(&certain, name);
        php.runs()
            && uncertain.iter().all(|block| {
                let mut php = php.clone();
                for line in &block.handlers {
                    php.hear(line, name);
                }
                php.runs()
            })
    }

    /// Is a file of this name PHP to Apache, though it is none to Surus?
    pub(super) fn is_source(&self, name: &str) -> bool {
        if !self.has_handlers {
            return false;
        }
        let (certain, uncertain) = self.blocks(name);
        let all: Vec<_> = certain.into_iter().chain(uncertain).collect();
        heard(&all, name).is_source()
    }

    /// Where `Redirect` and `RedirectMatch` lead from a path: a status, and a place where the
    /// status is of a redirection.
    pub(super) fn redirect(&self, name: &str, path: &str) -> Option<(u16, String)> {
        if !self.has_redirects {
            return None;
        }
        let (certain, uncertain) = self.blocks(name);
        // Those of deeper directories come first.
        let mut redirects = certain.iter().rev().flat_map(|block| &block.redirects);
        let found = redirects.find_map(|redirect| match redirect.apply(path) {
            Some(Some(to)) => Some((redirect.status, to)),
            Some(None) if redirect.status >= 400 => Some((redirect.status, String::new())),
            _ => None,
        });
        found.or_else(|| {
            let mut redirects = uncertain.iter().flat_map(|block| &block.redirects);
            redirects.find_map(|redirect| {
                let is_met = redirect.status >= 400 && redirect.apply(path).is_some();
                is_met.then(|| (redirect.status, String::new()))
            })
        })
    }
}

fn heard(blocks: &[&Block], name: &str) -> Php {
    let mut php = Php::default();
    for line in blocks.iter().flat_map(|block| &block.handlers) {
        php.hear(line, name);
    }
    php
}

/// The rules that hold in the deepest directory: its own replace those above, unless it says that
/// it inherits them.
fn rules_of(levels: &[(Arc<str>, Arc<File>)]) -> Option<Rules> {
    let mut engine = None;
    let mut rules: Option<Rules> = None;
    for (directory, file) in levels {
        let Some(rewriting) = &file.rewriting else {
            continue;
        };
        engine = rewriting.engine.or(engine);
        let above = rules.take();
        let own = rewriting.rules.iter().cloned();
        let inherited = above.iter().flat_map(|above| above.rules.iter().cloned());
        rules = Some(Rules {
            rules: match rewriting.inherits {
                Inherits::No => own.collect(),
                Inherits::Behind => own.chain(inherited).collect(),
                Inherits::Before => inherited.chain(own).collect(),
            },
            directory: directory.clone(),
            base: rewriting.base.clone().or_else(|| {
                let above = above.as_ref().filter(|_| rewriting.merges_base);
                above.and_then(|above| above.base.clone())
            }),
        });
    }
    rules.filter(|_| engine == Some(true))
}
