//! Opens files below a directory, and decides which symbolic links may lead out of it.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use surus_sys::openat2;
use surus_sys::openat2::{Access, OpenError};
use tracing::error;

use super::access_check::AccessCheck;
use super::normalize::{NameKind, kind};
use super::opened::{Denial, LookupError, OpenedPath};
use crate::observe::rate_limit::RateLimit;

/// Which symbolic links out of a served directory are followed. Links within it always are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Symlinks {
    /// None.
    Inside,
    /// Links of root or of their target's owner, so that a link in an upload directory exposes only
    /// files of the user who created it.
    #[default]
    Owner,
    /// All.
    Follow,
}

/// The kernel's limit.
const MAX_LINKS: u32 = 40;

/// A directory below which files are opened.
#[derive(Debug)]
pub(crate) struct Root {
    dir: OwnedFd,
    /// Without symbolic links.
    path: PathBuf,
    symlinks: Symlinks,
    /// Whether the kernel has `openat2`.
    strict: bool,
    /// Checks access for PHP's user, if the front end runs as another user.
    reader: Option<AccessCheck>,
}

/// Why a path cannot be resolved.
enum WalkError {
    Missing,
    Denied(Denial),
    Failed(LookupError),
}

impl From<WalkError> for OpenedPath {
    fn from(end: WalkError) -> Self {
        match end {
            WalkError::Missing => OpenedPath::Missing,
            WalkError::Denied(why) => OpenedPath::Denied(why),
            WalkError::Failed(error) => OpenedPath::Failed(error),
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
            "the directory / contains the whole system; name the directory to serve"
        );
        // A symbolic link that has appeared in the path meanwhile is not followed.
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

    /// A directory that another process has opened at this path.
    pub(crate) fn adopt(path: PathBuf, dir: OwnedFd, symlinks: Symlinks) -> Root {
        Root {
            dir,
            path,
            symlinks,
            strict: openat2::supported(),
            reader: None,
        }
    }

    /// Opens only files that PHP's user may read.
    pub(super) fn read_by(mut self, reader: AccessCheck) -> Root {
        self.reader = Some(reader);
        self
    }

    /// The directory.
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The real path of an absolute path, or why it must not be revealed.
    pub(crate) fn resolve(&self, path: &Path) -> Result<PathBuf, Option<Denial>> {
        let real = path.canonicalize();
        match (real, &self.reader) {
            (Ok(real), _) => Ok(real),
            // The path may contain a directory that only PHP's user can enter.
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

    /// Looks up `relative`, which must not contain `.`, `..`, or a hidden segment that the caller
    /// would not expose.
    ///
    /// The requested name does not reveal the target of a symbolic link. Behind a link, dot files
    /// are not opened, and PHP source only if the requested name shows that it is source.
    pub(crate) fn get(&self, relative: &Path, access: Access) -> OpenedPath {
        match self.find(relative, access) {
            OpenedPath::Denied(Denial::Concealed) => OpenedPath::Missing,
            opened => opened,
        }
    }

    /// Like [`get`](Self::get), but tells what is [concealed](Denial::Concealed).
    pub(super) fn find(&self, relative: &Path, access: Access) -> OpenedPath {
        let opened = self.get_or_enter(relative, access);
        let Some(reader) = &self.reader else {
            return opened;
        };
        match (&opened, access) {
            (OpenedPath::Regular { metadata, .. }, Access::Read)
                if reader.has_read(relative, metadata) =>
            {
                opened
            }
            // The front end may be able to read less or more than PHP's user, who decides.
            (OpenedPath::Regular { .. }, Access::Read)
            | (OpenedPath::Denied(Denial::Unreadable), _) => {
                drop(opened);
                reader.open(relative, access)
            }
            _ => opened,
        }
    }

    /// Whether a symbolic link is at the path. None if that is unknown.
    pub(super) fn is_link(&self, relative: &Path) -> Option<bool> {
        let found = std::fs::symlink_metadata(self.path.join(relative));
        match (&found, &self.reader) {
            (Err(error), Some(reader)) if error.kind() == ErrorKind::PermissionDenied => {
                reader.is_link(relative)
            }
            _ => is_link(found),
        }
    }

    fn get_or_enter(&self, relative: &Path, access: Access) -> OpenedPath {
        match self.get_for(relative, access) {
            // A directory that can be entered but not listed is a directory, too.
            OpenedPath::Denied(Denial::Unreadable) if access == Access::Read => {
                match self.get_for(relative, Access::Metadata) {
                    OpenedPath::Directory => OpenedPath::Directory,
                    _ => OpenedPath::Denied(Denial::Unreadable),
                }
            }
            opened => opened,
        }
    }

    fn get_for(&self, relative: &Path, access: Access) -> OpenedPath {
        let first = if self.strict {
            openat2::beneath(self.dir.as_fd(), relative, access)
        } else {
            Err(OpenError::Link)
        };
        match first {
            Ok(file) => examine(file, relative, None),
            Err(OpenError::Link) => match self.walk(relative) {
                Ok(real) => self.get_real(relative, real, access),
                Err(end) => end.into(),
            },
            Err(error) => explain(error, relative).into(),
        }
    }

    fn get_real(&self, relative: &Path, real: PathBuf, access: Access) -> OpenedPath {
        if self.conceals(relative, &real) {
            return OpenedPath::Denied(Denial::Concealed);
        }
        // The path contains no links; one that appears later is not followed.
        let opened = if self.strict {
            openat2::absolute(&real, access)
        } else {
            openat2::absolute_without_openat2(&real, access)
        };
        match opened {
            Ok(file) => {
                let path = real.clone();
                examine(file, &path, Some(real))
            }
            Err(error) => explain(error, &real).into(),
        }
    }

    /// The real path of `relative`, resolved through the allowed links.
    fn walk(&self, relative: &Path) -> Result<PathBuf, WalkError> {
        let mut real = self.path.clone();
        let mut links = 0;
        let mut todo = Vec::new();
        push_steps(&mut todo, relative);
        while let Some(step) = todo.pop() {
            match step {
                PathStep::Top => real = PathBuf::from("/"),
                PathStep::Up => {
                    real.pop();
                }
                PathStep::Down(name) => {
                    real.push(name);
                    let metadata = metadata(&real)?;
                    if !metadata.is_symlink() {
                        continue;
                    }
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(match is_htaccess(relative) {
                            // As in Apache: what the link was meant for may deny access.
                            true => WalkError::Denied(Denial::Unreadable),
                            false => WalkError::Missing,
                        });
                    }
                    let target =
                        std::fs::read_link(&real).map_err(|error| explain(error.into(), &real))?;
                    real.pop();
                    todo.push(PathStep::Arrived {
                        owner: metadata.uid(),
                    });
                    push_steps(&mut todo, &target);
                }
                PathStep::Arrived { owner } => self.allow(owner, &real)?,
            }
        }
        Ok(real)
    }

    /// Checks that a link of this owner may lead to `target`.
    fn allow(&self, owner: u32, target: &Path) -> Result<(), WalkError> {
        if target.starts_with(&self.path) {
            return Ok(());
        }
        match self.symlinks {
            Symlinks::Follow => Ok(()),
            Symlinks::Inside => Err(WalkError::Denied(Denial::LinkOutside)),
            Symlinks::Owner if owner == 0 || owner == metadata(target)?.uid() => Ok(()),
            Symlinks::Owner => Err(WalkError::Denied(Denial::LinkOfAnother)),
        }
    }

    /// Whether the target is a dot file, or PHP source whose requested name does not show it.
    fn conceals(&self, requested: &Path, real: &Path) -> bool {
        // Clients cannot request `.htaccess`; Surus opens it to apply its rules.
        if is_htaccess(requested) {
            return false;
        }
        // Directories above the site, or common to both, do not count: the whole project may be
        // below `~/.local`.
        let common = self
            .path
            .iter()
            .zip(real.iter())
            .take_while(|(a, b)| a == b);
        let inside = real.starts_with(&self.path);
        // The caller has allowed this name.
        let end = match real.file_name() == requested.file_name() {
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
        hidden || kind_of(real) != NameKind::Plain && kind_of(requested) != NameKind::Script
    }

    #[cfg(test)]
    pub(super) fn without_openat2(mut self) -> Root {
        self.strict = false;
        self
    }
}

enum PathStep {
    Top,
    Up,
    Down(OsString),
    /// A link of this owner has been resolved.
    Arrived {
        owner: u32,
    },
}

fn push_steps(todo: &mut Vec<PathStep>, path: &Path) {
    todo.extend(path.components().rev().filter_map(|part| match part {
        Component::RootDir => Some(PathStep::Top),
        Component::ParentDir => Some(PathStep::Up),
        Component::Normal(name) => Some(PathStep::Down(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    }));
}

/// Whether metadata are those of a symbolic link. None if that is unknown.
pub(super) fn is_link(found: io::Result<Metadata>) -> Option<bool> {
    match found {
        Ok(found) => Some(found.is_symlink()),
        Err(error) => is_missing(&error).then_some(false),
    }
}

/// Whether nothing can be at the path, as opposed to a failed look-up.
pub(super) fn is_missing(error: &io::Error) -> bool {
    use ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
    // InvalidInput: a NUL in the path.
    matches!(
        error.kind(),
        NotFound | NotADirectory | InvalidFilename | InvalidInput
    )
}

fn is_htaccess(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == ".htaccess")
}

fn metadata(path: &Path) -> Result<Metadata, WalkError> {
    std::fs::symlink_metadata(path).map_err(|error| explain(error.into(), path))
}

fn examine(file: File, path: &Path, real: Option<PathBuf>) -> OpenedPath {
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => OpenedPath::Regular {
            file,
            metadata,
            real,
        },
        Ok(metadata) if metadata.is_dir() => OpenedPath::Directory,
        Ok(_) => OpenedPath::Denied(Denial::Special),
        Err(error) => explain(error.into(), path).into(),
    }
}

fn explain(error: OpenError, path: &Path) -> WalkError {
    // The cause usually affects many requests.
    static REPORTED: RateLimit = RateLimit::new();
    match error {
        OpenError::Missing | OpenError::Link => WalkError::Missing,
        OpenError::Special => WalkError::Denied(Denial::Special),
        OpenError::Forbidden => WalkError::Denied(Denial::Unreadable),
        OpenError::Scarce(error) => {
            if REPORTED.is_time(Instant::now()) {
                let path = path.display();
                error!(%path, %error, "cannot open a file; raise the limit of open files \
                    (LimitNOFILE= of systemd, ulimit -n), or lower http.max_connections");
            }
            WalkError::Failed(LookupError::Scarce)
        }
        OpenError::Other(error) => {
            if REPORTED.is_time(Instant::now()) {
                let path = path.display();
                error!(%path, %error, "cannot open a file; see the kernel log for errors of its \
                    file system");
            }
            WalkError::Failed(LookupError::Broken)
        }
    }
}

fn kind_of(path: &Path) -> NameKind {
    // If a name is not UTF-8, its valid part is compared; the suffixes are ASCII.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    kind(&name)
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    #[test]
    fn failed_look_up_is_neither_missing_nor_denied() {
        let opened = |number| {
            let error = Error::from_raw_os_error(number).into();
            explain(error, Path::new("x")).into()
        };
        const ENOENT: i32 = 2;
        const EIO: i32 = 5;
        const ENOMEM: i32 = 12;
        const EACCES: i32 = 13;
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        assert!(matches!(opened(ENOENT), OpenedPath::Missing));
        assert!(matches!(opened(EACCES), OpenedPath::Denied(_)));
        assert!(matches!(
            opened(EIO),
            OpenedPath::Failed(LookupError::Broken)
        ));
        for number in [ENOMEM, ENFILE, EMFILE] {
            assert!(matches!(
                opened(number),
                OpenedPath::Failed(LookupError::Scarce)
            ));
        }
    }
}
