//! Finds the file or script at a path without `.htaccess` files on its way.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use surus_sys::openat2::Access;
use tracing::debug;

use super::hidden_files::{Hidden, HiddenBy};
use super::normalize::{NameKind, NormalizedPath, SegmentError, fold, kind, normalize};
use super::opened::{Denial, LookupError, OpenedPath};
use super::{Facts, FoundFile, Purpose, Resolution, Site, encode};
use crate::event::Script;
use crate::private_files::{self, Shared, Unopened};

impl Site {
    /// Looks up a path without `.htaccess` files on its way. None for a directory that has one and
    /// is named without its trailing slash.
    pub(super) fn find_without_htaccess(
        &self,
        purpose: Purpose,
        facts: &Facts<'_>,
        path: &NormalizedPath<'_>,
        now: Instant,
    ) -> Option<Resolution> {
        let (files, stop) = path.files();
        if let Some(resolution) = self.find_script(path, files, now) {
            return Some(resolution);
        }
        match stop {
            Some(SegmentError::Hidden) => return Some(Resolution::NotFound),
            Some(SegmentError::NoFile) => return Some(self.fall_back()),
            None => {}
        }
        let (_, name) = files.rsplit_once('/').unwrap_or_default();
        if name.is_empty() {
            let index = self.find_index(files, now);
            return Some(index.unwrap_or_else(|| self.fall_back()));
        }
        if kind(name) != NameKind::Plain {
            return Some(self.fall_back());
        }
        Some(match self.root.get(Path::new(&files[1..]), Access::Read) {
            OpenedPath::Regular { file, real, .. }
                if purpose == Purpose::Visitor
                    && self.hides(files, real.as_deref(), Shared::new(&file)) =>
            {
                Resolution::NotFound
            }
            OpenedPath::Regular { file, metadata, .. } => Resolution::File(FoundFile {
                path: self.root.path().join(&files[1..]),
                file,
                metadata,
                media_type: None,
            }),
            OpenedPath::Directory => {
                let directory = format!("{files}/");
                if let Some(htaccess) = self.htaccess_for(purpose) {
                    match self.merged(htaccess, facts, &directory, now) {
                        Err(later) => return Some(Resolution::Later(later)),
                        Ok((own, _)) if !own.is_empty() => return None,
                        Ok(_) => {}
                    }
                }
                match self.find_index(&directory, now) {
                    Some(Resolution::NotFound) => Resolution::NotFound,
                    Some(Resolution::Denied(why)) => Resolution::Denied(why),
                    Some(Resolution::Failed(error)) => Resolution::Failed(error),
                    Some(_) => Resolution::Redirect(encode(&directory)),
                    None => self.fall_back(),
                }
            }
            OpenedPath::Missing => self.fall_back(),
            OpenedPath::Denied(why) => Resolution::Denied(why),
            OpenedPath::Failed(error) => Resolution::Failed(error),
        })
    }

    /// The file named by appending `suffix` to `path`, under the same rules.
    pub fn sibling(&self, path: &Path, suffix: &str) -> Option<FoundFile> {
        let mut path = path.to_path_buf().into_os_string();
        path.push(suffix);
        let path = PathBuf::from(path);
        let relative = path.strip_prefix(self.root.path()).ok()?;
        match self.root.get(relative, Access::Read) {
            OpenedPath::Regular { file, metadata, .. } => Some(FoundFile {
                path,
                file,
                metadata,
                media_type: None,
            }),
            _ => None,
        }
    }

    fn find_script(
        &self,
        path: &NormalizedPath<'_>,
        files: &str,
        now: Instant,
    ) -> Option<Resolution> {
        match self.find_script_at(path, files, now)? {
            Ok((script, _)) => Some(Resolution::Script(script)),
            Err(NoScript::Missing | NoScript::Directory) => None,
            Err(NoScript::Hidden) => Some(Resolution::NotFound),
            Err(NoScript::Denied(why)) => Some(Resolution::Denied(why)),
            Err(NoScript::Failed(error)) => Some(Resolution::Failed(error)),
        }
    }

