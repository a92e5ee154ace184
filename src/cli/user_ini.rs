//! Which .user.ini files does a booted engine not heed?

use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

/// Those below the document root that are not in a directory from there down to the boot's script. PHP reads such files where a request begins,
/// and of what is booted that is the boot. `name` is `user_ini.filename`; where it is empty, PHP reads none anywhere.
pub(super) fn unread(root: &Path, script: &Path, name: &str) -> Vec<PathBuf> {
    if name.is_empty() {
        return Vec::new();
    }
    let walk = WalkBuilder::new(root).standard_filters(false).build();
    let mut found: Vec<PathBuf> = walk
        .flatten()
        .filter(|entry| entry.file_name() == name)
        .map(|entry| entry.into_path())
        .filter(|file| {
            file.parent()
                .is_none_or(|directory| !script.starts_with(directory))
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_on_the_way_to_the_script_is_unread() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for directory in ["public/admin/deep", "public/blog", "other"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        for file in [
            "public",
            "public/admin",
            "public/admin/deep",
            "public/blog",
            "other",
        ] {
            std::fs::write(root.join(file).join(".user.ini"), "").unwrap();
        }
        let unread = |script: &str, name: &str| -> Vec<String> {
            let public = root.join("public");
            let found = unread(&public, &root.join(script), name);
            let inside = found.iter().map(|file| file.strip_prefix(&public).unwrap());
            inside.map(|file| file.display().to_string()).collect()
        };
        assert_eq!(
            unread("public/admin/index.php", ".user.ini"),
            ["admin/deep/.user.ini", "blog/.user.ini"]
        );
        // Of a script elsewhere, its own directory counts, and nothing below the document root.
        assert_eq!(unread("other/boot.php", ".user.ini").len(), 4);
        assert!(unread("public/index.php", "").is_empty());
        assert!(unread("public/index.php", "other.ini").is_empty());
    }
}
