//! Which file is at a path below a directory, and whether the way to it may be gone.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use surus_sys::openat2;
use surus_sys::openat2::{Access, Refused};
use tracing::error;

use super::access_check::Reader;
use super::normalize::{Kind, kind};
use crate::observe::rate_limit::Rarely;

/// Which symbolic links are followed out of a directory that is served. Links that stay inside
/// always are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Symlinks {
    /// None.
    Inside,
    /// Those that belong to root or to the owner of what they lead to, so that a link in an upload
    /// directory shows nobody's files but those of the user who made it.
    #[default]
    Owner,
    /// All.
    Follow,
}

/// As many as the kernel follows.
const MOST_LINKS: u32 = 40;

/// A directory below which files are opened.
#[derive(Debug)]
pub(crate) struct Root {
    dir: OwnedFd,
    /// Without symbolic links.
    path: PathBuf,
    symlinks: Symlinks,
    /// The kernel has `openat2`.
    strict: bool,
    /// Whose files these are, where that is not us.
    reader: Option<Reader>,
}

/// What is at a path.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart at once, and mostly it is the large one"
)]
pub(crate) enum Opened {
    Regular {
        file: File,
        metadata: Metadata,
        /// Where the file really is, when symbolic links led to it.
        real: Option<PathBuf>,
    },
    Directory,
    Missing,
    /// Something that is not for this client; for the log.
    Denied(Denial),
    /// It could not be looked at.
    Failed(Trouble),
}

/// Why nobody can say what is at a path; the log has more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Descriptors or memory are short, which passes.
    Scarce,
    /// A failing disk, for example.
    Broken,
}

/// Why what is there is not for this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// A symbolic link leads out.
    LinkOutside,
    /// A symbolic link leads out, to what is not its owner's.
    LinkOfAnother,
    /// Neither a file nor a directory.
    Special,
    /// To whom Surus runs as.
    Unreadable,
    /// To whom PHP runs as.
    UnreadableToPhp,
    /// By an `.htaccess` file.
    Closed,
    /// An `.htaccess` file asks for a password.
    NeedsUser,
    /// An `.htaccess` file switches PHP off, or on for what is no PHP file.
    PhpOff,
    /// An `.htaccess` file has a rule that cannot be evaluated.
    UnknownRule,
    /// An `.htaccess` file cannot be read as Apache would.
    BrokenHtaccess,
    /// PHP in a directory for uploads.
    UploadedSource,
    /// A symbolic link leads to such.
    LinkToUploadedSource,
}

impl Denial {
    /// Do its permissions deny it?
    pub fn is_about_permissions(self) -> bool {
        matches!(self, Denial::Unreadable | Denial::UnreadableToPhp)
    }

    /// In words, for the log: with what to do about it.
    pub fn why(self) -> &'static str {
        match self {
            Denial::LinkOutside => {
                "a symbolic link leads out of the document root; `symlinks = \"owner\"` or `\"follow\"` in the settings of the site would follow it"
            }
            Denial::LinkOfAnother => {
                "a symbolic link leads out of the document root to something that the link's owner does not own; `chown -h` the link, or set `symlinks = \"follow\"` in the settings of the site"
            }
            Denial::Special => "not a regular file",
            Denial::Unreadable => {
                "permission denied: the user that surus runs as may not read this file or enter its directory"
            }
            Denial::UnreadableToPhp => {
                "permission denied: the user that PHP runs as (engine.user) may not read this file or enter its directory"
            }
            Denial::Closed => {
                "an .htaccess file denies it; `htaccess = false` in the settings of the site would open it"
            }
            Denial::NeedsUser => {
                "an .htaccess file asks for a password, which Surus does not; protect it in the application or in a proxy before Surus"
            }
            Denial::PhpOff => "an .htaccess file switches PHP off here; source is not sent, either",
            Denial::UnknownRule => {
                "an .htaccess file has a rule that Surus cannot evaluate; `surus check` names it"
            }
            Denial::BrokenHtaccess => {
                "an .htaccess file cannot be read, or Apache would not take it; `surus check` names its line"
            }
            Denial::UploadedSource => "PHP below `uploads` is never run and never sent",
            Denial::LinkToUploadedSource => {
                "a symbolic link leads to PHP below `uploads`, which is never run"
            }
        }
    }
}

/// Why the way to a file ends.
enum End {
    Missing,
    Denied(Denial),
    Failed(Trouble),
}

impl From<End> for Opened {
    fn from(end: End) -> Self {
        match end {
            End::Missing => Opened::Missing,
            End::Denied(why) => Opened::Denied(why),
            End::Failed(trouble) => Opened::Failed(trouble),
        }
    }
}

