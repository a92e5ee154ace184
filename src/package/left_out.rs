//! Collects and prints what a package leaves out, by reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// How many names of each reason are printed; the rest is counted.
const NAMED: usize = 5;

/// What a package leaves out, by reason. A directory stands for its content and ends in a slash.
#[derive(Debug, Default)]
pub struct LeftOut {
    names: BTreeMap<&'static str, Vec<String>>,
    /// Files and directories that are private, in the order of their names.
    private: BTreeSet<PathBuf>,
}

impl LeftOut {
    pub fn note(&mut self, reason: &'static str, path: &Path, is_directory: bool) {
        let slash = if is_directory { "/" } else { "" };
        let name = format!("{}{slash}", path.display());
        self.names.entry(reason).or_default().push(name);
    }

    pub fn note_private(&mut self, path: &Path) {
        self.private.insert(path.to_path_buf());
    }

    /// The private files and directories, relative to the project.
    pub fn private(&self) -> &BTreeSet<PathBuf> {
        &self.private
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "left out:")?;
        for (reason, names) in &self.names {
            let mut names: Vec<_> = names.iter().map(String::as_str).collect();
            names.sort_unstable();
            let named = names[..names.len().min(NAMED)].join(", ");
            write!(f, "  {reason}: {} ({named}", names.len())?;
            match names.len().saturating_sub(NAMED) {
                0 => writeln!(f, ")")?,
                more => writeln!(f, " and {more} more)")?,
            }
        }
        // The walk follows the file system's order; the minimum makes the example deterministic.
        let example = self.names.values().flatten().min();
        let example = example.map_or("name", String::as_str);
        write!(
            f,
            "a line with `!` in .surusignore packages one of them: !/{example}"
        )
    }
}
