//! Protocol between the opener and the front end: the kinds of request, and the paths that the
//! front end may name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use crate::app::site::normalize::{NameKind, kind};

/// The longest path (`PATH_MAX`).
pub const MAX_PATH: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Read,
    Look,
    /// The real path of an absolute path.
    Resolve,
    /// Whether a symbolic link is at the path.
    Link,
}

/// Whether the path consists of names only, without `.` and `..`.
pub fn is_below(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let are_names = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    // `components` ignores the difference between `a/b`, `a/./b` and `a//b`.
    let is_plain = bytes
        .split(|byte| *byte == b'/')
        .all(|name| !matches!(name, b"" | b"." | b".."));
    are_names && is_plain && !bytes.contains(&0)
}

/// Whether no component is hidden, except files that the front end reads, and the file is not PHP
/// source.
pub fn may_be_sent(path: &Path, operation: Operation) -> bool {
    let hidden = path.iter().filter(|name| name.as_bytes().starts_with(b"."));
    let last = path.file_name().unwrap_or_default();
    let mut seen = hidden.filter(|name| *name != OsStr::new(".well-known"));
    let is_shown = match seen.next() {
        None => true,
        Some(name) => name == last && last == OsStr::new(".htaccess") && seen.next().is_none(),
    };
    is_shown && (operation != Operation::Read || kind(&last.to_string_lossy()) == NameKind::Plain)
}
