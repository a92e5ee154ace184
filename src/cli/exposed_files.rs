//! Finds files below the document root and the directories of routes that are not pages: private
//! files, which are never sent, and directories of the project that clients can read.

use std::collections::BTreeMap;

use super::root_walk::{self, ENTRIES, WalkedEntry};
use crate::app::DocumentTree;
use crate::app::site::{HiddenBy, Site};
use crate::private_files::LIBRARIES;

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

/// Sentences about all directories of a site that are served, each the problem and the fix.
/// `holds_project`: the document root is the project itself.
pub(super) fn problems(tree: &DocumentTree, holds_project: bool) -> Vec<String> {
    let mut sentences = NoPages::of_site(&tree.site, holds_project).sentences();
    for site in sites_to_walk(&tree.site, tree.routes.sites()) {
        sentences.extend(NoPages::of_route(site).sentences());
    }
    sentences
}

/// The sites of routes whose directories are not walked with another. Several rules may name one
/// directory, or one below another. A walk does not enter hidden directories.
fn sites_to_walk<'a>(main: &'a Site, of_routes: impl Iterator<Item = &'a Site>) -> Vec<&'a Site> {
    let mut sites = vec![main];
    for site in of_routes {
        let root = site.root();
        let is_walked = sites.iter().any(|other| {
            root == other.root()
                || root.starts_with(other.root()) && other.why_hidden(root, None, true).is_none()
        });
        if !is_walked {
            sites.push(site);
        }
    }
    sites.split_off(1)
}

/// Files below a directory that are not pages.
struct NoPages {
    /// The directory, for sentences.
    place: String,
    /// The better place for private files, for sentences.
    better: &'static str,
    /// Never sent, by class.
    hidden: BTreeMap<&'static str, Vec<String>>,
    /// Directories of the project with files that clients can request.
    open: Vec<&'static str>,
    /// Whether all files were examined.
    is_complete: bool,
}

impl NoPages {
    fn of_site(site: &Site, holds_project: bool) -> NoPages {
        let place = "the document root".to_owned();
        let better = "elsewhere, for example next to a public/ directory (site.root)";
        let mut found = NoPages::below(site, place, better, ENTRIES);
        if holds_project {
            let parts = PARTS.into_iter();
            found.open = parts
                .filter(|name| site.root().join(name).is_dir())
                .collect();
        }
        found
    }

    /// Those below the directory of a `[[route]]`.
    fn of_route(site: &Site) -> NoPages {
        let place = format!("the directory {} of a [[route]]", site.root().display());
        NoPages::below(site, place, "elsewhere", ENTRIES)
    }

    fn below(site: &Site, place: String, better: &'static str, max: usize) -> NoPages {
        let mut hidden: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        // Directories that cannot be read cannot be served either.
        let is_complete =
            root_walk::walk(site.root(), max, |entry| match why_hidden(site, entry) {
                Some(HiddenBy::Class(class)) => {
                    let relative = entry.path.strip_prefix(site.root()).unwrap_or(entry.path);
                    let slash = if entry.is_directory { "/" } else { "" };
                    let names = hidden.entry(class.name).or_default();
                    names.push(format!("{}{slash}", relative.display()));
                    false
                }
                // The user has configured it.
                Some(HiddenBy::Setting) => false,
                // The settings say which links are followed (site.symlinks).
                None => entry.is_directory && (!entry.is_linked || site.enters(entry.path)),
            });
        hidden.values_mut().for_each(|names| names.sort());
        NoPages {
            place,
            better,
            hidden,
            open: Vec::new(),
            is_complete,
        }
    }

    fn sentences(&self) -> Vec<String> {
        let (place, better) = (&self.place, self.better);
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
                "{place} has private files, which get 404: {}; move them {better}, or publish them \
                 with site.hidden = [\"!/name\"]",
                classes.join("; ")
            ));
        }
        if !self.is_complete {
            sentences.push(format!(
                "{place} has more than {ENTRIES} files; private files among the rest are not listed"
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

fn why_hidden(site: &Site, entry: &WalkedEntry<'_>) -> Option<HiddenBy> {
    let real = match entry.is_linked {
        true => entry.path.canonicalize().ok(),
        false => None,
    };
    site.why_hidden(entry.path, real.as_deref(), entry.is_directory)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;
    use crate::app::site::{Settings, Symlinks};

    fn below(root: &Path, symlinks: Symlinks, max: usize) -> NoPages {
        let settings = Settings {
            symlinks,
            hidden: vec!["/internal/".to_owned()],
            ..Settings::default()
        };
        let site = Site::open(root, &settings, None).unwrap();
        NoPages::below(&site, "the root".to_owned(), "elsewhere", max)
    }

    #[test]
    fn private_files_behind_links_that_the_server_follows_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let (root, other) = (dir.path().join("root"), dir.path().join("other"));
        for directory in [
            &root.join("internal"),
            &root.join("deep"),
            &other.join("in"),
        ] {
            std::fs::create_dir_all(directory).unwrap();
        }
        for file in [
            root.join("index.php"),
            root.join("deep/own.sql"),
            root.join("internal/a.sql"),
            other.join("in/linked.sql"),
            other.join("page.txt"),
        ] {
            std::fs::write(file, "").unwrap();
        }
        symlink(&other, root.join("storage")).unwrap();
        symlink(dir.path(), root.join("above")).unwrap();
        symlink(".", root.join("again")).unwrap();
        let names = |symlinks| {
            let found = below(&root, symlinks, ENTRIES);
            assert!(found.is_complete);
            found.hidden.into_values().flatten().collect::<Vec<_>>()
        };
        let all = ["deep/own.sql", "storage/in/linked.sql"];
        assert_eq!(names(Symlinks::Follow), all);
        assert_eq!(names(Symlinks::Owner), all);
        assert_eq!(names(Symlinks::Inside), all[..1]);
    }

    #[test]
    fn directory_of_a_route_below_another_is_not_walked_again() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["public", "public/assets", "public/internal", "other/deep"];
        for name in names {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let open = |name: &str| {
            let settings = Settings {
                root: Some(name.into()),
                hidden: vec!["/internal/".to_owned()],
                ..Settings::default()
            };
            Site::open(dir.path(), &settings, None).unwrap()
        };
        let main = open("public");
        let names = [
            "public",
            "public/assets",
            "public/internal",
            "other",
            "other/deep",
            "other",
        ];
        let of_routes = names.map(open);
        let sites = sites_to_walk(&main, of_routes.iter());
        let walked: Vec<_> = sites.iter().map(|site| site.root()).collect();
        assert_eq!(walked, [of_routes[2].root(), of_routes[3].root()]);
    }

    #[test]
    fn too_many_files_are_said() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..9 {
            std::fs::write(dir.path().join(format!("{n}.sql")), "").unwrap();
        }
        let all = below(dir.path(), Symlinks::Owner, 9);
        assert_eq!((all.sentences().len(), all.is_complete), (1, true));
        let some = below(dir.path(), Symlinks::Owner, 8);
        let said = some.sentences();
        assert!(said[0].contains(" and 3 more)"), "{said:?}");
        assert!(said[1].ends_with("private files among the rest are not listed"));
    }
}
