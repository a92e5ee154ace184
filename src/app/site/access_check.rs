//! Checks whether PHP's user may read a file, if the front end runs as another user. Surus must not
//! serve files that PHP's user cannot read.
//!
//! The [`Opener`] decides it by opening the file, which takes some ten microseconds. Its permission
//! is therefore kept for a second, for the same file with unchanged rights. During that second
//! Surus does not notice that a directory on the path has been closed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use surus_sys::openat2::Access;

use super::file_opener::Opener;
use super::lookup_cache::Recent;
use super::opened::{Denial, OpenedPath};

/// The access check of one of the opener's directories.
#[derive(Debug)]
pub struct AccessCheck {
    opener: Arc<Opener>,
    tree: u16,
    /// Files that PHP's user may read, by path.
    seen: Recent<FileIdentity>,
}

/// Changes if the file is replaced or its permissions change.
type FileIdentity = (u64, u64, i64, i64, u32, u32, u32);

fn identity(of: &Metadata) -> FileIdentity {
    let changed = (of.ctime(), of.ctime_nsec());
    let (owner, group) = (of.uid(), of.gid());
    (
        of.dev(),
        of.ino(),
        changed.0,
        changed.1,
        of.mode(),
        owner,
        group,
    )
}

impl AccessCheck {
    pub fn new(opener: Arc<Opener>, tree: u16) -> AccessCheck {
        AccessCheck {
            opener,
            tree,
            seen: Recent::new(),
        }
    }

    /// Whether PHP's user was allowed to read this file recently.
    pub(super) fn has_read(&self, path: &Path, metadata: &Metadata) -> bool {
        let seen = self.seen.get(name(path), Instant::now());
        seen == Some(identity(metadata))
    }

    /// What PHP's user finds at a path.
    pub(super) fn open(&self, path: &Path, access: Access) -> OpenedPath {
        let opened = self.opener.open(self.tree, path, access);
        if let (Access::Read, OpenedPath::Regular { metadata, .. }) = (access, &opened) {
            self.seen
                .put(name(path), identity(metadata), Instant::now());
        }
        opened
    }

    /// Whether PHP's user finds a symbolic link at a path. None if that is unknown.
    pub(super) fn is_link(&self, path: &Path) -> Option<bool> {
        self.opener.is_link(self.tree, path)
    }

    /// The real path of an absolute path, if it is below a served directory.
    pub(super) fn resolve(&self, path: &Path) -> Result<PathBuf, Option<Denial>> {
        self.opener.resolve(path)
    }
}

fn name(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}
