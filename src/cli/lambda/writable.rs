//! Prepares writable paths of an application: its packaged cache in `/tmp`, and log files that lead
//! to the function's log.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context;
use tracing::warn;

use crate::config::Config;

/// The only writable directory of a function.
const TMP: &str = "/tmp/";

/// Applies `[env]` and `lambda.cache`. Failures are only logged, because the application may work
/// without.
pub fn prepare(config: &Config) {
    let directory = |name: &str| {
        let path = config.env.get(name)?;
        path.starts_with(TMP).then_some(Path::new(path))
    };
    let made = directory("APP_LOG_DIR").map_or(Ok(()), |logs| {
        let environment = config.env.get("APP_ENV").map_or("prod", String::as_str);
        link_log(logs, environment).with_context(|| format!("cannot create {}", logs.display()))
    });
    if let Err(error) = made {
        warn!(
            error = format!("{error:#}"),
            "the application's log files may be lost"
        );
    }
    let (Some(from), Some(to)) = (&config.lambda.cache, directory("APP_CACHE_DIR")) else {
        return;
    };
    // It exists after a failed start.
    if !to.exists()
        && let Err(error) = copy_whole(from, to)
    {
        warn!(
            error = format!("{error:#}"),
            "cannot use the packaged cache (lambda.cache)"
        );
    }
}

/// Links the log file of Symfony's default configuration to stderr.
fn link_log(logs: &Path, environment: &str) -> anyhow::Result<()> {
    fs::create_dir_all(logs)?;
    let file = logs.join(format!("{environment}.log"));
    match fs::symlink_metadata(&file) {
        Ok(_) => Ok(()),
        Err(_) => Ok(symlink("/proc/self/fd/2", file)?),
    }
}

/// Copies under another name first, so that a partial copy never looks complete.
fn copy_whole(from: &Path, to: &Path) -> anyhow::Result<()> {
    let begun = to.with_extension("begun");
    if begun.exists() {
        fs::remove_dir_all(&begun)?;
    }
    copy(from, &begun)?;
    fs::rename(&begun, to).with_context(|| format!("cannot create {}", to.display()))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    let cannot = || format!("cannot read {}", from.display());
    for entry in fs::read_dir(from).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            let copied = fs::copy(entry.path(), &target);
            copied.with_context(|| format!("cannot write {}", target.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn packaged_cache_is_copied_and_log_files_link_to_stderr() {
        let package = tempfile::tempdir().unwrap();
        fs::create_dir_all(package.path().join("prod/twig")).unwrap();
        fs::write(package.path().join("prod/twig/a.php"), "<?php").unwrap();
        let tmp = tempfile::tempdir_in("/tmp").unwrap();
        let path = |name: &str| tmp.path().join(name).display().to_string();
        let mut config = Config::default();
        config.lambda.cache = Some(package.path().into());
        config.env.insert("APP_CACHE_DIR".into(), path("cache"));
        config.env.insert("APP_LOG_DIR".into(), path("log"));
        config.env.insert("APP_ENV".into(), "test".into());
        for _ in 0..2 {
            prepare(&config);
            let copied = fs::read_to_string(path("cache/prod/twig/a.php"));
            assert_eq!(copied.unwrap(), "<?php");
            let log = fs::read_link(path("log/test.log")).unwrap();
            assert_eq!(log, Path::new("/proc/self/fd/2"));
        }
        // Nothing is created where a function cannot write.
        config.env.insert("APP_LOG_DIR".into(), "/nowhere".into());
        prepare(&config);
        assert!(!Path::new("/nowhere").exists());
    }
}