impl Root {
    pub(crate) fn open(directory: &Path, symlinks: Symlinks) -> Result<Root> {
        let path = directory
            .canonicalize()
            .with_context(|| format!("cannot find the directory {}", directory.display()))?;
        ensure!(
            path.is_dir(),
            "{} is a file; it must be a directory",
            path.display()
        );
        ensure!(
            path.parent().is_some(),
            "the directory / holds everything; name the one that is to be served"
        );
        // A link that has come into the path since then is not followed.
        let dir = openat2::directory(&path).with_context(|| {
            format!(
                "cannot enter the directory {} as the user that surus runs as",
                path.display()
            )
        })?;
        Ok(Root {
            dir,
            path,
            symlinks,
            strict: openat2::supported(),
            reader: None,
        })
    }

    /// A directory that another process has opened, at this path.
    pub(crate) fn adopt(path: PathBuf, dir: OwnedFd, symlinks: Symlinks) -> Root {
        Root {
            dir,
            path,
            symlinks,
            strict: openat2::supported(),
            reader: None,
        }
    }

    /// Only what PHP's user may read is opened to be read.
    pub(super) fn read_by(mut self, reader: Reader) -> Root {
        self.reader = Some(reader);
        self
    }

    /// The directory.
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Where an absolute path really is, or why nobody may know.
    pub(crate) fn resolve(&self, path: &Path) -> Result<PathBuf, Option<Denial>> {
        let real = path.canonicalize();
        match (real, &self.reader) {
            (Ok(real), _) => Ok(real),
            // On the way may be a directory that only PHP's user may enter.
            (Err(error), Some(reader)) if error.kind() != std::io::ErrorKind::NotFound => {
                reader.resolve(path)
            }
            (Err(_), _) => Err(None),
        }
    }

    /// Absolute, without symbolic links or a trailing slash.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks up `relative`, which must have no `.` or `..` in it, and no hidden segment that the
    /// caller would not show.
    ///
    /// The name that the client used says nothing about where a symbolic link leads: behind one,
    /// neither a dot file nor PHP source that the name did not say is ever opened.
    pub(crate) fn get(&self, relative: &Path, access: Access) -> Opened {
        let opened = self.get_or_enter(relative, access);
        let Some(reader) = &self.reader else {
            return opened;
        };
        match (&opened, access) {
            (Opened::Regular { metadata, .. }, Access::Read)
                if reader.has_read(relative, metadata) =>
            {
                opened
            }
            // Where the front may less or more than PHP's user, that user decides.
            (Opened::Regular { .. }, Access::Read) | (Opened::Denied(Denial::Unreadable), _) => {
                drop(opened);
                reader.open(relative, access)
            }
            _ => opened,
        }
    }

    fn get_or_enter(&self, relative: &Path, access: Access) -> Opened {
        match self.get_for(relative, access) {
            // A directory that may be entered but not listed is one all the same.
            Opened::Denied(Denial::Unreadable) if access == Access::Read => {
                match self.get_for(relative, Access::Look) {
                    Opened::Directory => Opened::Directory,
                    _ => Opened::Denied(Denial::Unreadable),
                }
            }
            opened => opened,
        }
    }

    fn get_for(&self, relative: &Path, access: Access) -> Opened {
        let first = if self.strict {
            openat2::beneath(self.dir.as_fd(), relative, access)
        } else {
            Err(Refused::Link)
        };
        match first {
            Ok(file) => look(file, relative, None),
            Err(Refused::Link) => match self.walk(relative) {
                Ok(real) => self.get_real(relative, real, access),
                Err(end) => end.into(),
            },
            Err(refused) => explain(refused, relative).into(),
        }
    }

    fn get_real(&self, relative: &Path, real: PathBuf, access: Access) -> Opened {
        if self.conceals(relative, &real) {
            return Opened::Missing;
        }
        // The path has no links now; one that appears since then is not followed.
        let opened = if self.strict {
            openat2::exactly(&real, access)
        } else {
            openat2::loosely(&real, access)
        };
        match opened {
            Ok(file) => {
                let path = real.clone();
                look(file, &path, Some(real))
            }
            Err(refused) => explain(refused, &real).into(),
        }
    }

