//! Points OPcache at the compiled files of a package.

use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context;
use tracing::warn;

use crate::config::{Config, IniValue};

/// Configures PHP to use the compiled files, if there are any. The caller keeps the returned
/// directory as long as PHP runs.
///
/// OPcache rejects a directory that it cannot write to, and a function's own is read-only. So it
/// gets a directory in /tmp with links to the package's files.
pub fn find(config: &mut Config) -> Option<tempfile::TempDir> {
    let compiled = config.lambda.opcache_dir.as_ref()?;
    match link(compiled) {
        Ok(directory) => {
            let mut set = |name: &str, value: String| {
                let entry = config.php.entry(name.to_string());
                entry.or_insert(IniValue::Text(value));
            };
            set("opcache.file_cache", directory.path().display().to_string());
            // The zip has checksums of its own.
            set("opcache.file_cache_consistency_checks", "0".into());
            Some(directory)
        }
        Err(error) => {
            warn!(
                error = format!("{error:#}"),
                "PHP compiles its files at each start, without the package's"
            );
            None
        }
    }
}

fn link(compiled: &Path) -> anyhow::Result<tempfile::TempDir> {
    let directory = tempfile::Builder::new()
        .prefix("surus-opcache")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .context("cannot create a directory for OPcache (lambda.opcache_dir)")?;
    let read = || format!("cannot read {} (lambda.opcache_dir)", compiled.display());
    for entry in std::fs::read_dir(compiled).with_context(read)? {
        let entry = entry.with_context(read)?;
        symlink(entry.path(), directory.path().join(entry.file_name()))?;
    }
    Ok(directory)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn opcache_gets_a_writable_directory() {
        let package = tempfile::tempdir().unwrap();
        std::fs::create_dir(package.path().join("id")).unwrap();
        std::fs::write(package.path().join("id/a.php.bin"), "x").unwrap();
        let mut config = Config::default();
        assert!(find(&mut config).is_none());
        config.lambda.opcache_dir = Some(package.path().to_path_buf());
        let found = find(&mut config).unwrap();
        let place = config.php["opcache.file_cache"].entries().concat();
        assert_eq!(Path::new(&place), found.path());
        let file = found.path().join("id/a.php.bin");
        assert_eq!(std::fs::read_to_string(file).unwrap(), "x");
        // An explicit setting wins.
        config
            .php
            .insert("opcache.file_cache".into(), IniValue::Text("/mine".into()));
        let _second = find(&mut config).unwrap();
        assert_eq!(config.php["opcache.file_cache"].entries(), ["/mine"]);
        config.lambda.opcache_dir = Some("/nowhere".into());
        assert!(find(&mut config).is_none());
    }
}
