//! Hides Surus's own files under every name: the configuration, which may contain passwords, and
//! its logs.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::FoundFile;
use super::settings::Settings;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SecretFiles(Vec<SecretFile>);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct SecretFile {
    /// Without symbolic links.
    path: PathBuf,
    /// Device and inode, because the file may have other names. None if it does not exist yet.
    id: Option<(u64, u64)>,
}

impl SecretFiles {
    pub(super) fn new(settings: &Settings) -> SecretFiles {
        let files = settings.configuration.iter().chain(&settings.logs);
        SecretFiles(files.filter_map(|file| SecretFile::new(file)).collect())
    }

    /// Whether `metadata` belongs to one of the files.
    pub(super) fn has(&self, metadata: &std::fs::Metadata) -> bool {
        let id = Some((metadata.dev(), metadata.ino()));
        self.0.iter().any(|file| file.id == id)
    }

    /// Whether this is one of the files, its replacement, an editor's copy (`surus.toml~`,
    /// `surus.toml.bak`), or an older log (`access.txt.1`).
    pub(super) fn is(&self, found: &FoundFile) -> bool {
        let name = found.path.as_os_str().as_bytes();
        let is = |file: &SecretFile| {
            let rest = name.strip_prefix(file.path.as_os_str().as_bytes());
            rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'.' | b'-' | b'~')))
        };
        self.has(&found.metadata) || self.0.iter().any(is)
    }
}

impl SecretFile {
    /// None if not even its directory exists.
    fn new(file: &Path) -> Option<SecretFile> {
        if let Ok(path) = file.canonicalize() {
            let metadata = path.metadata().ok()?;
            let id = Some((metadata.dev(), metadata.ino()));
            return Some(SecretFile { path, id });
        }
        let directory = file.parent()?.canonicalize().ok()?;
        let path = directory.join(file.file_name()?);
        Some(SecretFile { path, id: None })
    }
}
