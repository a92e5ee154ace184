//! Walks the files below a document root, through links as the server follows them.

use std::collections::{HashSet, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The limit of examined entries, so that a walk ends soon.
pub(super) const ENTRIES: usize = 100_000;

/// An entry of a directory.
pub(super) struct WalkedEntry<'a> {
    pub path: &'a Path,
    /// Whether it is a directory, or a link to one.
    pub is_directory: bool,
    /// Whether it is a link, or was found through one.
    pub is_linked: bool,
}

/// Calls `enters` for each entry below a directory, and walks the directories for which it returns
/// true. Links come last, so that a file is named by its real path. A directory to which several
/// links lead is walked once, so that all links together have an end. A link to a directory above
/// the root is not followed, because it leads to all of this again, and to what is not part of it.
///
/// False: there are more than `max` entries.
pub(super) fn walk(
    root: &Path,
    max: usize,
    mut enters: impl FnMut(&WalkedEntry<'_>) -> bool,
) -> bool {
    let mut left = max;
    let mut seen = HashSet::new();
    let mut directories = VecDeque::from([(root.to_path_buf(), false)]);
    while let Some((directory, is_linked)) = directories.pop_back() {
        let Ok(about) = directory.metadata() else {
            continue;
        };
        if !about.is_dir() || !seen.insert((about.dev(), about.ino())) {
            continue;
        }
        let entries = std::fs::read_dir(&directory).into_iter().flatten();
        for entry in entries.flatten() {
            if left == 0 {
                return false;
            }
            left -= 1;
            let path = entry.path();
            let kind = entry.file_type();
            let is_link = kind.as_ref().is_ok_and(|kind| kind.is_symlink());
            let is_directory = match is_link {
                true => path.is_dir(),
                false => kind.is_ok_and(|kind| kind.is_dir()),
            };
            let is_linked = is_linked || is_link;
            let is_entered = enters(&WalkedEntry {
                path: &path,
                is_directory,
                is_linked,
            });
            if !is_entered || !is_directory || is_link && leads_above(root, &path) {
                continue;
            }
            match is_link {
                true => directories.push_front((path, is_linked)),
                false => directories.push_back((path, is_linked)),
            }
        }
    }
    true
}

fn leads_above(root: &Path, link: &Path) -> bool {
    let real = link.canonicalize();
    real.is_ok_and(|real| root.starts_with(real))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_that_fan_out_are_followed_once_and_entries_are_limited() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for n in 0..30 {
            let directory = root.join(format!("d{n}"));
            std::fs::create_dir(&directory).unwrap();
            for name in ["a", "b"] {
                symlink(format!("../d{}", n + 1), directory.join(name)).unwrap();
            }
        }
        std::fs::create_dir(root.join("d30")).unwrap();
        std::fs::write(root.join("d30/file"), "").unwrap();
        let mut found = 0;
        let is_complete = walk(root, ENTRIES, |entry| {
            found += usize::from(entry.path.ends_with("file"));
            true
        });
        assert_eq!((found, is_complete), (1, true));
        assert!(!walk(root, 50, |_| true));
    }

    #[test]
    fn entries_behind_links_are_marked_and_directories_above_are_not_walked() {
        let dir = tempfile::tempdir().unwrap();
        let (root, other) = (dir.path().join("root"), dir.path().join("other"));
        std::fs::create_dir_all(root.join("own")).unwrap();
        std::fs::create_dir_all(other.join("deep")).unwrap();
        std::fs::create_dir_all(other.join("left")).unwrap();
        for file in [
            root.join("own/a"),
            other.join("deep/b"),
            other.join("left/c"),
        ] {
            std::fs::write(file, "").unwrap();
        }
        symlink(&other, root.join("linked")).unwrap();
        symlink("own", root.join("again")).unwrap();
        symlink(dir.path(), root.join("above")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        let mut found = Vec::new();
        assert!(walk(&root, ENTRIES, |entry| {
            let path = entry.path.strip_prefix(&root).unwrap();
            let name = path.to_str().unwrap().to_owned();
            found.push((name, entry.is_directory, entry.is_linked));
            !entry.path.ends_with("left")
        }));
        found.sort();
        let expected = [
            ("above", true, true),
            ("again", true, true),
            ("dangling", false, true),
            ("linked", true, true),
            ("linked/deep", true, true),
            ("linked/deep/b", false, true),
            ("linked/left", true, true),
            ("own", true, false),
            ("own/a", false, false),
        ];
        let expected = expected.map(|(name, directory, link)| (name.to_owned(), directory, link));
        assert_eq!(found, expected);
    }
}
