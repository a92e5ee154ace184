//! Stores the pages that warm up a pool's boots, so that the next start is warm at once. PHP does
//! not write them. Under root, only the keeper does.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use surus_sys::{process, regular_file, trusted_path};
use tracing::warn;

use super::engine_setup::PoolConfig;
use crate::engines::learned;

/// More than a file has.
const MAX_BYTES: u64 = 16 * 1024;

/// The pages of the last run, none if the file cannot be used.
pub fn load(project: &Path, pool: &PoolConfig) -> Vec<String> {
    let Some(file) = file(project, pool) else {
        return Vec::new();
    };
    match read(&file) {
        Ok(pages) => pages.unwrap_or_default(),
        Err(error) => {
            warn!(
                file = %file.display(),
                error = format!("{error:#}"),
                "the learned pages are ignored and will be learned again"
            );
            Vec::new()
        }
    }
}

/// Replaces the pages of the next start.
pub fn keep(project: &Path, pool: &PoolConfig, pages: &[String]) -> anyhow::Result<()> {
    let Some(file) = file(project, pool) else {
        return Ok(()); // A user without a directory for state learns again at each start.
    };
    let cannot = || format!("cannot write {}", file.display());
    write(&file, &learned::text(pages)).with_context(cannot)
}

fn read(file: &Path) -> anyhow::Result<Option<Vec<String>>> {
    let opened = match regular_file::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let found = opened.metadata()?;
    ensure!(
        found.uid() == process::uid() && found.mode() & 0o022 == 0 && is_trusted(file),
        "another user may have written it"
    );
    ensure!(found.len() <= MAX_BYTES, "it is too large");
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(opened, MAX_BYTES), &mut bytes)?;
    let text = String::from_utf8(bytes).context("it is not text")?;
    learned::parse(&text).map(Some)
}

fn is_trusted(file: &Path) -> bool {
    file.parent().is_some_and(trusted_path::is_protected)
}

/// Replaces the file as a whole.
fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    let dir = file.parent().context("it is in no directory")?;
    if let Some(parent) = dir.parent().filter(|parent| !parent.exists()) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    if !is_trusted(file) {
        bail!("another user could replace it");
    }
    let new = file.with_extension("new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut opened = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    opened.write_all(text.as_bytes())?;
    opened.sync_all()?;
    Ok(std::fs::rename(&new, file)?)
}

/// `/var/lib/surus/pages/srv-app-rewind-1b2c3d4e`, or below the user's directory for state.
fn file(project: &Path, pool: &PoolConfig) -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let own = match process::is_root() {
        true => Some("/var/lib/surus".into()),
        false => variable("XDG_STATE_HOME")
            .map(|dir| dir.join("surus"))
            .or_else(|| Some(variable("HOME")?.join(".local/state/surus"))),
    };
    // systemd names the directories of its unit, separated by colons.
    let named = variable("STATE_DIRECTORY");
    let named = named.and_then(|dirs| std::env::split_paths(&dirs).next());
    let dir = named.or(own);
    let dir = dir.filter(|dir| dir.is_absolute())?;
    Some(dir.join("pages").join(name(project, pool.name)))
}

/// A file name of a readable end and a number that distinguishes it from others with this end.
fn name(project: &Path, pool: &str) -> String {
    let all = format!("{}-{pool}", project.display());
    // FNV-1a, stable across versions.
    let hash = all.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let plain: String = (all.trim_matches('/').chars())
        .map(|c| if is_plain(c) { c } else { '-' })
        .collect();
    let end = plain.len().saturating_sub(60);
    format!("{}-{hash:016x}", &plain[end..])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn pages() -> Vec<String> {
        vec!["http://localhost/".into(), "https://a.test:81/b".into()]
    }

    #[test]
    fn pages_written_are_read_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state/pages/a");
        assert!(read(&file).unwrap().is_none());
        write(&file, &learned::text(&pages())).unwrap();
        assert_eq!(read(&file).unwrap(), Some(pages()));
        write(&file, &learned::text(&pages()[..1])).unwrap();
        assert_eq!(read(&file).unwrap().unwrap(), &pages()[..1]);
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn damaged_large_or_foreign_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pages/a");
        let read_after = |text: &str| {
            write(&file, text).unwrap();
            read(&file)
        };
        for text in ["", "nonsense", "surus pages 1\n/etc/passwd\n"] {
            assert!(read_after(text).is_err(), "{text}");
        }
        let large = learned::text(&vec!["http://a/".into(); 4000]);
        let error = read_after(&large).unwrap_err();
        assert!(error.to_string().contains("too large"), "{error}");
        assert!(read_after(&learned::text(&pages())).is_ok());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(read(&file).is_err());
    }

    #[test]
    fn projects_with_similar_paths_have_different_files() {
        let name = |path: &str| name(Path::new(path), "rewind");
        assert_ne!(name("/srv/a/b"), name("/srv/a-b"));
        assert!(name("/srv/app").starts_with("srv-app-rewind-"));
    }
}
