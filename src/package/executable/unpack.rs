//! Unpacks this program's application into a directory of this user's, or finds it there.
//!
//! The directory's name follows from the checksum and the user. Each file gets its name when it is
//! whole, and a last file says that all are there. So the next start completes one that was
//! killed. It also restores missing files.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use surus_sys::dir_lock::{self, DirLock};
use surus_sys::{appended, process};
use zip::ZipArchive;

use super::{AppendedZip, sha256};
use crate::package::kind::{PackageKind, UNPACKED};
use crate::package::php::{self, LIBPHP};
use crate::package::{APART, OURS};

/// Says that all files are there, with the checksum and the directory's path.
const COMPLETE: &str = "complete";

/// The file that is being written.
const PARTIAL: &str = "partial";

/// Locked while files are written.
const LOCK: &str = "lock";

/// The remedy for a directory that cannot be used.
const REMEDY: &str = "set SURUS_BUILD_DIR to a directory of this user's";

/// An application that has been unpacked.
#[derive(Debug)]
pub struct UnpackedApplication {
    root: PathBuf,
    /// PHP reads the system's time zones, and there are none.
    pub lacks_zones: bool,
    /// Keeps systemd-tmpfiles(8) away while the application runs.
    _lock: DirLock,
}

impl UnpackedApplication {
    /// The application's directory.
    pub fn directory(&self) -> PathBuf {
        self.root.join(APART)
    }

    /// Lets a group enter the directory: that of PHP's user, where root has unpacked it.
    pub fn admit(&self, group: u32) -> io::Result<()> {
        chown(&self.root, None, Some(group))?;
        fs::set_permissions(&self.root, Permissions::from_mode(0o750))
    }
}

impl AppendedZip {
    /// Unpacks the zip of this program below `base`, after a check.
    pub fn unpack(&self, base: &Path) -> anyhow::Result<UnpackedApplication> {
        let program = appended::open_program()
            .context("cannot read the file of this program, which contains the application")?;
        self.unpack_from(&program, base)
    }

    fn unpack_from(&self, program: &File, base: &Path) -> anyhow::Result<UnpackedApplication> {
        self.check(program)?;
        let base = base
            .canonicalize()
            .with_context(|| format!("cannot use {}; {REMEDY}", base.display()))?;
        check_base(&base)?;
        let root = base.join(self.directory_name());
        let lock = open_root(&root)?;
        let unpacking = Unpacking::new(&root)?;
        let mut zip = ZipArchive::new(BufReader::new(program))
            .context("cannot read the application in this program")?;
        let mark = format!("{} {}\n", hex(&self.sha256), unpacking.root_text);
        let is_complete = fs::read_to_string(root.join(COMPLETE)).is_ok_and(|found| found == mark);
        let written = unpacking.write_all(&mut zip, is_complete);
        let written = written.and_then(|()| match is_complete {
            true => Ok(()),
            false => unpacking.complete(&mark),
        });
        if let Err(error) = written {
            if !is_complete {
                unpacking.remove();
            }
            return Err(explained(error, &mut zip, &base));
        }
        let has_zones = zip.file_names_raw().any(|name| name.starts_with(b"tz/"));
        let lacks_zones =
            has_zones && !php::has_room(&unpacking.zones) && !Path::new(php::ZONES).is_dir();
        Ok(UnpackedApplication {
            root,
            lacks_zones,
            _lock: lock,
        })
    }

    /// An error if the program's file is not the one that was built.
    fn check(&self, program: &File) -> anyhow::Result<()> {
        let remedy = "copy it again from where it was built";
        let found = program.metadata()?.len();
        if found < self.end() {
            bail!(
                "this program is truncated: its file has {found} bytes of {}; {remedy}",
                self.end()
            );
        }
        if found > self.end() {
            bail!(
                "this program was changed: its file has {found} bytes instead of {}; {remedy}",
                self.end()
            );
        }
        let sha256 = sha256(program, self.start, self.length)
            .context("cannot read the application in this program")?;
        if sha256 != self.sha256 {
            bail!(
                "this program is damaged: the application in it has another checksum than when it \
                 was built; {remedy}"
            );
        }
        Ok(())
    }

    /// The name of the directory. It is short, so that the path of the time zones has room in
    /// libphp. Each user has another one.
    fn directory_name(&self) -> String {
        const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        context.update(&self.sha256);
        context.update(&process::uid().to_le_bytes());
        let digest = context.finish();
        let letters = digest.as_ref().iter().take(6);
        let letters = letters.map(|byte| char::from(LETTERS[usize::from(byte % 32)]));
        format!("surus{}", letters.collect::<String>())
    }
}

/// Fails if another user could exchange a directory below this one, whose path has no links. The
/// owner of `/` can always do so, and is accepted.
fn check_base(base: &Path) -> anyhow::Result<()> {
    let owners = [0, process::uid(), Path::new("/").metadata()?.uid()];
    for directory in base.ancestors() {
        let found = directory
            .metadata()
            .with_context(|| format!("cannot use {}; {REMEDY}", base.display()))?;
        let is_shared = found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0;
        if is_shared || !owners.contains(&found.uid()) {
            bail!(
                "cannot unpack the application in {}: other users may exchange what is in {}; \
                 {REMEDY}",
                base.display(),
                directory.display()
            );
        }
    }
    Ok(())
}

