//! The files of a site as the conditions of `.htaccess` see them.

use std::cell::OnceCell;
use std::fs::Metadata;
use std::path::Path;

use surus_sys::openat2::Access;

use super::htaccess::condition::{FileKind, FileLookup};
use super::normalize::{NameKind, kind};
use super::opened::{Denial, OpenedPath};
use super::{FoundFile, LookupError, Site};
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
    requested: OnceCell<FileKind>,
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
        }
    }

    fn entry(&self, path: &str) -> Option<Metadata> {
        if has_parent_component(path) {
            return None;
        }
        let below = path.strip_prefix(&*self.site.document_root);
        let below = below.filter(|below| below.is_empty() || below.starts_with('/'));
        match below.map(|below| below.trim_matches('/')) {
            None | Some("") => std::fs::metadata(path).ok(),
            Some(below) => match self.site.root.get(Path::new(below), Access::Metadata) {
                OpenedPath::Regular { metadata, .. } => Some(metadata),
                // A symbolic link that may not be followed has no target.
                OpenedPath::Directory => std::fs::metadata(path).ok(),
                _ => None,
            },
        }
    }
}

impl FileLookup for FileView<'_> {
    fn requested(&self) -> FileKind {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        match self.at {
            PathKind::Script(_) | PathKind::File(_) | PathKind::Hidden => FileKind::File,
            PathKind::Directory => FileKind::Directory,
            // A file whose name prevented its opening may exist.
            PathKind::Missing if self.is_whole && kind(name) == NameKind::Plain => {
                FileKind::Missing
            }
            _ => *self
                .requested
                .get_or_init(|| self.kind(&format!("{}{}", self.site.document_root, self.path))),
        }
    }

    fn kind(&self, path: &str) -> FileKind {
        match self.entry(path) {
            Some(found) if found.is_dir() => FileKind::Directory,
            Some(found) if found.is_file() => FileKind::File,
            _ => FileKind::Missing,
        }
    }

    fn metadata(&self, path: &str) -> Option<Metadata> {
        self.entry(path)
    }

    fn is_link(&self, path: &str) -> bool {
        !has_parent_component(path)
            && std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
    }
}

/// Whether the path contains `..`, which a client could use to reach any file.
fn has_parent_component(path: &str) -> bool {
    path.split('/').any(|name| name == "..")
}
