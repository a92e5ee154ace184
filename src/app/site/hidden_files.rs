//! Decides which existing files and scripts answer 404: the built-in list of private files, as
//! changed by `site.hidden`.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use ignore::Match;
use ignore::gitignore::Gitignore;

use super::normalize::fold;
use crate::private_files::{self, Class, LIBRARIES, Purpose};

#[derive(Debug)]
pub(super) struct Hidden {
    /// The patterns of the settings, which precede the built-in list.
    own: Gitignore,
    /// The document root contains the project's libraries.
    has_libraries: bool,
}

/// Why a file is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HiddenBy {
    /// Matches `site.hidden`.
    Setting,
    /// Matches the built-in list.
    Class(&'static Class),
}

impl Hidden {
    pub(super) fn new(patterns: &[String], has_libraries: bool) -> Result<Hidden> {
        Ok(Hidden {
            own: own(patterns)?,
            has_libraries,
        })
    }

    /// Whether a pattern shows what others hide.
    pub(super) fn shows_some(&self) -> bool {
        self.own.num_whitelists() > 0
    }

    /// Why `path` is hidden, if it is. `path` is a URL path, or relative to the document root.
    /// `real` is the real path if symbolic links led out of the document root. `content` is read if
    /// the names do not decide.
    pub(super) fn why(
        &self,
        path: &str,
        real: Option<&Path>,
        is_directory: bool,
        content: impl Read + Clone,
    ) -> Option<HiddenBy> {
        let path = path.trim_start_matches('/');
        match self.own.matched_path_or_any_parents(path, is_directory) {
            Match::Ignore(_) => return Some(HiddenBy::Setting),
            Match::Whitelist(_) => return None,
            Match::None => {}
        }
        let path = fold(path);
        if self.has_libraries && private_files::is_in_libraries(&path, is_directory) {
            return Some(HiddenBy::Class(&LIBRARIES));
        }
        let class = |path: &str| private_files::class_of(path, is_directory, Purpose::Sending);
        // A link must not expose a hidden file under another name.
        let of_real = || class(&fold(&real?.to_string_lossy()));
        let is_excused = |class: &Class| class.excuses(content.clone(), Purpose::Sending);
        let found = class(&path).filter(|class| !is_excused(class));
        let found = found.or_else(|| of_real().filter(|class| !is_excused(class)))?;
        Some(HiddenBy::Class(found))
    }
}

pub(super) fn own(patterns: &[String]) -> Result<Gitignore> {
    private_files::own(patterns).context("`hidden` is wrong")
}