    /// The first part of the path that is a script, with the rest as `PATH_INFO`, and the end of
    /// that part.
    pub(super) fn find_script_at(
        &self,
        path: &NormalizedPath<'_>,
        files: &str,
        now: Instant,
    ) -> Option<Result<(Script, usize), NoScript>> {
        if self.scriptless {
            return None;
        }
        // Paths are short; search algorithms for long texts take longer to set up.
        let slashes = files.bytes().enumerate().skip(1);
        let slashes = slashes.filter_map(|(at, byte)| (byte == b'/').then_some(at));
        for end in slashes.chain([files.len()]) {
            let name = &files[..end];
            if !name.ends_with(".php") {
                continue;
            }
            match self.script_at(name, now) {
                // Below a missing directory there is no script either.
                Err(NoScript::Missing) => return None,
                Err(NoScript::Directory) => {}
                Err(other) => return Some(Err(other)),
                Ok(script) => {
                    let script = Script {
                        path_info: path.rest(end),
                        ..script
                    };
                    return Some(Ok((script, end)));
                }
            }
        }
        None
    }

    pub(super) fn script_at(&self, name: &str, now: Instant) -> Result<Script, NoScript> {
        if let Some(script) = self.recent.get(name.as_bytes(), now) {
            return Ok(script);
        }
        match self.root.get(Path::new(&name[1..]), Access::Metadata) {
            OpenedPath::Regular {
                real: Some(real), ..
            } if self.is_really_uploaded(&real) => {
                Err(NoScript::Denied(Denial::LinkToUploadedSource))
            }
            // Scripts are not checked by content, because keys are not PHP.
            OpenedPath::Regular { real, .. }
                if self.hides(name, real.as_deref(), std::io::empty()) =>
            {
                Err(NoScript::Hidden)
            }
            OpenedPath::Regular { .. } => {
                let script = Script {
                    root: self.document_root.clone(),
                    filename: self.root.path().join(&name[1..]).into(),
                    name: name.into(),
                    path_info: OsString::new(),
                    query: None,
                    rewritten: None,
                };
                self.recent.put(name.as_bytes(), script.clone(), now);
                Ok(script)
            }
            OpenedPath::Directory => Err(NoScript::Directory),
            OpenedPath::Missing => Err(NoScript::Missing),
            OpenedPath::Denied(why) => Err(NoScript::Denied(why)),
            OpenedPath::Failed(error) => Err(NoScript::Failed(error)),
        }
    }

    /// The index file of a directory, named with its trailing slash.
    fn find_index(&self, directory: &str, now: Instant) -> Option<Resolution> {
        self.index.iter().find_map(|name| {
            let file = format!("{directory}{name}");
            if kind(name) != NameKind::Script {
                return match self.root.get(Path::new(&file[1..]), Access::Read) {
                    OpenedPath::Regular {
                        file: open, real, ..
                    } if self.hides(&file, real.as_deref(), Shared::new(&open)) => {
                        Some(Resolution::NotFound)
                    }
                    OpenedPath::Regular {
                        file: open,
                        metadata,
                        ..
                    } => Some(Resolution::File(FoundFile {
                        path: self.root.path().join(&file[1..]),
                        file: open,
                        metadata,
                        media_type: None,
                    })),
                    OpenedPath::Denied(why) => Some(Resolution::Denied(why)),
                    OpenedPath::Failed(error) => Some(Resolution::Failed(error)),
                    OpenedPath::Missing | OpenedPath::Directory => None,
                };
            }
            if self.scriptless || self.is_uploaded_source(&file) {
                return None;
            }
            // A script named on the command line replaces the index.php in its directory.
            if let (Some(front), "/", "index.php") = (&self.front_controller, directory, &**name) {
                return Some(Resolution::Script(front.clone()));
            }
            match self.script_at(&file, now) {
                Ok(script) => Some(Resolution::Script(script)),
                Err(NoScript::Hidden) => Some(Resolution::NotFound),
                Err(NoScript::Denied(why)) => Some(Resolution::Denied(why)),
                Err(NoScript::Failed(error)) => Some(Resolution::Failed(error)),
                Err(NoScript::Missing | NoScript::Directory) => None,
            }
        })
    }

