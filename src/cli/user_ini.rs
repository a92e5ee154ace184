//! Finds the .user.ini files that a booted engine does not read, and the settings of the others.

use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use surus_sys::regular_file;

use super::engine_setup::{self, PoolConfig};

/// The files below the document root that are not on the path from there to the booted script. PHP
/// reads such files at the start of a request; in a booted engine that is the boot. `name` is
/// `user_ini.filename`; if it is empty, PHP reads no such file.
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

/// The value of `setting` in the files from the document root to the booted script, if any. The
/// last one counts, as in PHP.
pub(super) fn value(root: &Path, script: &Path, name: &str, setting: &str) -> Option<String> {
    const LARGEST: u64 = 1 << 20;
    if name.is_empty() {
        return None;
    }
    let directory = script.parent()?;
    let directories: Vec<&Path> = match directory.starts_with(root) {
        true => directory
            .ancestors()
            .take_while(|directory| directory.starts_with(root))
            .collect(),
        false => vec![directory],
    };
    // From the script upwards: the first file that has the setting counts.
    directories.iter().find_map(|directory| {
        let text = regular_file::read(&directory.join(name), LARGEST).ok()?;
        let text = String::from_utf8_lossy(&text);
        let mut values = text.lines().filter_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == setting).then(|| bare(value).to_string())
        });
        values.next_back()
    })
}

/// What `.user.ini` in the document root names to be run around each request, if the pool's PHP
/// does not read it: command-line PHP, which runs workers of RoadRunner.
pub(super) fn unrun(project: &Path, pool: &PoolConfig, name: &str) -> Vec<(&'static str, String)> {
    if pool.entry.runs_scripts() {
        return Vec::new();
    }
    let Ok(site) = engine_setup::open_site(project, &pool.config) else {
        return Vec::new();
    };
    let value = |setting| {
        let value = value(site.root(), &site.root().join("index.php"), name, setting)?;
        (!value.is_empty()).then_some((setting, value))
    };
    let settings = ["auto_prepend_file", "auto_append_file"].into_iter();
    settings.filter_map(value).collect()
}

/// A value without quotes and comment; PHP writes an empty one as `none`.
fn bare(value: &str) -> &str {
    let value = value.trim();
    let quoted = ['"', '\''].iter().find_map(|quote| {
        let rest = value.strip_prefix(*quote)?;
        rest.split(*quote).next()
    });
    let value = quoted.unwrap_or_else(|| value.split(';').next().unwrap_or("").trim());
    match value.eq_ignore_ascii_case("none") {
        true => "",
        false => value,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nearest_user_ini_value_applies() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("app")).unwrap();
        let set = |directory: &str, text: &str| {
            std::fs::write(root.join(directory).join(".user.ini"), text).unwrap();
        };
        let value =
            |script: &str, name: &str| value(root, &root.join(script), name, "auto_prepend_file");
        assert_eq!(value("index.php", ".user.ini"), None);
        set(
            "",
            "; auto_prepend_file = no.php\n auto_prepend_file='a b.php' ; so\n",
        );
        assert_eq!(value("app/index.php", ".user.ini").unwrap(), "a b.php");
        assert_eq!(value("app/index.php", ""), None);
        set(
            "app",
            "auto_prepend_file = first.php\nauto_prepend_file = waf.php ; so\n",
        );
        assert_eq!(value("app/index.php", ".user.ini").unwrap(), "waf.php");
        assert_eq!(value("index.php", ".user.ini").unwrap(), "a b.php");
        set("app", "auto_prepend_file = none");
        assert_eq!(value("app/index.php", ".user.ini").unwrap(), "");
    }

    #[test]
    fn user_ini_files_off_the_path_to_the_script_are_not_read() {
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
        // For a script outside the document root only its own directory counts.
        assert_eq!(unread("other/boot.php", ".user.ini").len(), 4);
        assert!(unread("public/index.php", "").is_empty());
        assert!(unread("public/index.php", "other.ini").is_empty());
    }
}
