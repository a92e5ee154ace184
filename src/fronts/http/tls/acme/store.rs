//! The directory of ACME accounts, certificates and keys. Of a server, only the process that starts
//! attempts reads and writes it: the keeper, or a server that is one process. Servers can share it.
//!
//! - `accounts/AUTHORITY.json`: the account at an authority, with its key
//! - `certificates/AUTHORITY/DOMAIN.pem`: a key and its chain in one file, which a rename replaces
//! - `retry-after/AUTHORITY/DOMAIN`: for how many seconds the authority wanted no request
//! - `failures/DOMAIN`: how many attempts have failed since the last success
//! - `local/`: the authority of this machine (`local.rs`)
//! - `.surus-new-RANDOM`: a file that is being written

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use surus_sys::{process, regular_file};
use tempfile::NamedTempFile;

use super::settings::{Authority, Domain, Settings};
use crate::fronts::http::tls::files::{Acquired, PemFile};

/// What an attempt writes at most, per file.
const MAX_BYTES: u64 = 256 * 1024;

/// The beginning of the names of new files.
const NEW: &str = ".surus-new-";

/// The age at which a new file is no longer being written: its process was killed.
const LEFT_OVER: Duration = Duration::from_secs(3600);

pub struct Store {
    dir: PathBuf,
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
        let dir = match &settings.directory {
            Some(dir) => std::path::absolute(project.join(dir))?,
            None => default_directory()?,
        };
        Ok(Store { dir })
    }

    /// The directory of the local authority.
    pub(super) fn local_directory(&self) -> PathBuf {
        self.dir.join("local")
    }

    /// The certificate and the key of a local domain.
    pub(super) fn local(&self, domain: &Domain) -> PathBuf {
        self.local_directory().join(format!("{domain}.pem"))
    }

    /// Creates the directory of the local authority.
    pub(super) fn make_local(&self, directory: &Path) -> anyhow::Result<()> {
        let cannot = || format!("cannot write to {} (acme.directory)", self.dir.display());
        create(&self.dir).with_context(cannot)?;
        self.check()?;
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
        let acquired = settings.domains.iter().map(|domain| {
            let paths: Vec<_> = match domain.is_local() {
                true => vec![self.local(domain)],
                false => {
                    let authorities = settings.authorities.iter();
                    authorities.map(|it| self.certificate(it, domain)).collect()
                }
            };
            Acquired {
                domain: domain.to_string(),
                files: paths.into_iter().filter_map(read).collect(),
            }
        });
        Ok(acquired.collect())
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
        open(&self.account(authority))
    }

    /// Opens the certificate of an authority, if there is one.
    pub fn open_certificate(
        &self,
        authority: &Authority,
        domain: &Domain,
    ) -> anyhow::Result<Option<File>> {
        open(&self.certificate(authority, domain))
    }

    /// Opens the file of the time that an authority wants no request, if there is one.
    pub fn open_limit(
        &self,
        authority: &Authority,
        domain: &Domain,
    ) -> anyhow::Result<Option<File>> {
        open(&self.limit(authority, domain))
    }

    /// Stores what an attempt has written into a file. This process does not look at it: it comes
    /// from a process that reads from the network.
    pub fn keep_account(&self, authority: &Authority, content: &File) -> anyhow::Result<()> {
        self.keep(&self.account(authority), content)
    }

    pub fn keep_certificate(
        &self,
        authority: &Authority,
        domain: &Domain,
        content: &File,
    ) -> anyhow::Result<()> {
        self.keep(&self.certificate(authority, domain), content)
    }

    pub fn keep_limit(
        &self,
        authority: &Authority,
        domain: &Domain,
        content: &File,
    ) -> anyhow::Result<()> {
        self.keep(&self.limit(authority, domain), content)
    }

    fn keep(&self, path: &Path, mut content: &File) -> anyhow::Result<()> {
        let name = path.display();
        let len = content.metadata()?.len();
        match len {
            0 => return Ok(()),
            1..=MAX_BYTES => {}
            _ => bail!("the attempt has written {len} bytes for {name}"),
        }
        content.rewind()?;
        let stored = self.write(path, &mut content.take(MAX_BYTES));
        stored.with_context(|| format!("cannot write {name} (acme.directory)"))
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

fn open(path: &Path) -> anyhow::Result<Option<File>> {
    match regular_file::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The content of a PEM file, or why it cannot be used. None if it does not exist.
fn read(path: PathBuf) -> Option<Result<PemFile, String>> {
    if matches!(path.symlink_metadata(), Err(error) if error.kind() == ErrorKind::NotFound) {
        return None;
    }
    let file = PemFile::read(&path, "acme.directory");
    Some(file.map_err(|error| format!("{error:#}")))
}

/// Writes all of an attempt's result.
pub(super) fn fill(mut file: &File, content: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(content)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn store(dir: &Path) -> (Store, Settings) {
        let settings = Settings {
            domains: vec!["example.org".parse().unwrap()],
            directory: Some("state/acme".into()),
            ..Settings::default()
        };
        (Store::new(&settings, dir).unwrap(), settings)
    }

    #[test]
    fn results_are_stored_for_this_user_alone_and_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (store, settings) = store(dir.path());
        let (authority, domain) = (&settings.authorities[0], &settings.domains[0]);
        assert!(store.certificates(&settings).unwrap()[0].files.is_empty());
        store.make_ready(&settings.authorities).unwrap();
        let result = tempfile::tempfile().unwrap();
        store.keep_certificate(authority, domain, &result).unwrap();
        assert!(store.certificates(&settings).unwrap()[0].files.is_empty());
        for name in ["A", "B"] {
            let pem = format!("-----BEGIN {name}-----\n-----END {name}-----\n");
            fill(&result, pem.as_bytes()).unwrap();
            store.keep_certificate(authority, domain, &result).unwrap();
            let all = store.certificates(&settings).unwrap();
            assert_eq!(all[0].files[0].as_ref().ok().unwrap().text, pem);
        }
        let path = store.certificate(authority, domain);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        let parent = path.parent().unwrap();
        assert_eq!(parent.metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_dir(&store.dir).unwrap().count(), 4);
        result.set_len(MAX_BYTES + 1).unwrap();
        assert!(store.keep_certificate(authority, domain, &result).is_err());
        std::fs::write(&path, "damaged").unwrap();
        let all = store.certificates(&settings).unwrap();
        assert!(
            all[0].files[0]
                .as_ref()
                .err()
                .unwrap()
                .contains("not a PEM file")
        );
    }

    /// Such as the servers of two applications.
    #[test]
    fn servers_that_share_the_directory_keep_each_others_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let keep = |name: char| {
            let (store, settings) = store(dir.path());
            let authority = &settings.authorities[0];
            let domain: Domain = format!("{name}.example.org").parse().unwrap();
            let lines = name.to_string().repeat(100_000);
            let pem = format!("-----BEGIN X-----\n{lines}\n-----END X-----\n");
            let result = tempfile::tempfile().unwrap();
            fill(&result, pem.as_bytes()).unwrap();
            for _ in 0..20 {
                store.make_ready(&settings.authorities).unwrap();
                store.keep_certificate(authority, &domain, &result).unwrap();
                let kept = std::fs::read_to_string(store.certificate(authority, &domain)).unwrap();
                assert!(kept == pem, "{domain} has {} bytes", kept.len());
            }
        };
        std::thread::scope(|scope| {
            for name in ['a', 'b', 'c'] {
                scope.spawn(move || keep(name));
            }
        });
        let (store, _) = store(dir.path());
        assert_eq!(std::fs::read_dir(&store.dir).unwrap().count(), 4);
    }

    #[test]
    fn new_file_of_a_killed_process_is_removed_and_that_of_another_server_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (store, settings) = store(dir.path());
        store.make_ready(&settings.authorities).unwrap();
        let [old, fresh] = [".surus-new-old", ".surus-new-fresh"].map(|name| store.dir.join(name));
        for file in [&old, &fresh] {
            std::fs::write(file, "").unwrap();
        }
        let hours_ago = SystemTime::now() - 2 * LEFT_OVER;
        let file = File::options().write(true).open(&old).unwrap();
        file.set_modified(hours_ago).unwrap();
        store.make_ready(&settings.authorities).unwrap();
        assert!(!old.exists() && fresh.exists());
    }

    #[test]
    fn directory_that_others_may_read_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let (store, settings) = store(dir.path());
        store.make_ready(&settings.authorities).unwrap();
        std::fs::set_permissions(&store.dir, PermissionsExt::from_mode(0o750)).unwrap();
        let refused = store.certificates(&settings).err().unwrap();
        assert!(refused.to_string().contains("mode 700"), "{refused}");
        assert!(store.make_ready(&settings.authorities).is_err());
    }

    #[test]
    fn failures_are_counted_until_a_success() {
        let dir = tempfile::tempdir().unwrap();
        let (store, settings) = store(dir.path());
        let domain = &settings.domains[0];
        store.make_ready(&settings.authorities).unwrap();
        assert_eq!(store.failures(domain), AttemptFailures::default());
        store.note(domain, Some(3)).unwrap();
        let failures = store.failures(domain);
        assert!(
            failures.count == 3 && failures.age.is_some(),
            "{failures:?}"
        );
        std::fs::write(store.failure(domain), "damaged").unwrap();
        assert_eq!(store.failures(domain).count, 1);
        let future = SystemTime::now() + Duration::from_secs(1000);
        let file = File::options().write(true).open(store.failure(domain));
        file.unwrap().set_modified(future).unwrap();
        assert_eq!(store.failures(domain).age, None);
        store.note(domain, None).unwrap();
        store.note(domain, None).unwrap();
        assert_eq!(store.failures(domain), AttemptFailures::default());
    }
}