    fn fall_back(&self) -> Resolution {
        match &self.front_controller {
            Some(script) if self.falls_back => Resolution::Script(script.clone()),
            _ => Resolution::NotFound,
        }
    }

    /// Whether an existing file or script is treated as missing.
    pub(super) fn hides(
        &self,
        path: &str,
        real: Option<&Path>,
        content: impl Read + Clone,
    ) -> bool {
        let Some(hidden) = &self.hidden else {
            return false;
        };
        let real = real.map(|real| private_files::apart(real, self.root.path()));
        let Some(why) = hidden.why(path, real.as_deref(), false, content) else {
            return false;
        };
        debug!(path, reason = ?why, "hidden file not sent");
        true
    }

    /// Why a file or directory below the document root is hidden from visitors. `real` is its real
    /// path if links lead to it.
    pub fn why_hidden(
        &self,
        path: &Path,
        real: Option<&Path>,
        is_directory: bool,
    ) -> Option<HiddenBy> {
        let relative = path.strip_prefix(self.root.path()).ok()?;
        let hidden = self.hidden.as_ref()?;
        let real = real.map(|real| private_files::apart(real, self.root.path()));
        let content = Unopened::new(path);
        let relative = relative.to_string_lossy();
        hidden.why(&relative, real.as_deref(), is_directory, content)
    }

    /// Whether requests may run scripts in a directory below the document root, or deeper.
    /// `real` is its real path if links lead to it. `.htaccess` files are not considered.
    pub fn may_run_scripts_below(&self, directory: &Path, real: Option<&Path>) -> bool {
        if self.scriptless || !self.has_files && self.front_controller.is_some() {
            return false;
        }
        let relative = match directory.strip_prefix(self.root.path()) {
            Ok(relative) if relative != Path::new("") => relative,
            _ => return true,
        };
        let script = format!("/{}/index.php", relative.to_string_lossy());
        let names_file = normalize(&encode(&script)).is_ok_and(|path| path.files().1.is_none());
        let is_uploaded = self.is_uploaded_source(&script)
            || real.is_some_and(|real| self.is_really_uploaded(&real.join("index.php")));
        // A pattern that shows something may show a script in a hidden directory.
        let shows_some = self.hidden.as_ref().is_some_and(Hidden::shows_some);
        let is_hidden = !shows_some && self.why_hidden(directory, real, true).is_some();
        names_file && !is_uploaded && !is_hidden
    }

    /// The script that a file below the document root is for requests. `.htaccess` files are not
    /// considered.
    pub fn script_of(&self, file: &Path) -> Option<Script> {
        let name = file.strip_prefix(self.root.path()).ok()?.to_str()?;
        let raw = encode(&format!("/{name}"));
        let path = normalize(&raw).ok()?;
        let (files, stop) = path.files();
        if stop.is_some() || self.reject(&path).is_some() {
            return None;
        }
        match self.find_script(&path, files, Instant::now())? {
            Resolution::Script(script) if *script.filename == *file => Some(script),
            _ => None,
        }
    }

    /// Whether requests get into a directory below the document root, also if links lead to it.
    pub fn enters(&self, directory: &Path) -> bool {
        let relative = directory.strip_prefix(self.root.path());
        relative.is_ok_and(|relative| {
            let found = self.root.get(relative, Access::Metadata);
            matches!(found, OpenedPath::Directory)
        })
    }

    pub(super) fn is_uploaded_source(&self, path: &str) -> bool {
        if self.no_php.is_empty() {
            return false;
        }
        let path = fold(path);
        let below = |uploads: &String| {
            let rest = path.strip_prefix(uploads.as_str());
            rest.is_some_and(|rest| {
                rest.starts_with('/') && rest.split('/').any(|s| kind(s) != NameKind::Plain)
            })
        };
        self.no_php.iter().any(below)
    }

    fn is_really_uploaded(&self, real: &Path) -> bool {
        let below_root = real.strip_prefix(self.root.path());
        below_root
            .is_ok_and(|path| self.is_uploaded_source(&format!("/{}", path.to_string_lossy())))
    }
}

/// Why there is no script.
pub(super) enum NoScript {
    Missing,
    Directory,
    Hidden,
    Denied(Denial),
    Failed(LookupError),
}
