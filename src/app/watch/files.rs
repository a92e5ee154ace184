//! Chooses the files to watch, and the effect that a change of each has.

use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

use super::Effect;

/// Directories that are not watched, wherever they are.
const IGNORED: [&str; 6] = [".git", ".hg", ".idea", ".svn", ".vscode", "node_modules"];

/// Directories of the project to which applications write. Elsewhere, these may be names of source
/// directories.
const WRITTEN: [&str; 14] = [
    "bootstrap/cache",
    "cache",
    "log",
    "logs",
    "storage",
    "temp",
    "tmp",
    "var",
    "wp-content/cache",
    "wp-content/upgrade",
    "wp-content/upgrade-temp-backup",
    "wp-content/uploads",
    "writable",
    "runtime",
];

/// Composer writes here whenever it changes a package, so that the packages need no watches.
const COMPOSER: &str = "vendor/composer";

/// Extensions of files that browsers load and no boot reads.
const PAGE: [&str; 21] = [
    "avif", "css", "eot", "gif", "htm", "html", "ico", "jpeg", "jpg", "js", "map", "mjs", "mp4",
    "otf", "png", "svg", "ttf", "webm", "webp", "woff", "woff2",
];

/// Ends of names of files that editors, tools and databases write next to others.
const TEMPORARY: [&str; 14] = [
    "-journal", "-shm", "-wal", ".cache", ".db", ".log", ".pid", ".sqlite", ".sqlite3", ".swo",
    ".swp", ".swx", ".tmp", "~",
];

/// The files of a project.
pub struct ProjectFiles {
    root: PathBuf,
    configuration: Option<PathBuf>,
    ignored: Vec<PathBuf>,
}

impl ProjectFiles {
    pub fn new(root: PathBuf, configuration: Option<PathBuf>, ignore: &[PathBuf]) -> ProjectFiles {
        let ignored = ignore.iter().map(|path| root.join(path)).collect();
        ProjectFiles {
            root,
            configuration,
            ignored,
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn configuration(&self) -> Option<&Path> {
        self.configuration.as_deref()
    }

    /// The effect of a change of this path; None if it does not count.
    pub fn effect(&self, path: &Path) -> Option<Effect> {
        if self.configuration() == Some(path) {
            return Some(Effect::Configuration);
        }
        let name = path.file_name()?.to_str()?;
        let is_ignored = !path.starts_with(&self.root)
            || self.ignored.iter().any(|ignored| path.starts_with(ignored))
            || TEMPORARY.iter().any(|end| name.ends_with(end))
            || name.starts_with([ '#' ])
            || name.starts_with(".#")
            || name.starts_with(".goutputstream")
            || name.contains("___jb_")
            // vim checks with this name whether it can write.
            || name == "4913";
        if is_ignored {
            return None;
        }
        let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        let extension = extension.to_ascii_lowercase();
        Some(match PAGE.contains(&&*extension) {
            true => Effect::Page,
            false => Effect::Boot,
        })
    }

    /// Whether the files of this directory count.
    pub fn is_watched(&self, directory: &Path) -> bool {
        let Ok(relative) = directory.strip_prefix(&self.root) else {
            return false;
        };
        let name = directory.file_name().unwrap_or_default();
        if self
            .ignored
            .iter()
            .any(|ignored| directory.starts_with(ignored))
            || IGNORED.iter().any(|ignored| name == *ignored)
            || WRITTEN.iter().any(|written| relative.starts_with(written))
        {
            return false;
        }
        !relative.starts_with("vendor") || relative == Path::new("vendor") || {
            relative.starts_with(COMPOSER)
        }
    }

    /// Calls `directory` for a directory and all below it that are watched, and `file` for their
    /// files that count. Stops at an error of either.
    pub fn walk<E>(
        &self,
        start: &Path,
        directory: &mut impl FnMut(&Path) -> Result<(), E>,
        file: &mut impl FnMut(&DirEntry, Effect) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut open = vec![start.to_path_buf()];
        while let Some(path) = open.pop() {
            if !self.is_watched(&path) {
                continue;
            }
            directory(&path)?;
            // It may have been removed again, or forbidden.
            for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
                let path = entry.path();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => open.push(path),
                    Ok(_) => {
                        if let Some(effect) = self.effect(&path) {
                            file(&entry, effect)?;
                        }
                    }
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_sources_boot_changed_assets_reload_and_written_files_are_ignored() {
        let files = ProjectFiles::new("/srv".into(), Some("/etc/a.toml".into()), &["up".into()]);
        let effect = |path: &str| files.effect(&Path::new("/srv").join(path));
        for path in [
            "a.php",
            ".env",
            "config/a.yaml",
            "t/a.twig",
            "a.blade.php",
            "artisan",
        ] {
            assert_eq!(effect(path), Some(Effect::Boot), "{path}");
        }
        for path in ["public/a.css", "a.JS", "img/a.png"] {
            assert_eq!(effect(path), Some(Effect::Page), "{path}");
        }
        for path in [
            "a.php~",
            ".a.php.swp",
            "4913",
            "a.log",
            "d/a.sqlite",
            "up/a.php",
            ".#a.php",
        ] {
            assert_eq!(effect(path), None, "{path}");
        }
        assert_eq!(
            files.effect(Path::new("/etc/a.toml")),
            Some(Effect::Configuration)
        );
        assert_eq!(files.effect(Path::new("/etc/b.toml")), None);
    }

    #[test]
    fn directories_of_tools_and_data_are_not_watched() {
        let files = ProjectFiles::new("/srv".into(), None, &["up".into()]);
        let is_watched = |path: &str| files.is_watched(&Path::new("/srv").join(path));
        for path in [
            "",
            "src",
            "src/cache",
            "lib/var",
            "vendor",
            "vendor/composer",
        ] {
            assert!(is_watched(path), "{path}");
        }
        for path in [
            "var/cache",
            "storage",
            "a/node_modules",
            ".git",
            "vendor/a/b",
            "up/a",
        ] {
            assert!(!is_watched(path), "{path}");
        }
        assert!(!files.is_watched(Path::new("/etc")));
    }
}
