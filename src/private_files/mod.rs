//! The one list of files that are no pages: which of them are never sent to visitors, and which
//! stay out of packages, each class with its reason.
//!
//! Patterns are those of `.gitignore`, matched against lowercase paths relative to the document
//! root or the project. The last pattern that matches decides, so exceptions (`!`) stand after
//! what they except.

mod content;
mod list;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, ensure};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

pub use content::{Shared, Unopened};
pub use list::LIBRARIES;
use list::{ASSETS, CLASSES};

/// Files of one kind, for one reason.
#[derive(Debug, PartialEq, Eq)]
pub struct Class {
    pub name: &'static str,
    /// What goes wrong if strangers get them; completes "kept back because …".
    pub reason: &'static str,
    rule: Rule,
    patterns: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Never sent; the application may read it, so packages have it.
    Unsent,
    /// Not packaged. Where it could be asked for, another class says whether it is sent.
    Unpackaged,
    /// Neither sent nor packaged.
    Both,
    /// As `Both`, but what holds certificates or public keys alone is packaged: applications reach
    /// databases with the certificates of their authorities.
    BothUnlessPublic,
    /// As `Both`, if the content is a private key. The names alone say too little: HLS streams and
    /// Keynote documents end in `.key`, and `id_mapping` may be a directory.
    BothIfPrivateKey {
        /// Short files are raw keys, which have no mark.
        or_short: bool,
    },
}

/// What a file is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Sending,
    Packaging,
}

/// The class that keeps a file back, by its name alone. `path` is lowercase and has no leading
/// slash; what is below a directory of a class belongs to the class. A caller that packages has
/// decided about the directories above already.
pub fn class_of(path: &str, is_directory: bool, purpose: Purpose) -> Option<&'static Class> {
    match purpose {
        Purpose::Sending => class_on_the_way(path, is_directory, purpose),
        Purpose::Packaging => class_of_name(path, is_directory, purpose),
    }
}

/// As [`class_of`], but looks at the directories above for both purposes. They come first, because
/// a file in them is kept back whatever its own name and content are.
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
    static SENDING: LazyLock<Gitignore> = LazyLock::new(|| built_in(Purpose::Sending));
    static PACKAGING: LazyLock<Gitignore> = LazyLock::new(|| built_in(Purpose::Packaging));
    let patterns = match purpose {
        Purpose::Sending => &SENDING,
        Purpose::Packaging => &PACKAGING,
    };
    let ignore::Match::Ignore(glob) = patterns.matched(path, is_directory) else {
        return None;
    };
    let found = CLASSES
        .iter()
        .filter(|class| class.concerns(purpose))
        .rfind(|class| class.patterns.contains(&glob.original()));
    found.filter(|class| !is_directory || !matches!(class.rule, Rule::BothIfPrivateKey { .. }))
}

/// The names by which `real`, where a link leads, differs from `root`: directories above both say
/// nothing about a file.
pub fn apart(real: &Path, root: &Path) -> PathBuf {
    let pairs = real.components().zip(root.components());
    let shared = pairs.take_while(|(one, other)| one == other).count();
    real.components().skip(shared).collect()
}

/// Whether `path`, as for [`class_of`], is in a directory of libraries and nothing for a browser.
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
    fn concerns(&self, purpose: Purpose) -> bool {
        match self.rule {
            Rule::Unsent => purpose == Purpose::Sending,
            Rule::Unpackaged => purpose == Purpose::Packaging,
            Rule::Both | Rule::BothUnlessPublic | Rule::BothIfPrivateKey { .. } => true,
        }
    }
}

fn built_in(purpose: Purpose) -> Gitignore {
    let build = || {
        let mut builder = GitignoreBuilder::new("");
        for class in CLASSES.iter().filter(|class| class.concerns(purpose)) {
            for pattern in class.patterns {
                builder.add_line(None, pattern)?;
            }
        }
        builder.build()
    };
    // The list is constant, and a test builds it.
    build().expect("the built-in patterns are valid")
}

/// What stays out of packages because of its secrets, in the syntax of `.dockerignore`: patterns
/// start at the project and are case-sensitive. Docker does not check contents.
pub fn dockerignore() -> String {
    let concerns = |class: &&Class| match class.rule {
        Rule::Both | Rule::BothUnlessPublic => true,
        Rule::Unpackaged => class.name.is_empty(),
        Rule::Unsent | Rule::BothIfPrivateKey { .. } => false,
    };
    let patterns = CLASSES.iter().filter(concerns);
    let patterns = patterns.flat_map(|class| class.patterns);
    let lines = patterns.map(|pattern| {
        let (not, pattern) = match pattern.strip_prefix('!') {
            Some(pattern) => ("!", pattern),
            None => ("", *pattern),
        };
        match pattern.strip_prefix('/') {
            Some(pattern) => format!("{not}{pattern}\n"),
            None => {
                let pattern = pattern.trim_start_matches("**/").trim_start_matches('\\');
                format!("{not}**/{pattern}\n")
            }
        }
    });
    lines.collect()
}

/// Patterns that an application gives, in the order of its list.
pub fn own(patterns: &[String]) -> anyhow::Result<Gitignore> {
    let mut builder = GitignoreBuilder::new("");
    builder.case_insensitive(true)?;
    for pattern in patterns {
        let says = "is no pattern as .gitignore has them, such as \"/internal/\", \"*.csv\" or \"!/files/*.sql\"";
        ensure!(
            !pattern.trim().is_empty() && !pattern.starts_with('#'),
            "{pattern:?} {says}"
        );
        let added = builder.add_line(None, pattern);
        added.with_context(|| format!("{pattern:?} {says}"))?;
    }
    Ok(builder.build()?)
}

/// The form in which [`class_of`] takes the path of a file.
pub fn lowercase(path: &Path) -> String {
    path.to_string_lossy().to_lowercase()
}
