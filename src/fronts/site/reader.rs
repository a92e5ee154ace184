//! Whether PHP's user may read a file, where we are root and it is not: what it may not read, nobody gets to see through us.
//!
//! The kernel decides it, by opening the file once more as that user: nobody else knows all of modes, access lists and security modules.
//! That takes microseconds, in which it makes six new credentials for the thread, so its yes is believed for a second, of the same file
//! with the same rights. What is missed for so long is that a directory on the way has been closed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use surus_sys::rights::Rights;

use super::recent::Recent;

#[derive(Debug)]
pub(super) struct Reader {
    pub(super) rights: Arc<Rights>,
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
    pub(super) fn new(rights: Arc<Rights>) -> Reader {
        Reader {
            rights,
            seen: Recent::new(),
        }
    }

    /// Has it just been allowed to read this?
    pub(super) fn has_read(&self, path: &Path, metadata: &Metadata) -> bool {
        let seen = self.seen.get(name(path), Instant::now());
        seen == Some(identity(metadata))
    }

    pub(super) fn reads(&self, path: &Path, metadata: &Metadata) {
        self.seen
            .put(name(path), identity(metadata), Instant::now());
    }
}

fn name(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}
