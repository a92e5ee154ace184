//! Finds files below the document root that are not pages: private files, which are never sent, and
//! directories of the project that clients can read.

use std::collections::BTreeMap;

use crate::app::site::{HiddenBy, Site};
use crate::private_files::LIBRARIES;

/// The limit of examined entries, so that `surus check` answers at once.
const ENTRIES: usize = 100_000;

/// How many names of each class are printed; the rest is counted.
const NAMED: usize = 5;

/// Directories of a project that hold no pages, as frameworks name them.
const PARTS: [&str; 11] = [
    "app",
    "bin",
    "config",
    "database",
    "migrations",
    "src",
    "storage",
    "templates",
    "tests",
    "translations",
    "var",
];

/// Files below a document root that are not pages.
#[derive(Default)]
pub(super) struct NoPages {
    /// Never sent, by class.
    hidden: BTreeMap<&'static str, Vec<String>>,
    /// Directories of the project with files that clients can request.
    open: Vec<&'static str>,
}

impl NoPages {
    pub(super) fn find(site: &Site, holds_project: bool) -> NoPages {
        let mut found = NoPages::default();
        let root = site.root();
        let mut left = ENTRIES;
        let mut directories = vec![root.to_path_buf()];
        while let Some(directory) = directories.pop() {
            // Directories that cannot be read cannot be served either.
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            for entry in entries.take(left) {
                left -= 1;
                let path = entry.path();
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                match site.why_hidden(&path, is_directory) {
                    Some(HiddenBy::Class(class)) => {
                        let relative = path.strip_prefix(root).unwrap_or(&path);
                        let slash = if is_directory { "/" } else { "" };
                        let names = found.hidden.entry(class.name).or_default();
                        names.push(format!("{}{slash}", relative.display()));
                    }
                    // The user has configured it.
                    Some(HiddenBy::Setting) => {}
                    None if is_directory => directories.push(path),
                    None => {}
                }
            }
        }
        found.hidden.values_mut().for_each(|names| names.sort());
        if holds_project {
            let parts = PARTS.into_iter();
            found.open = parts.filter(|name| root.join(name).is_dir()).collect();
        }
        found
    }

    /// One sentence for each finding: the problem, and the fix.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        if !self.hidden.is_empty() {
            let classes = self.hidden.iter().map(|(class, names)| {
                let named = names[..names.len().min(NAMED)].join(", ");
                let class = match *class == LIBRARIES.name {
                    true => {
                        "libraries without their style sheets, browser scripts, fonts and media"
                    }
                    false => class,
                };
                match names.len().saturating_sub(NAMED) {
                    0 => format!("{class} ({named})"),
                    more => format!("{class} ({named} and {more} more)"),
                }
            });
            let classes: Vec<_> = classes.collect();
            sentences.push(format!(
                "the document root has private files, which get 404: {}; move them elsewhere, for \
                 example next to a public/ directory (site.root), or publish them with site.hidden \
                 = [\"!/name\"]",
                classes.join("; ")
            ));
        }
        if !self.open.is_empty() {
            sentences.push(format!(
                "the document root is the project itself, and clients can read files in {}/; move \
                 public files into public/, name their directory in site.root, or hide these with \
                 site.hidden",
                self.open.join("/, ")
            ));
        }
        sentences
    }
}
