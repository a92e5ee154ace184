//! The configuration that was read, which may hold passwords: it is sent under no name, wherever it
//! lies.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Found;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Secret {
    /// Without symbolic links.
    path: PathBuf,
    /// Device and inode: it may have other names.
    id: (u64, u64),
}

impl Secret {
    /// None when there is no such file any more.
    pub(super) fn of(file: &Path) -> Option<Secret> {
        let path = file.canonicalize().ok()?;
        let metadata = path.metadata().ok()?;
        Some(Secret {
            path,
            id: (metadata.dev(), metadata.ino()),
        })
    }

    /// Is it this file?
    pub(super) fn is_file(&self, metadata: &std::fs::Metadata) -> bool {
        (metadata.dev(), metadata.ino()) == self.id
    }

    /// Is it this file, one that has taken its place since, or a copy as editors leave it
    /// (`surus.toml~`, `surus.toml.bak`)?
    pub(super) fn is(&self, found: &Found) -> bool {
        let name = found.path.as_os_str().as_bytes();
        let id = (found.metadata.dev(), found.metadata.ino());
        id == self.id || name.starts_with(self.path.as_os_str().as_bytes())
    }
}
