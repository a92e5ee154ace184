//! Hides the configuration file, which may contain passwords, under every name.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::FoundFile;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConfigGuard {
    /// Without symbolic links.
    path: PathBuf,
    /// Device and inode, because the file may have other names.
    id: (u64, u64),
}

impl ConfigGuard {
    /// None if the file no longer exists.
    pub(super) fn new(file: &Path) -> Option<ConfigGuard> {
        let path = file.canonicalize().ok()?;
        let metadata = path.metadata().ok()?;
        Some(ConfigGuard {
            path,
            id: (metadata.dev(), metadata.ino()),
        })
    }

    /// Whether `metadata` belongs to the configuration file.
    pub(super) fn is_file(&self, metadata: &std::fs::Metadata) -> bool {
        (metadata.dev(), metadata.ino()) == self.id
    }

    /// Whether this is the configuration file, its replacement, or an editor's copy (`surus.toml~`,
    /// `surus.toml.bak`).
    pub(super) fn is(&self, found: &FoundFile) -> bool {
        let name = found.path.as_os_str().as_bytes();
        let id = (found.metadata.dev(), found.metadata.ino());
        id == self.id || name.starts_with(self.path.as_os_str().as_bytes())
    }
}
