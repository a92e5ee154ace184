//! Collects and prints what a package leaves out, by reason.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// How many names of each reason are printed; the rest is counted.
const NAMED: usize = 5;

/// What a package leaves out, by reason. A directory stands for its content and ends in a slash.
#[derive(Debug, Default)]
pub struct LeftOut(BTreeMap<&'static str, Vec<String>>);

impl LeftOut {
    pub fn note(&mut self, reason: &'static str, path: &Path, is_directory: bool) {
        let slash = if is_directory { "/" } else { "" };
        let name = format!("{}{slash}", path.display());
        self.0.entry(reason).or_default().push(name);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "left out:")?;
        for (reason, names) in &self.0 {
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
        let example = self.0.values().flatten().min();
        let example = example.map_or("name", String::as_str);
        write!(
            f,
            "a line with `!` in .surusignore packages one of them: !/{example}"
        )
    }
}
