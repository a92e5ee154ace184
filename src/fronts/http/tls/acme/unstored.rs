//! Files of the state directory that could not be written. They are held in memory, and used from
//! there, until they can be.
//!
//! The owner of the directory has descriptors of them only. The keeper must not read keys, so that
//! it reads them in a process of their own (`read_apart` in `src/cli/tls.rs`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// By the path that the file has once it is stored.
#[derive(Debug, Default)]
pub struct Unstored(Mutex<BTreeMap<PathBuf, UnstoredFile>>);

#[derive(Debug, Clone)]
pub(super) struct UnstoredFile {
    /// The state directory.
    pub directory: PathBuf,
    /// In memory.
    pub content: Arc<File>,
    /// The error of the last try to write it.
    pub why: String,
}

impl Unstored {
    /// The descriptors, for a process that reads the files.
    pub fn contents(&self) -> Vec<Arc<File>> {
        let files = self.lock();
        files.values().map(|file| file.content.clone()).collect()
    }

    pub(super) fn all(&self) -> Vec<(PathBuf, UnstoredFile)> {
        let files = self.lock();
        let copy = |(path, file): (&PathBuf, &UnstoredFile)| (path.clone(), file.clone());
        files.iter().map(copy).collect()
    }

    pub(super) fn get(&self, path: &Path) -> Option<UnstoredFile> {
        self.lock().get(path).cloned()
    }

    /// Holds a file instead of the one that was held for the path before.
    pub(super) fn hold(&self, path: &Path, file: UnstoredFile) {
        self.lock().insert(path.to_path_buf(), file);
    }

    /// Returns whether a file was held for the path.
    pub(super) fn release(&self, path: &Path) -> bool {
        self.lock().remove(path).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, UnstoredFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnstoredFile {
    /// Reads the file, and leaves the position of the descriptor, which other processes share.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.content.metadata()?.len()).map_err(io::Error::other)?;
        let mut bytes = vec![0; len];
        self.content.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}
