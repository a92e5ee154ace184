//! Finds the .user.ini files that a booted engine does not read, and the settings of the others.

use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use surus_sys::regular_file;

use super::engine_setup::{self, PoolConfig};

/// The directories whose files a booted engine reads; the first that has a setting counts. If the
/// script is outside the document root, those of a request for `index.php` count before its own
/// (`sapi/app/boot.c`).
fn read_for<'a>(root: &'a Path, script: &'a Path) -> Vec<&'a Path> {
    let Some(directory) = script.parent() else {
        return Vec::new();
    };
    match directory.starts_with(root) {
        true => directory
            .ancestors()
            .take_while(|directory| directory.starts_with(root))
            .collect(),
        false => vec![root, directory],
    }
}

/// The files below the document root that are not on the path from there to the booted script. PHP
/// reads such files at the start of a request; in a booted engine that is the boot. `name` is
/// `user_ini.filename`; if it is empty, PHP reads no such file.
pub(super) fn unread(root: &Path, script: &Path, name: &str) -> Vec<PathBuf> {
    if name.is_empty() {
        return Vec::new();
    }
    let directories = read_for(root, script);
    let walk = WalkBuilder::new(root).standard_filters(false).build();
    let mut found: Vec<PathBuf> = walk
        .flatten()
        .filter(|entry| entry.file_name() == name)
        .map(|entry| entry.into_path())
        .filter(|file| {
            file.parent()
                .is_none_or(|directory| !directories.contains(&directory))
        })
        .collect();
    found.sort();
    found
}

/// The value of `setting` in the files that a booted engine reads, if any.
pub(super) fn value(root: &Path, script: &Path, name: &str, setting: &str) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    let mut directories = read_for(root, script).into_iter();
    directories.find_map(|directory| value_in(&directory.join(name), setting))
}

/// The value of `setting` in this file. The last one counts, as in PHP.
fn value_in(file: &Path, setting: &str) -> Option<String> {
    const LARGEST: u64 = 1 << 20;
    let text = regular_file::read(file, LARGEST).ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut values = text.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == setting).then(|| bare(value).to_string())
    });
    values.next_back()
}

/// The settings of files that PHP runs around each request.
const AUTO_FILES: [&str; 2] = ["auto_prepend_file", "auto_append_file"];

/// The settings of these that this file has, with their values.
pub(super) fn auto_files(file: &Path) -> Vec<String> {
    let set = |setting| {
        let value = value_in(file, setting).filter(|value| !value.is_empty())?;
        Some(format!("{setting} ({value})"))
    };
    AUTO_FILES.into_iter().filter_map(set).collect()
}

/// The files that `.user.ini` in the document root names for each request, if the pool's PHP does
/// not read it: command-line PHP, which runs workers of RoadRunner.
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
    AUTO_FILES.into_iter().filter_map(value).collect()
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
        let outside = value("../boot.php", ".user.ini");
        assert_eq!(outside.unwrap(), "a b.php");
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
        // For a script outside the document root, the root's own file counts.
        assert_eq!(unread("other/boot.php", ".user.ini").len(), 3);
        assert!(unread("public/index.php", "").is_empty());
        assert!(unread("public/index.php", "other.ini").is_empty());
    }
}
