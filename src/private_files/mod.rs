//! The list of private files: which files are never sent to visitors and which are not packaged.
//! Each class has its reason.
//!
//! Patterns have the syntax of `.gitignore` and match lowercase paths relative to the document root
//! or the project. The last matching pattern decides, so exceptions (`!`) follow the patterns that
//! they except.

mod content;
mod list;
mod packaged;
mod pages;
mod patterns;
mod rotated;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, ensure};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

pub use content::{Shared, Unopened};
use pages::ASSETS;
pub use pages::LIBRARIES;
use patterns::Patterns;

/// All classes, in the order of their patterns.
fn classes() -> impl Iterator<Item = &'static Class> {
    list::CLASSES.iter().chain(packaged::CLASSES)
}

/// Files of one kind, with a common reason.
#[derive(Debug, PartialEq, Eq)]
pub struct Class {
    pub name: &'static str,
    /// The harm if strangers get the files; completes "kept back because …".
    pub reason: &'static str,
    rule: PrivateFileRule,
    patterns: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrivateFileRule {
    /// Never sent. The application may read the file, so it is packaged.
    Unsent,
    /// Not packaged. Another class decides whether the file is sent.
    Unpackaged,
    /// Neither sent nor packaged.
    Both,
    /// Like `Both`, but files that contain only certificates or public keys are packaged.
    /// Applications need certificates of authorities to reach databases.
    BothUnlessPublic,
    /// Like `Both`, if the content is a private key. The names are ambiguous: HLS streams and
    /// Keynote documents end in `.key`, and `id_mapping` may be a directory.
    BothIfPrivateKey {
        /// Short files are raw keys, which have no marker.
        or_short: bool,
        /// Short archives and compressed files hold a key, too.
        or_packed: bool,
    },
    /// Like `Unpackaged`, because of secrets.
    UnpackagedSecret,
    /// Like `Unpackaged`, if the content is a private key.
    UnpackagedIfPrivateKey,
    /// Like `Both`, if the content is a core dump. Directories and pages have such names, too.
    BothIfCoreDump,
}

/// The purpose for which a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Sending,
    Packaging,
}

/// The class that keeps a file back by its name. `path` is lowercase and has no leading slash.
/// Files below a directory of a class belong to the class. When packaging, the caller has already
/// checked the parent directories.
pub fn class_of(path: &str, is_directory: bool, purpose: Purpose) -> Option<&'static Class> {
    match purpose {
        Purpose::Sending => class_on_the_way(path, is_directory, purpose),
        Purpose::Packaging => class_of_name(path, is_directory, purpose),
    }
}

/// Like [`class_of`], but checks the parent directories for both purposes. They come first, because
/// files in them are kept back regardless of their names and contents.
pub fn class_on_the_way(
    path: &str,
    is_directory: bool,
    purpose: Purpose,
) -> Option<&'static Class> {
    let mut above = path.match_indices('/').map(|(end, _)| &path[..end]);
    let above = above.find_map(|directory| class_of_name(directory, true, purpose));
    let is_asset = purpose == Purpose::Sending && !is_directory && is_asset(path);
    above.or_else(|| match is_asset {
        true => None,
        false => class_of_name(path, is_directory, purpose),
    })
}

fn class_of_name(path: &str, is_directory: bool, purpose: Purpose) -> Option<&'static Class> {
    static SENDING: LazyLock<Patterns> = LazyLock::new(|| built_in(Purpose::Sending));
    static PACKAGING: LazyLock<Patterns> = LazyLock::new(|| built_in(Purpose::Packaging));
    let patterns = match purpose {
        Purpose::Sending => &SENDING,
        Purpose::Packaging => &PACKAGING,
    };
    let found = patterns.class_of(path, is_directory);
    found.filter(|class| !is_directory || !class.rule.needs_content())
}

/// The part of `real`, the target of a link, that differs from `root`. Directories above both do
/// not classify a file.
pub fn apart(real: &Path, root: &Path) -> PathBuf {
    let pairs = real.components().zip(root.components());
    let shared = pairs.take_while(|(one, other)| one == other).count();
    real.components().skip(shared).collect()
}

