//! Temporary files for what is too large to wait in memory.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::budget::{self, Taken};

/// Where what a response's client does not take yet may wait.
#[derive(Debug, Clone)]
pub struct Spool {
    /// The system's directory for temporary files when not set.
    pub directory: Option<PathBuf>,
    /// Bytes of one response.
    pub max: u64,
}

/// A file without a name: gone with its last descriptor, whatever happens to us. Its bytes count
/// against the budget of all such files.
#[derive(Debug)]
pub struct TempFile {
    file: File,
    taken: Mutex<Taken>,
}

impl TempFile {
    /// In the system's directory for temporary files, if no other is given.
    pub fn create(directory: Option<&Path>) -> io::Result<TempFile> {
        let file = match directory {
            Some(directory) => tempfile::tempfile_in(directory),
            None => tempfile::tempfile(),
        };
        file.map(TempFile::from)
    }

    /// Takes room for bytes that are about to be written.
    pub fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.try_grow(bytes) {
            true => Ok(()),
            false => Err(io::Error::new(
                ErrorKind::StorageFull,
                "the temporary files take all of http.max_spool",
            )),
        }
    }

    /// Makes the file empty.
    pub fn clear(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = Taken::none(&budget::SPOOL);
        Ok(())
    }
}

impl From<File> for TempFile {
    fn from(file: File) -> TempFile {
        TempFile {
            file,
            taken: Mutex::new(Taken::none(&budget::SPOOL)),
        }
    }
}

impl Deref for TempFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}
