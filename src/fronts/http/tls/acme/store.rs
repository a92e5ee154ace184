//! The directory of ACME accounts, certificates and keys. Of a server, only the process that starts
//! attempts reads and writes it: the keeper, or a server that is one process. Servers can share it.
//!
//! - `accounts/AUTHORITY.json`: the account at an authority, with its key
//! - `certificates/AUTHORITY/DOMAIN.pem`: a key and its chain in one file, which a rename replaces
//! - `retry-after/AUTHORITY/DOMAIN`: for how many seconds the authority wanted no request
//! - `failures/DOMAIN`: how many attempts have failed since the last success
//! - `local/`: the authority of this machine (`local.rs`)
//! - `.surus-new-RANDOM`: a file that is being written
//!
//! A file that cannot be written is held in memory (`unstored.rs`), and read from there.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use rustls::crypto::ring;
use surus_sys::{process, regular_file};
use tempfile::NamedTempFile;
use tracing::{error, info};

use super::settings::{Authority, Domain, Settings};
use super::unstored::{Unstored, UnstoredFile};
use crate::fronts::http::tls::certificates::Served;
use crate::fronts::http::tls::files::{Acquired, PemFile};

/// What an attempt writes at most, per file.
const MAX_BYTES: u64 = 256 * 1024;

/// The setting that names the directory.
const SETTING: &str = "acme.directory";

/// The beginning of the names of new files.
const NEW: &str = ".surus-new-";

/// The age at which a new file is no longer being written: its process was killed.
const LEFT_OVER: Duration = Duration::from_secs(3600);

pub struct Store {
    dir: PathBuf,
    unstored: Arc<Unstored>,
}

/// The attempts that have failed since the last success.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttemptFailures {
    pub count: u32,
    /// The time since the last one. None if the clock was set back since.
    pub age: Option<Duration>,
}

impl Store {
    pub fn new(settings: &Settings, project: &Path) -> anyhow::Result<Store> {
        Store::with_unstored(settings, project, &Arc::default())
    }

    /// With the files that this process could not write.
    pub fn with_unstored(
        settings: &Settings,
        project: &Path,
        unstored: &Arc<Unstored>,
    ) -> anyhow::Result<Store> {
        let dir = match &settings.directory {
            Some(dir) => std::path::absolute(project.join(dir))?,
            None => default_directory()?,
        };
        Ok(Store {
            dir,
            unstored: unstored.clone(),
        })
    }

    /// The directory of the local authority.
    pub(super) fn local_directory(&self) -> PathBuf {
        self.dir.join("local")
    }

    /// The certificate and the key of a local domain.
    pub(super) fn local(&self, domain: &Domain) -> PathBuf {
        self.local_directory().join(format!("{domain}.pem"))
    }

    /// Creates a directory of the store, and the one above it.
    pub(super) fn make(&self, directory: &Path) -> anyhow::Result<()> {
        let cannot = || format!("cannot write to {} (acme.directory)", self.dir.display());
        create(&self.dir).with_context(cannot)?;
        self.check()?;
        create(directory.parent().unwrap_or(&self.dir)).with_context(cannot)?;
        create(directory).with_context(cannot)
    }

    /// Stores a file of the local authority.
    pub(super) fn keep_local(&self, path: &Path, content: &[u8]) -> anyhow::Result<()> {
        let stored = self.write(path, &mut &content[..]);
        stored.with_context(|| format!("cannot write {} (acme.directory)", path.display()))
    }

    fn account(&self, authority: &Authority) -> PathBuf {
        let name = format!("{}.json", authority.file_name());
        self.dir.join("accounts").join(name)
    }

    fn certificate(&self, authority: &Authority, domain: &Domain) -> PathBuf {
        let dir = self.dir.join("certificates").join(authority.file_name());
        dir.join(format!("{domain}.pem"))
    }

    fn limit(&self, authority: &Authority, domain: &Domain) -> PathBuf {
        let dir = self.dir.join("retry-after").join(authority.file_name());
        dir.join(domain.as_str())
    }

    fn failure(&self, domain: &Domain) -> PathBuf {
        self.dir.join("failures").join(domain.as_str())
    }

    /// Reads the certificates of all domains. Damaged files are named in the result.
    pub fn certificates(&self, settings: &Settings) -> anyhow::Result<Vec<Acquired>> {
        if self.dir.exists() {
            self.check()?;
        }
        let provider = ring::default_provider();
        let acquired = settings.domains.iter().map(|domain| {
            let is_usable = |file: &Result<PemFile, String>| {
                let served = |file| Served::acquired(file, domain.as_str(), &provider);
                file.as_ref().is_ok_and(|file| served(file).is_ok())
            };
            let paths: Vec<_> = match domain.is_local() {
                true => vec![self.local(domain)],
                false => {
                    let authorities = settings.authorities.iter();
                    authorities.map(|it| self.certificate(it, domain)).collect()
                }
            };
            let mut unstored = paths.iter().filter_map(|path| self.unstored.get(path));
            let mut files: Vec<_> = paths.iter().filter_map(|path| self.read(path)).collect();
            if !domain.is_local() && !files.iter().any(is_usable) {
                let others = self.other_certificates(&paths, domain);
                files.extend(others.iter().filter_map(|path| self.read(path)));
            }
            Acquired {
                domain: domain.to_string(),
                unstored: unstored.next().map(|file| file.why),
                files,
            }
        });
        Ok(acquired.collect())
    }

