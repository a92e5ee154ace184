//! Settings for Symfony applications in packages; on Lambda only `/tmp` is writable.

use std::path::Path;

use super::kind::PackageKind;
use super::{OURS, PackageFiles};

/// The directory of the warmed-up cache in a package.
pub const WARMED: &str = ".surus/cache";

/// The cache directory at run time; Symfony's kernel reads `APP_CACHE_DIR`.
pub const CACHE: &str = "/tmp/surus-symfony/cache";

/// The directory for log files (`APP_LOG_DIR`).
const LOGS: &str = "/tmp/surus-symfony/log";

/// The directory of `cache.app` from Symfony 7.4 on (`APP_SHARE_DIR`). Without it, `.env` of a new
/// project would choose `var/share` in the package.
const SHARE: &str = "/tmp/surus-symfony/share";

/// Whether the project requires Symfony's framework.
pub fn is_there(project: &Path) -> anyhow::Result<bool> {
    super::requires(project, "symfony/framework-bundle")
}

/// Adds the variables that `[env]` of the project's surus.toml does not set, and returns their
/// names. An executable has directories of its own: other users may write to `/tmp`.
pub fn set_environment(kind: PackageKind, env: &mut toml::Table) -> Vec<&'static str> {
    let everywhere = [("APP_ENV", "prod"), ("APP_DEBUG", "0")];
    let of_function = [
        ("APP_CACHE_DIR", CACHE),
        ("APP_LOG_DIR", LOGS),
        ("APP_SHARE_DIR", SHARE),
    ];
    let of_function = of_function
        .into_iter()
        .filter(|_| kind == PackageKind::Function);
    let mut defaults = Vec::new();
    for (name, value) in everywhere.into_iter().chain(of_function) {
        if !env.contains_key(name) {
            env.insert(name.into(), value.into());
            defaults.push(name);
        }
    }
    defaults
}

/// Adds the cache that the package's PHP created below `root`, a path without links, and returns
/// its number of files.
pub fn add(root: &Path, files: &mut PackageFiles) -> anyhow::Result<usize> {
    debug_assert!(WARMED.starts_with(OURS));
    let from = root.join(CACHE.trim_start_matches('/'));
    if !from.is_dir() {
        return Ok(0);
    }
    let all = super::php::below(&from, &[])?;
    let count = all.len();
    for (name, path) in all {
        files.copy_unlinked(format!("{WARMED}/{name}"), path, false)?;
    }
    Ok(count)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn variable_that_the_project_sets_is_kept() {
        let mut env = toml::Table::new();
        env.insert("APP_SHARE_DIR".into(), "/mnt/share".into());
        let defaults = set_environment(PackageKind::Function, &mut env);
        assert_eq!(env["APP_SHARE_DIR"].as_str(), Some("/mnt/share"));
        assert!(!defaults.contains(&"APP_SHARE_DIR"), "{defaults:?}");
    }

    #[test]
    fn link_in_the_warmed_cache_is_not_packaged() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let cache = root.join(CACHE.trim_start_matches('/'));
        std::fs::create_dir_all(&cache).unwrap();
        std::fs::write(cache.join("App.php"), "<?php").unwrap();
        std::fs::write(root.join("secret"), "").unwrap();
        let sizes = |expected: usize| {
            let mut files = PackageFiles::default();
            assert_eq!(add(&root, &mut files).unwrap(), expected);
            crate::package::sizes::Sizes::measure(&files)
        };
        assert!(sizes(1).is_ok());
        std::os::unix::fs::symlink(root.join("secret"), cache.join("page.php")).unwrap();
        assert!(sizes(2).is_err());
    }
}
