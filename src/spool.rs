//! Temporary files for data that is too large for memory.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::budget::{self, Reservation};

/// Where to buffer what the client of a response does not read yet.
#[derive(Debug, Clone)]
pub struct Spool {
    /// The system's directory for temporary files if not set.
    pub directory: Option<PathBuf>,
    /// Bytes per response.
    pub max: u64,
}

/// An unlinked file: freed with its last descriptor, even if this process crashes. Its bytes count
/// against the budget of all such files.
#[derive(Debug)]
pub struct TempFile {
    file: File,
    taken: Mutex<Reservation>,
}

impl TempFile {
    /// Creates the file in `directory`, or in the system's directory for temporary files.
    pub fn create(directory: Option<&Path>) -> io::Result<TempFile> {
        let file = match directory {
            Some(directory) => tempfile::tempfile_in(directory),
            None => tempfile::tempfile(),
        };
        file.map(TempFile::from)
    }

    /// Takes bytes that are about to be written from the budget.
    pub fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.try_grow(bytes) {
            true => Ok(()),
            false => Err(io::Error::new(
                ErrorKind::StorageFull,
                "temporary files have reached their limit (http.max_temp_size)",
            )),
        }
    }

    /// Empties the file.
    pub fn clear(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) =
            Reservation::none(&budget::SPOOL);
        Ok(())
    }
}

impl From<File> for TempFile {
    fn from(file: File) -> TempFile {
        TempFile {
            file,
            taken: Mutex::new(Reservation::none(&budget::SPOOL)),
        }
    }
}

impl Deref for TempFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}
