//! PHP code that waits until a test creates a file.
#![allow(dead_code)]

use std::path::Path;

/// PHP code that runs until the file exists.
pub fn until_there(file: &Path) -> String {
    format!(
        "while (!file_exists('{}')) {{ usleep(5000); }}",
        file.display()
    )
}
