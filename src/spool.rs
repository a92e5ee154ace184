//! Where that waits which is too large to wait in memory.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Where what a response's client does not take yet may wait.
#[derive(Debug, Clone)]
pub struct Spool {
    /// The system's directory for temporary files when not set.
    pub directory: Option<PathBuf>,
    /// Bytes of one response.
    pub max: u64,
}

/// A file without a name: gone with its last descriptor, whatever happens to us.
pub fn file(directory: Option<&Path>) -> io::Result<File> {
    match directory {
        Some(directory) => tempfile::tempfile_in(directory),
        None => tempfile::tempfile(),
    }
}