/// Whether `path`, as for [`class_of`], is in a directory of libraries and not a browser asset.
pub fn is_in_libraries(path: &str, is_directory: bool) -> bool {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let is_below = LIBRARIES
        .patterns
        .iter()
        .any(|pattern| pattern.trim_matches('/') == first);
    is_below && (is_directory || !rest.is_empty() && !is_asset(rest))
}

fn is_asset(path: &str) -> bool {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending);
    ending.is_some_and(|ending| ASSETS.contains(&ending))
}

impl Class {
    /// Whether its files are left out of a package because of their secrets.
    pub fn is_secret(&self) -> bool {
        !matches!(
            self.rule,
            PrivateFileRule::Unsent | PrivateFileRule::Unpackaged
        )
    }

    fn concerns(&self, purpose: Purpose) -> bool {
        match self.rule {
            PrivateFileRule::Unsent => purpose == Purpose::Sending,
            PrivateFileRule::Unpackaged
            | PrivateFileRule::UnpackagedSecret
            | PrivateFileRule::UnpackagedIfPrivateKey => purpose == Purpose::Packaging,
            PrivateFileRule::Both
            | PrivateFileRule::BothUnlessPublic
            | PrivateFileRule::BothIfPrivateKey { .. }
            | PrivateFileRule::BothIfCoreDump => true,
        }
    }
}

impl PrivateFileRule {
    /// Whether names alone keep nothing back.
    fn needs_content(self) -> bool {
        matches!(
            self,
            PrivateFileRule::BothIfPrivateKey { .. }
                | PrivateFileRule::UnpackagedIfPrivateKey
                | PrivateFileRule::BothIfCoreDump
        )
    }
}

fn built_in(purpose: Purpose) -> Patterns {
    // The list is constant, and a test builds it.
    Patterns::new(purpose).expect("the built-in patterns are valid")
}

/// The patterns of files that are not packaged because of their secrets, whatever their content,
/// each with the name of its class. They start at the project.
pub fn secret_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let concerns = |class: &&Class| match class.rule {
        PrivateFileRule::Both
        | PrivateFileRule::BothUnlessPublic
        | PrivateFileRule::UnpackagedSecret => true,
        PrivateFileRule::Unpackaged => class.name.is_empty(),
        PrivateFileRule::Unsent
        | PrivateFileRule::BothIfPrivateKey { .. }
        | PrivateFileRule::UnpackagedIfPrivateKey
        | PrivateFileRule::BothIfCoreDump => false,
    };
    classes().filter(concerns).flat_map(|class| {
        let patterns = class.patterns.iter();
        patterns.map(|pattern| (class.name, *pattern))
    })
}

/// The application's patterns, in their order.
pub fn own(patterns: &[String]) -> anyhow::Result<Gitignore> {
    let mut builder = GitignoreBuilder::new("");
    builder.case_insensitive(true)?;
    for pattern in patterns {
        let says =
            "is not a .gitignore pattern, such as \"/internal/\", \"*.csv\" or \"!/files/*.sql\"";
        ensure!(
            !pattern.trim().is_empty() && !pattern.starts_with('#') && !has_open_class(pattern),
            "{pattern:?} {says}"
        );
        let added = builder.add_line(None, pattern);
        added.with_context(|| format!("{pattern:?} {says}"))?;
    }
    Ok(builder.build()?)
}

/// Whether a `[` has no `]`. Git takes it for the character itself, which is hardly ever meant.
fn has_open_class(pattern: &str) -> bool {
    let (mut is_open, mut is_escaped) = (false, false);
    for c in pattern.chars() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => is_open = true,
            ']' => is_open = false,
            _ => {}
        }
    }
    is_open
}

/// Converts a file path to the form that [`class_of`] expects.
pub fn lowercase(path: &Path) -> String {
    path.to_string_lossy().to_lowercase()
}
