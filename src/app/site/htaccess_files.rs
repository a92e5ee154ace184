//! The files of a site as the conditions of `.htaccess` see them.

use std::cell::{Cell, OnceCell};
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::path::Path;

use surus_sys::openat2::Access;

use super::document_root::{is_link, is_missing};
use super::htaccess::condition::{FileEntry, FileKind, FileLookup};
use super::htaccess::template::has_parent_component;
use super::normalize::{NameKind, kind};
use super::opened::{Denial, OpenedPath};
use super::{FoundFile, LookupError, Resolution, Site};
use crate::event::Script;

/// What exists at a path.
pub(super) enum PathKind {
    Script(Script),
    File(FoundFile),
    Directory,
    /// A private file.
    Hidden,
    Missing,
    Denied(Denial),
    Failed(LookupError),
}

/// The files as seen by conditions.
pub(super) struct FileView<'a> {
    site: &'a Site,
    at: &'a PathKind,
    /// Whether the path ends with the name of the file.
    is_whole: bool,
    path: &'a str,
    requested: OnceCell<Option<FileKind>>,
    /// Why a file could not be looked up.
    unknown: Cell<Option<UnknownEntry>>,
}

/// Why it is unknown what is at a path.
#[derive(Clone, Copy)]
enum UnknownEntry {
    Denied,
    Failed(LookupError),
}

impl<'a> FileView<'a> {
    /// `end` is the end of the part of the path that names a file.
    pub(super) fn new(site: &'a Site, at: &'a PathKind, path: &'a str, end: usize) -> FileView<'a> {
        FileView {
            site,
            at,
            is_whole: end == path.len(),
            path: &path[..end],
            requested: OnceCell::new(),
            unknown: Cell::new(None),
        }
    }

    /// The response if the result of the rules is unknown.
    pub(super) fn unknown(&self) -> Resolution {
        match self.unknown.get() {
            Some(UnknownEntry::Failed(error)) => Resolution::Failed(error),
            Some(UnknownEntry::Denied) => Resolution::Denied(Denial::UnknownFile),
            None => Resolution::Denied(Denial::UnknownRule),
        }
    }

    fn entry(&self, path: &str) -> Result<FileEntry, UnknownEntry> {
        let below = self.below(path).filter(|_| !has_parent_component(path));
        match below {
            None => entry_of(std::fs::metadata(path)),
            Some("") => Ok(directory(path)),
            Some(below) => match self.site.root.find(Path::new(below), Access::Metadata) {
                OpenedPath::Regular { metadata, .. } => Ok(FileEntry {
                    kind: FileKind::File,
                    metadata: Some(metadata),
                }),
                OpenedPath::Directory => Ok(directory(path)),
                OpenedPath::Missing => Ok(MISSING),
                OpenedPath::Denied(Denial::Special) => Ok(FileEntry {
                    kind: FileKind::Other,
                    metadata: std::fs::metadata(path).ok(),
                }),
                OpenedPath::Denied(_) => Err(UnknownEntry::Denied),
                OpenedPath::Failed(error) => Err(UnknownEntry::Failed(error)),
            },
        }
    }

    /// The part of a path below the document root.
    fn below<'p>(&self, path: &'p str) -> Option<&'p str> {
        let below = path.strip_prefix(&*self.site.document_root)?;
        let is_below = below.is_empty() || below.starts_with('/');
        is_below.then(|| below.trim_matches('/'))
    }
}

impl FileLookup for FileView<'_> {
    fn requested(&self) -> Option<FileKind> {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        match self.at {
            PathKind::Script(_) | PathKind::File(_) | PathKind::Hidden => Some(FileKind::File),
            PathKind::Directory => Some(FileKind::Directory),
            // A file whose name prevented its opening may exist.
            PathKind::Missing if self.is_whole && kind(name) == NameKind::Plain => {
                Some(FileKind::Missing)
            }
            _ => *self.requested.get_or_init(|| {
                let path = format!("{}{}", self.site.document_root, self.path);
                self.find(&path).map(|entry| entry.kind)
            }),
        }
    }

    fn find(&self, path: &str) -> Option<FileEntry> {
        let found = self.entry(path);
        found.map_err(|why| self.unknown.set(Some(why))).ok()
    }

    fn is_link(&self, path: &str) -> Option<bool> {
        let below = self.below(path).filter(|_| !has_parent_component(path));
        let found = match below.filter(|below| !below.is_empty()) {
            Some(below) => self.site.root.is_link(Path::new(below)),
            None => is_link(std::fs::symlink_metadata(path)),
        };
        if found.is_none() {
            self.reject();
        }
        found
    }

    fn reject(&self) {
        self.unknown.set(Some(UnknownEntry::Denied));
    }
}

const MISSING: FileEntry = FileEntry {
    kind: FileKind::Missing,
    metadata: None,
};

/// A directory that exists.
fn directory(path: &str) -> FileEntry {
    FileEntry {
        kind: FileKind::Directory,
        metadata: std::fs::metadata(path).ok(),
    }
}

fn entry_of(found: io::Result<Metadata>) -> Result<FileEntry, UnknownEntry> {
    match found {
        Ok(metadata) => Ok(FileEntry {
            kind: if metadata.is_dir() {
                FileKind::Directory
            } else if metadata.is_file() {
                FileKind::File
            } else {
                FileKind::Other
            },
            metadata: Some(metadata),
        }),
        Err(error) if is_missing(&error) => Ok(MISSING),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(UnknownEntry::Denied),
        Err(_) => Err(UnknownEntry::Failed(LookupError::Broken)),
    }
}
