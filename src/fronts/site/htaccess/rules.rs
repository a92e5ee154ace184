//! What one `.htaccess` file says: its directives, by the files that they are about.

use super::access::{Merging, Require, Statement};
use super::facts::{Env, Facts};
use super::handler::Switch;
use super::pattern::Pattern;
use super::rewrite::Rewriting;

/// A file as a whole.
#[derive(Debug, Default)]
pub struct File {
    /// Nobody gets anything below the directory, because the file cannot be read as Apache would.
    pub is_broken: bool,
    /// The first is what stands outside of all sections.
    pub blocks: Vec<Block>,
    pub rewriting: Option<Rewriting>,
    /// `DirectoryIndex`.
    pub index: Option<Vec<String>>,
    /// `FallbackResource`; none in it for `disabled`.
    pub fallback: Option<Option<String>>,
    pub problems: Vec<Problem>,
}

/// A line that cannot be evaluated, or that means something which Surus does not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub line: u32,
    pub what: String,
    /// The names of files that it is about, as a regular expression; none for all.
    pub names: Option<String>,
    /// Whether Surus closes something for it.
    pub closes: bool,
}

/// Directives that apply to the same files.
#[derive(Debug, Default)]
pub struct Block {
    /// All of them have to match a file's name.
    pub(super) names: Vec<Name>,
    /// Applies behind all other sections, where an expression holds that is not evaluated.
    pub is_uncertain: bool,
    pub compat: Vec<Statement>,
    pub require: Vec<Require>,
    pub merging: Merging,
    pub handlers: Vec<Switch>,
    pub redirects: Vec<Redirect>,
    pub env: Vec<SetEnvIf>,
    /// A rule denies that is not evaluated here.
    pub closes: bool,
}

/// The names of a `<Files>` section.
#[derive(Debug)]
pub(super) enum Name {
    Is(String),
    Matches(Pattern),
    /// A pattern that cannot be evaluated.
    Unknown,
}

impl Block {
    /// Does it apply to a file of this name? None where that is not certain.
    pub fn is_about(&self, name: &str) -> Option<bool> {
        let mut certain = !self.is_uncertain;
        for pattern in &self.names {
            let matches = match pattern {
                Name::Is(same) => Some(name == same),
                Name::Matches(pattern) => pattern.is_match(name),
                Name::Unknown => None,
            };
            match matches {
                Some(true) => {}
                Some(false) => return Some(false),
                None => certain = false,
            }
        }
        certain.then_some(true)
    }

    /// Whether it stands in a `<Files>` section.
    pub fn is_about_names(&self) -> bool {
        !self.names.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.compat.is_empty()
            && self.require.is_empty()
            && self.handlers.is_empty()
            && self.redirects.is_empty()
            && self.env.is_empty()
            && !self.closes
    }
}

/// `Redirect` or `RedirectMatch`.
#[derive(Debug)]
pub struct Redirect {
    pub(super) from: From,
    pub status: u16,
    pub(super) to: String,
}

#[derive(Debug)]
pub(super) enum From {
    Prefix(String),
    Pattern(Option<Pattern>),
}

impl Redirect {
    /// Where it leads from a path; an empty text for a status without a place. None in it where it
    /// cannot be told.
    pub fn apply(&self, path: &str) -> Option<Option<String>> {
        match &self.from {
            From::Prefix(prefix) => {
                let rest = path.strip_prefix(prefix.as_str())?;
                let is_below = rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/');
                is_below.then(|| Some(format!("{}{rest}", self.to)))
            }
            From::Pattern(None) => Some(None),
            From::Pattern(Some(pattern)) => match pattern.is_match(path) {
                Some(false) => None,
                None => Some(None),
                Some(true) => {
                    let groups = pattern.groups(path).unwrap_or_default();
                    let mut to = String::new();
                    let mut rest = self.to.as_str();
                    while let Some(at) = rest.find('$') {
                        to.push_str(&rest[..at]);
                        rest = &rest[at + 1..];
                        match rest.bytes().next() {
                            Some(digit @ b'0'..=b'9') => {
                                let range = groups[usize::from(digit - b'0')].clone();
                                // A pattern works on bytes: a group may end inside a character.
                                let group = range.map_or(&b""[..], |range| &path.as_bytes()[range]);
                                to.push_str(&String::from_utf8_lossy(group));
                                rest = &rest[1..];
                            }
                            _ => to.push('$'),
                        }
                    }
                    to.push_str(rest);
                    Some(Some(to))
                }
            },
        }
    }
}

/// `SetEnvIf` and `BrowserMatch`.
#[derive(Debug)]
pub struct SetEnvIf {
    pub(super) attribute: String,
    pub(super) pattern: Option<Pattern>,
    /// A name, and a value or none to unset it.
    pub(super) sets: Vec<(String, Option<String>)>,
}

impl SetEnvIf {
    pub fn apply(&self, facts: &Facts<'_>, path: &str, env: &mut Env) {
        let value = match self.attribute.as_str() {
            "remote_addr" | "remote_host" => {
                facts.client().map_or(String::new(), |ip| ip.to_string())
            }
            "server_addr" => facts.server().map_or(String::new(), |ip| ip.to_string()),
            "request_method" => facts.method.as_str().to_owned(),
            "request_uri" => path.to_owned(),
            "request_protocol" => format!("{:?}", facts.version),
            name => match env.get(&self.attribute) {
                Some(value) if !facts.headers.contains_key(name) => value.to_owned(),
                _ => facts.header(name).into_owned(),
            },
        };
        match self
            .pattern
            .as_ref()
            .map(|pattern| pattern.is_match(&value))
        {
            Some(Some(false)) => {}
            Some(Some(true)) => {
                for (name, value) in &self.sets {
                    match value {
                        Some(value) => env.set(name, value.clone()),
                        None => env.unset(name),
                    }
                }
            }
            None | Some(None) => {
                for (name, _) in &self.sets {
                    env.set_unknown(name);
                }
            }
        }
    }
}

/// A file that is there and cannot be opened: it may deny.
pub fn unreadable() -> File {
    File {
        is_broken: true,
        ..File::default()
    }
}

impl File {
    /// Whether any of its lines is heard.
    pub fn says_something(&self) -> bool {
        self.is_broken
            || self.rewriting.is_some()
            || self.index.is_some()
            || self.fallback.is_some()
            || self.blocks.iter().any(|block| !block.is_empty())
    }
}