    /// Where `relative` really is, following the links that may be followed.
    fn walk(&self, relative: &Path) -> Result<PathBuf, End> {
        let mut real = self.path.clone();
        let mut links = 0;
        let mut todo = Vec::new();
        push_steps(&mut todo, relative);
        while let Some(step) = todo.pop() {
            match step {
                Step::Top => real = PathBuf::from("/"),
                Step::Up => {
                    real.pop();
                }
                Step::Down(name) => {
                    real.push(name);
                    let metadata = metadata(&real)?;
                    if !metadata.is_symlink() {
                        continue;
                    }
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(End::Missing);
                    }
                    let target =
                        std::fs::read_link(&real).map_err(|error| explain(error.into(), &real))?;
                    real.pop();
                    todo.push(Step::Arrived {
                        owner: metadata.uid(),
                    });
                    push_steps(&mut todo, &target);
                }
                Step::Arrived { owner } => self.allow(owner, &real)?,
            }
        }
        Ok(real)
    }

    /// May a link of this owner lead to `target`?
    fn allow(&self, owner: u32, target: &Path) -> Result<(), End> {
        if target.starts_with(&self.path) {
            return Ok(());
        }
        match self.symlinks {
            Symlinks::Follow => Ok(()),
            Symlinks::Inside => Err(End::Denied(Denial::LinkOutside)),
            Symlinks::Owner if owner == 0 || owner == metadata(target)?.uid() => Ok(()),
            Symlinks::Owner => Err(End::Denied(Denial::LinkOfAnother)),
        }
    }

    /// Is it a dot file, or PHP source under a name that does not say so?
    fn conceals(&self, asked: &Path, real: &Path) -> bool {
        // No client can ask for it: it is opened to be heard.
        if asked.file_name().is_some_and(|name| name == ".htaccess") {
            return false;
        }
        // What is above the site, or common to both, says nothing: the whole project may live below
        // `~/.local`.
        let common = self
            .path
            .iter()
            .zip(real.iter())
            .take_while(|(a, b)| a == b);
        let inside = real.starts_with(&self.path);
        // The caller has named it so.
        let end = match real.file_name() == asked.file_name() {
            true => real.parent().unwrap_or(real),
            false => real,
        };
        let mut rest = end.iter().skip(common.count()).enumerate();
        let hidden = rest.any(|(depth, name)| {
            let name = name.as_encoded_bytes();
            // Kubernetes mounts a ConfigMap as links through `..data`.
            let meant = name.starts_with(b"..") || inside && depth == 0 && name == b".well-known";
            name.starts_with(b".") && !meant
        });
        hidden || kind_of(real) != Kind::Plain && kind_of(asked) != Kind::Script
    }

    #[cfg(test)]
    pub(super) fn without_openat2(mut self) -> Root {
        self.strict = false;
        self
    }
}

enum Step {
    Top,
    Up,
    Down(OsString),
    /// A link of this owner has been resolved.
    Arrived {
        owner: u32,
    },
}

fn push_steps(todo: &mut Vec<Step>, path: &Path) {
    todo.extend(path.components().rev().filter_map(|part| match part {
        Component::RootDir => Some(Step::Top),
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Down(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    }));
}

fn metadata(path: &Path) -> Result<Metadata, End> {
    std::fs::symlink_metadata(path).map_err(|error| explain(error.into(), path))
}

fn look(file: File, path: &Path, real: Option<PathBuf>) -> Opened {
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Opened::Regular {
            file,
            metadata,
            real,
        },
        Ok(metadata) if metadata.is_dir() => Opened::Directory,
        Ok(_) => Opened::Denied(Denial::Special),
        Err(error) => explain(error.into(), path).into(),
    }
}

fn explain(refused: Refused, path: &Path) -> End {
    // What troubles one request, mostly troubles many.
    static SAID: Rarely = Rarely::new();
    match refused {
        Refused::Missing | Refused::Link => End::Missing,
        Refused::Special => End::Denied(Denial::Special),
        Refused::Forbidden => End::Denied(Denial::Unreadable),
        Refused::Scarce(error) => {
            if SAID.is_time(Instant::now()) {
                let path = path.display();
                error!(%path, %error, "a file could not be opened; raise the limit of open files (LimitNOFILE= of systemd, ulimit -n), or lower http.max_connections");
            }
            End::Failed(Trouble::Scarce)
        }
        Refused::Other(error) => {
            if SAID.is_time(Instant::now()) {
                let path = path.display();
                error!(%path, %error, "a file could not be opened; look at its file system, whose errors the kernel logs");
            }
            End::Failed(Trouble::Broken)
        }
    }
}

fn kind_of(path: &Path) -> Kind {
    // A name that is not UTF-8 is compared as far as it is; the endings are ASCII.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    kind(&name)
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    #[test]
    fn what_fails_is_neither_missing_nor_denied() {
        let opened = |number| {
            let refused = Error::from_raw_os_error(number).into();
            explain(refused, Path::new("x")).into()
        };
        const ENOENT: i32 = 2;
        const EIO: i32 = 5;
        const ENOMEM: i32 = 12;
        const EACCES: i32 = 13;
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        assert!(matches!(opened(ENOENT), Opened::Missing));
        assert!(matches!(opened(EACCES), Opened::Denied(_)));
        assert!(matches!(opened(EIO), Opened::Failed(Trouble::Broken)));
        for number in [ENOMEM, ENFILE, EMFILE] {
            assert!(matches!(opened(number), Opened::Failed(Trouble::Scarce)));
        }
    }
}