    /// Where authorities that are configured no longer may have a certificate of the domain.
    fn other_certificates(&self, known: &[PathBuf], domain: &Domain) -> Vec<PathBuf> {
        let staging = self.certificate(&Authority::staging(), domain);
        let entries = std::fs::read_dir(self.dir.join("certificates"));
        let entries = entries.into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path().join(format!("{domain}.pem")));
        let is_other = |path: &PathBuf| *path != staging && !known.contains(path);
        let mut others: Vec<_> = paths.filter(is_other).collect();
        others.sort_unstable();
        others
    }

    /// An error if other users may read or change what is stored.
    fn check(&self) -> anyhow::Result<()> {
        let name = self.dir.display();
        let found = std::fs::metadata(&self.dir);
        let found = found.with_context(|| format!("cannot read {name} (acme.directory)"))?;
        ensure!(
            found.is_dir() && found.uid() == process::uid() && found.mode() & 0o077 == 0,
            "{name} (acme.directory) has keys, so it must be a directory of the user that starts \
             Surus, with mode 700"
        );
        ensure!(
            surus_sys::trusted_path::is_fixed(&self.dir)?,
            "another user than root can replace {name} (acme.directory); name a directory whose \
             parents belong to root"
        );
        Ok(())
    }

    /// Creates what is missing, and makes sure that results of an attempt can be stored: an order
    /// that cannot be kept would count against the authority's limits.
    pub fn make_ready(&self, authorities: &[Authority]) -> anyhow::Result<()> {
        let cannot = || format!("cannot write to {} (acme.directory)", self.dir.display());
        create(&self.dir).with_context(cannot)?;
        self.check()?;
        let mut all = vec![self.dir.join("accounts"), self.dir.join("failures")];
        for kind in ["certificates", "retry-after"].map(|name| self.dir.join(name)) {
            let of_authority = |authority: &Authority| kind.join(authority.file_name());
            all.push(kind.clone());
            all.extend(authorities.iter().map(of_authority));
        }
        for dir in all {
            create(&dir).with_context(cannot)?;
        }
        self.remove_left_over().with_context(cannot)?;
        let zeros = [0; MAX_BYTES as usize];
        let room = self.write_new(&mut &zeros[..]);
        room.and_then(NamedTempFile::close).with_context(cannot)
    }

    /// Removes new files of processes that were killed.
    fn remove_left_over(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            let is_new = entry.file_name().as_bytes().starts_with(NEW.as_bytes());
            let written = entry.metadata().and_then(|file| file.modified());
            let age = written.ok().and_then(|at| at.elapsed().ok());
            if is_new && age.is_some_and(|age| age > LEFT_OVER) {
                // Another server may have removed it.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    /// Opens the account at an authority, if there is one.
    pub fn open_account(&self, authority: &Authority) -> anyhow::Result<Option<File>> {
        Store::open(&self.account(authority))
    }

    /// Opens the certificate of an authority, if there is one.
    pub fn open_certificate(
        &self,
        authority: &Authority,
        domain: &Domain,
    ) -> anyhow::Result<Option<File>> {
        Store::open(&self.certificate(authority, domain))
    }

    /// Opens the file of the time that an authority wants no request, if there is one.
    pub fn open_limit(
        &self,
        authority: &Authority,
        domain: &Domain,
    ) -> anyhow::Result<Option<File>> {
        Store::open(&self.limit(authority, domain))
    }

    fn open(path: &Path) -> anyhow::Result<Option<File>> {
        match regular_file::open(path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// The content of a PEM file, or why it cannot be used. None if it does not exist.
    fn read(&self, path: &Path) -> Option<Result<PemFile, String>> {
        let is_missing = |path: &Path| {
            let found = path.symlink_metadata();
            found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let file = match self.unstored.get(path) {
            Some(unstored) => unstored
                .read()
                .map_err(anyhow::Error::from)
                .and_then(|bytes| PemFile::parse(path, SETTING, &bytes)),
            None if is_missing(path) => return None,
            None => PemFile::read(path, SETTING),
        };
        Some(file.map_err(|error| format!("{error:#}")))
    }

    /// Stores what an attempt has written into a file. This process does not look at it: it comes
    /// from a process that reads from the network.
    pub fn keep_account(&self, authority: &Authority, content: &Arc<File>) -> anyhow::Result<()> {
        self.keep(&self.account(authority), content)
    }

    pub fn keep_certificate(
        &self,
        authority: &Authority,
        domain: &Domain,
        content: &Arc<File>,
    ) -> anyhow::Result<()> {
        self.keep(&self.certificate(authority, domain), content)
    }

    pub fn keep_limit(
        &self,
        authority: &Authority,
        domain: &Domain,
        content: &Arc<File>,
    ) -> anyhow::Result<()> {
        self.keep(&self.limit(authority, domain), content)
    }

    /// Holds the content in memory if it cannot be written.
    fn keep(&self, path: &Path, content: &Arc<File>) -> anyhow::Result<()> {
        let name = path.display();
        let len = content.metadata()?.len();
        match len {
            0 => return Ok(()),
            1..=MAX_BYTES => {}
            _ => bail!("the attempt has written {len} bytes for {name}"),
        }
        let copy = |mut content: &File| {
            content.rewind()?;
            self.write(path, &mut content.take(MAX_BYTES))?;
            // `Retry-After` counts from then.
            File::open(path)?.set_modified(content.metadata()?.modified()?)
        };
        let stored = copy(content).with_context(|| {
            format!(
                "cannot write {name} ({SETTING}), and a restart loses it; free space or allow \
                 writing"
            )
        });
        match &stored {
            Ok(()) if self.unstored.release(path) => {
                info!(file = %name, "stored, after it was in memory only");
            }
            Ok(()) => {}
            Err(error) => {
                let held = UnstoredFile {
                    directory: self.dir.clone(),
                    content: content.clone(),
                    why: format!("{error:#}"),
                };
                self.unstored.hold(path, held);
            }
        }
        stored
    }

    /// Stores what could not be stored for this domain before. An error if that fails again.
    pub fn store_again(&self, authorities: &[Authority], domain: &Domain) -> anyhow::Result<()> {
        for authority in authorities {
            for path in [
                self.account(authority),
                self.certificate(authority, domain),
                self.limit(authority, domain),
            ] {
                if let Some(unstored) = self.unstored.get(&path) {
                    self.keep(&path, &unstored.content)?;
                }
            }
        }
        Ok(())
    }

    /// Stores what could not be stored before, when the process that holds it ends.
    pub fn store_last(unstored: &Arc<Unstored>) {
        for (path, file) in unstored.all() {
            let store = Store {
                dir: file.directory,
                unstored: unstored.clone(),
            };
            let made = store.make(path.parent().unwrap_or(&store.dir));
            if let Err(error) = made.and_then(|()| store.keep(&path, &file.content)) {
                let error = format!("{error:#}");
                error!(
                    error,
                    "a result of an authority is lost, and the next start asks for another one"
                );
            }
        }
    }

    /// Replaces a file as a whole.
    fn write(&self, path: &Path, content: &mut impl Read) -> io::Result<()> {
        self.write_new(content)?.persist(path)?;
        // The rename itself survives a power failure only then.
        File::open(path.parent().unwrap_or(&self.dir))?.sync_all()
    }

    /// Writes a file that only its owner may read. Its name is random: another server may write
    /// here at the same time, and in another container it can have the same process id.
    fn write_new(&self, content: &mut impl Read) -> io::Result<NamedTempFile> {
        // Errors must not name the file, because `watch.rs` compares them with the last one.
        let create = |path: &Path| {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).open(path)
        };
        let mut named = tempfile::Builder::new();
        let mut file = named.prefix(NEW).make_in(&self.dir, create)?;
        io::copy(content, file.as_file_mut())?;
        file.as_file().sync_all()?;
        Ok(file)
    }

    pub fn failures(&self, domain: &Domain) -> AttemptFailures {
        let path = self.failure(domain);
        let Ok(text) = regular_file::read(&path, 32) else {
            return AttemptFailures::default();
        };
        let count = String::from_utf8_lossy(&text).trim().parse();
        let modified = path.metadata().and_then(|file| file.modified());
        AttemptFailures {
            // A damaged file is there because an attempt failed.
            count: count.unwrap_or(1),
            age: modified
                .ok()
                .and_then(|at| SystemTime::now().duration_since(at).ok()),
        }
    }

    /// Notes that another attempt has failed, or, with `None`, that one has succeeded.
    pub fn note(&self, domain: &Domain, failures: Option<u32>) -> io::Result<()> {
        let path = self.failure(domain);
        match failures {
            Some(count) => self.write(&path, &mut count.to_string().as_bytes()),
            None => match std::fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }
}

/// `/var/lib/surus/acme`, or the user's directory for state.
fn default_directory() -> anyhow::Result<PathBuf> {
    if process::is_root() {
        return Ok("/var/lib/surus/acme".into());
    }
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    // systemd separates several by colons.
    let named = variable("STATE_DIRECTORY");
    let own = named
        .and_then(|dirs| std::env::split_paths(&dirs).next())
        .or_else(|| Some(variable("XDG_STATE_HOME")?.join("surus")))
        .or_else(|| Some(variable("HOME")?.join(".local/state/surus")));
    match own.filter(|dir| dir.is_absolute()) {
        Some(dir) => Ok(dir.join("acme")),
        None => bail!("neither STATE_DIRECTORY nor HOME is set; set acme.directory"),
    }
}

fn create(dir: &Path) -> io::Result<()> {
    let parent = dir.parent().filter(|parent| !parent.exists());
    if let Some(parent) = parent {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Writes all of an attempt's result.
pub(super) fn fill(mut file: &File, content: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(content)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
