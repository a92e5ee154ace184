//! Walks the files below a document root, through links as the server follows them.

use std::collections::{HashSet, VecDeque};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

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
pub(super) fn walk(root: &Path, max: usize, enters: impl FnMut(&WalkedEntry<'_>) -> bool) -> bool {
    walk_until(root, max, None, enters).stopped_by.is_none()
}

/// What a walk has left out.
pub(super) struct WalkEnd {
    /// None: all entries were examined.
    pub stopped_by: Option<WalkLimit>,
    /// Directories, and links to anything, that this process has no access to.
    pub unreadable: Vec<PathBuf>,
}

/// The limit that ended a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkLimit {
    Entries,
    Time,
}

/// Walks like `walk`, but not beyond `deadline`, and says what it has left out.
pub(super) fn walk_until(
    root: &Path,
    max: usize,
    deadline: Option<Instant>,
    mut enters: impl FnMut(&WalkedEntry<'_>) -> bool,
) -> WalkEnd {
    let is_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    let mut left = max;
    let mut unreadable = Vec::new();
    let mut seen = HashSet::new();
    let mut directories = VecDeque::from([(root.to_path_buf(), false)]);
    while let Some((directory, is_linked)) = directories.pop_back() {
        if is_late() {
            return WalkEnd {
                stopped_by: Some(WalkLimit::Time),
                unreadable,
            };
        }
        let entries = match directory.metadata() {
            Ok(about) if !about.is_dir() || !seen.insert((about.dev(), about.ino())) => continue,
            Ok(_) => std::fs::read_dir(&directory),
            Err(error) => Err(error),
        };
        let entries = match entries {
            Ok(entries) => entries,
            // It was removed after it had been found.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(_) => {
                unreadable.push(directory);
                continue;
            }
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let kind = entry.file_type();
            let is_link = kind.as_ref().is_ok_and(|kind| kind.is_symlink());
            let is_directory = match is_link {
                true => match path.metadata() {
                    Ok(about) => about.is_dir(),
                    Err(error) => {
                        // Others lead nowhere.
                        if error.kind() == ErrorKind::PermissionDenied {
                            unreadable.push(path.clone());
                        }
                        false
                    }
                },
                false => kind.is_ok_and(|kind| kind.is_dir()),
            };
            let limit = match left {
                0 => Some(WalkLimit::Entries),
                _ => is_late().then_some(WalkLimit::Time),
            };
            if limit.is_some() {
                return WalkEnd {
                    stopped_by: limit,
                    unreadable,
                };
            }
            left -= 1;
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
    WalkEnd {
        stopped_by: None,
        unreadable,
    }
}

fn leads_above(root: &Path, link: &Path) -> bool {
    let real = link.canonicalize();
    real.is_ok_and(|real| root.starts_with(real))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

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
    fn walk_ends_at_its_limit_of_entries_and_at_its_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for directory in ["uploads", "uploads/deep", "last"] {
            std::fs::create_dir(root.join(directory)).unwrap();
            for n in 0..20 {
                std::fs::write(root.join(directory).join(n.to_string()), "").unwrap();
            }
        }
        let walked = |max, deadline| {
            let mut entries = 0;
            let end = walk_until(root, max, deadline, |_| {
                entries += 1;
                true
            });
            assert!(end.unreadable.is_empty());
            (entries, end.stopped_by)
        };
        let now = Instant::now();
        let later = now + Duration::from_secs(600);
        assert_eq!(walked(63, None), (63, None));
        assert_eq!(walked(63, Some(later)), (63, None));
        assert_eq!(walked(62, Some(later)), (62, Some(WalkLimit::Entries)));
        assert_eq!(walked(63, Some(now)), (0, Some(WalkLimit::Time)));
        // The time that a directory with many files takes counts, too.
        let deadline = Instant::now() + Duration::from_millis(300);
        let mut entries = 0;
        let end = walk_until(&root.join("last"), 63, Some(deadline), |_| {
            entries += 1;
            std::thread::sleep(Duration::from_millis(40));
            true
        });
        assert_eq!(end.stopped_by, Some(WalkLimit::Time));
        assert!(entries < 20, "{entries}");
    }

    #[test]
    fn directory_that_cannot_be_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let unreadable = |root: &Path| walk_until(root, ENTRIES, None, |_| true).unreadable;
        // Root can read all directories, but cannot use a name of this length.
        let long = dir.path().join("x".repeat(300));
        assert_eq!(unreadable(&long), std::slice::from_ref(&long));
        symlink("missing", dir.path().join("dangling")).unwrap();
        symlink("itself", dir.path().join("itself")).unwrap();
        assert!(unreadable(dir.path()).is_empty());
        assert!(unreadable(&dir.path().join("missing")).is_empty());
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
