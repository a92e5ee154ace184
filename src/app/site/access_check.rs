//! Whether PHP's user may read a file, where the front is another user: what PHP may not read,
//! nobody gets from Surus.
//!
//! The [`Opener`] decides it, by opening the file. That takes some ten microseconds, so its yes is
//! believed for a second, of the same file with the same rights. What is missed for so long is that
//! a directory on the way has been closed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use surus_sys::openat2::Access;

use super::document_root::{Denial, Opened};
use super::file_opener::Opener;
use super::lookup_cache::Recent;

/// One of the opener's directories.
#[derive(Debug)]
pub struct Reader {
    opener: Arc<Opener>,
    tree: u16,
    /// By path: files that it has been allowed to read.
    seen: Recent<Identity>,
}

/// What is another one for another file, and when its rights change.
type Identity = (u64, u64, i64, i64, u32, u32, u32);

fn identity(of: &Metadata) -> Identity {
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

impl Reader {
    pub fn new(opener: Arc<Opener>, tree: u16) -> Reader {
        Reader {
            opener,
            tree,
            seen: Recent::new(),
        }
    }

    /// Has it just been allowed to read this?
    pub(super) fn has_read(&self, path: &Path, metadata: &Metadata) -> bool {
        let seen = self.seen.get(name(path), Instant::now());
        seen == Some(identity(metadata))
    }

    /// What PHP's user gets at a path.
    pub(super) fn open(&self, path: &Path, access: Access) -> Opened {
        let opened = self.opener.open(self.tree, path, access);
        if let (Access::Read, Opened::Regular { metadata, .. }) = (access, &opened) {
            self.seen
                .put(name(path), identity(metadata), Instant::now());
        }
        opened
    }

    /// Where an absolute path really is, if that is below a directory that is served.
    pub(super) fn resolve(&self, path: &Path) -> Result<PathBuf, Option<Denial>> {
        self.opener.resolve(path)
    }
}

fn name(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}