/// Creates the directory or checks that it is this user's alone, and locks it.
fn open_root(root: &Path) -> anyhow::Result<DirLock> {
    let cannot = || {
        format!(
            "cannot create {} for the application; {REMEDY}",
            root.display()
        )
    };
    loop {
        match DirBuilder::new().mode(0o700).create(root) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(cannot);
            }
            _ => {}
        }
        let found = root.symlink_metadata().with_context(cannot)?;
        if !found.is_dir() || found.uid() != process::uid() || found.mode() & 0o022 != 0 {
            bail!(
                "{} is not a directory that belongs to this user alone, so another user may have \
                 made it; remove it, or {REMEDY}",
                root.display()
            );
        }
        if found.mode() & 0o077 != 0 && !process::has_other_users() {
            fs::set_permissions(root, Permissions::from_mode(0o700)).with_context(cannot)?;
        }
        if appended::is_noexec(File::open(root).with_context(cannot)?)? {
            bail!(
                "cannot start PHP from {}, because the file system there is mounted with noexec; \
                 set SURUS_BUILD_DIR to a directory on another one",
                root.display()
            );
        }
        let lock = dir_lock::share(root).with_context(cannot)?;
        // Between the two, systemd-tmpfiles may have removed an old directory.
        if root
            .symlink_metadata()
            .is_ok_and(|now| now.ino() == found.ino())
        {
            return Ok(lock);
        }
    }
}

/// The directory while files are written to it.
struct Unpacking<'a> {
    root: &'a Path,
    root_text: &'a str,
    zones: PathBuf,
    _lock: DirLock,
}

impl Unpacking<'_> {
    /// Waits for another process that unpacks the same.
    fn new(root: &Path) -> anyhow::Result<Unpacking<'_>> {
        // It stands in quotes in surus.toml and php.ini, and in a list with colons for the loader.
        let is_plain = |c: char| c.is_alphanumeric() || "/._-+@,~ ".contains(c);
        let root_text = root.to_str().filter(|text| text.chars().all(is_plain));
        let root_text = root_text.with_context(|| {
            format!(
                "{} has characters that PHP's configuration cannot contain; {REMEDY}, with letters \
                 and digits in its path",
                root.display()
            )
        })?;
        let path = root.join(LOCK);
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path);
        let lock = file.and_then(dir_lock::wait_for_file);
        Ok(Unpacking {
            root,
            root_text,
            zones: root.join(PackageKind::Executable.zones()),
            _lock: lock.with_context(|| format!("cannot lock {}", path.display()))?,
        })
    }

    /// Writes all files, or those that are missing.
    fn write_all(
        &self,
        zip: &mut ZipArchive<impl Read + io::Seek>,
        only_missing: bool,
    ) -> anyhow::Result<()> {
        for index in 0..zip.len() {
            let name = zip.name_for_index(index).context("no such file")??;
            if only_missing && self.root.join(&*name).symlink_metadata().is_ok() {
                continue;
            }
            let mut entry = zip.by_index(index)?;
            let name = entry
                .enclosed_name()
                .context("a name leads out of the application")?;
            let mode = entry.unix_mode().unwrap_or(0o644) & 0o777;
            let path = self.root.join(&name);
            let written = self.write(&name, mode, &mut entry);
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Writes one file with its directories.
    fn write(&self, name: &Path, mode: u32, from: &mut impl Read) -> io::Result<()> {
        let mut directory = self.root.to_path_buf();
        for part in name.parent().into_iter().flat_map(Path::components) {
            directory.push(part);
            match fs::create_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => {
                    created?;
                    fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
                }
            }
        }
        let partial = self.root.join(PARTIAL);
        let mut to = File::create(&partial)?;
        match self.relocated(name, from)? {
            Some(bytes) => to.write_all(&bytes)?,
            None => {
                io::copy(from, &mut to)?;
            }
        }
        to.set_permissions(Permissions::from_mode(mode))?;
        fs::rename(partial, self.root.join(name))
    }

    /// The content of a file that contains paths of the package. None for others.
    fn relocated(&self, name: &Path, from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
        let texts = [
            Path::new(OURS).join("php.ini"),
            Path::new(APART).join("surus.toml"),
        ];
        let is_libphp = name
            .strip_prefix(Path::new(OURS).join("lib"))
            .is_ok_and(|name| {
                name.as_os_str()
                    .as_encoded_bytes()
                    .starts_with(LIBPHP.as_bytes())
            });
        if is_libphp {
            let mut library = Vec::new();
            from.read_to_end(&mut library)?;
            let patched = php::with_zones(library.clone(), &self.zones);
            return Ok(Some(patched.unwrap_or(library)));
        }
        if texts.iter().any(|text| text == name) {
            let mut text = String::new();
            from.read_to_string(&mut text)?;
            return Ok(Some(text.replace(UNPACKED, self.root_text).into_bytes()));
        }
        Ok(None)
    }

    /// Says that all files are there, once they are on the disk.
    fn complete(&self, mark: &str) -> anyhow::Result<()> {
        let partial = self.root.join(PARTIAL);
        let path = self.root.join(COMPLETE);
        let written = fs::write(&partial, mark)
            .and_then(|()| appended::sync(File::open(&partial)?))
            .and_then(|()| fs::rename(&partial, &path));
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Removes what was written.
    fn remove(&self) {
        for name in [OURS, APART, &PackageKind::Executable.zones()] {
            let _ = fs::remove_dir_all(self.root.join(name));
        }
        let _ = fs::remove_file(self.root.join(PARTIAL));
    }
}

/// Adds the remedy for a lack of room.
fn explained<R: Read + io::Seek>(
    error: anyhow::Error,
    zip: &mut ZipArchive<R>,
    base: &Path,
) -> anyhow::Error {
    let is_full = error
        .chain()
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| {
            [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].contains(&error.kind())
        });
    if !is_full {
        return error;
    }
    let needed = zip.decompressed_size().unwrap_or(0) >> 20;
    error.context(format!(
        "the application needs {} MiB in {}; make room, or set SURUS_BUILD_DIR to a directory \
         elsewhere",
        needed + 1,
        base.display()
    ))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
