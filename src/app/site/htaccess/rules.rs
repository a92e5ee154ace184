//! The directives of one `.htaccess` file, grouped by the files that they apply to.

use std::sync::Arc;

use super::access::{Merging, Require, Statement};
use super::cost::{Excess, Share, Steps};
use super::facts::{Env, Facts};
use super::handler::Switch;
use super::link_options::LinkOptions;
use super::pattern::{Groups, Pattern};
use super::rewrite::escaped;
use super::rule::Rewriting;
use crate::app::site::opened::LookupError;

/// A parsed `.htaccess` file.
#[derive(Debug, Default)]
pub struct HtaccessFile {
    /// Everything below the directory is denied, because Apache would reject the file or could not
    /// read it.
    pub is_broken: bool,
    /// The file could not be opened, for a reason that may be temporary.
    pub failed: Option<LookupError>,
    /// The first block has the directives outside all sections.
    pub blocks: Vec<Block>,
    pub rewriting: Option<Rewriting>,
    /// `DirectoryIndex`.
    pub index: Option<Vec<String>>,
    /// `FallbackResource`; the inner `None` means `disabled`.
    pub fallback: Option<Option<String>>,
    pub problems: Vec<Problem>,
    /// A limit that the file exceeds.
    pub(super) excess: Option<Excess>,
    /// The bytes that reading the file was charged.
    pub spent: usize,
    /// The share of the site's memory that the file holds.
    pub(super) memory: Option<Share>,
}

/// A line that cannot be evaluated, or whose effect Surus does not provide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub line: u32,
    pub what: String,
    pub about: Scope,
    /// Whether Surus denies access because of it.
    pub closes: bool,
    /// Whether it is also logged: the line protects or configures the application, but Surus denies
    /// nothing for it.
    pub is_logged: bool,
}

/// What a line applies to below its directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    All,
    /// Files whose names match a regular expression.
    Names(Arc<str>),
    /// Paths below the directory that match a regular expression.
    Paths(Arc<str>),
    /// A part that cannot be determined.
    Part,
}

/// Directives that apply to the same files.
#[derive(Debug, Default)]
pub struct Block {
    /// A file's name must match all of them.
    pub(super) names: Vec<Name>,
    /// The block belongs to an expression that is not evaluated, and applies after all other
    /// sections.
    pub is_uncertain: bool,
    pub compat: Vec<Statement>,
    pub require: Vec<Require>,
    pub merging: Merging,
    pub handlers: Vec<Switch>,
    pub links: Vec<LinkOptions>,
    pub redirects: Vec<Redirect>,
    pub env: Vec<SetEnvIf>,
    pub fixed_env: Vec<FixedEnv>,
    /// Access to these files is denied, because something that is not evaluated protects them.
    pub closes: bool,
    /// Like `closes`, but only if rewriting is on: the section has a rule.
    pub closes_by_rule: bool,
    /// `RewriteEngine` in a section.
    pub engine: Option<bool>,
    /// A section with a mod_rewrite directive has only the rules inside it.
    pub replaces_rules: bool,
    /// `SSLRequireSSL`.
    pub needs_tls: bool,
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
    /// Whether the block applies to a file of this name. None if that is uncertain.
    pub fn is_about(&self, name: &str, steps: &Steps) -> Option<bool> {
        let mut certain = !self.is_uncertain;
        for pattern in &self.names {
            let matches = match pattern {
                Name::Is(same) => Some(name == same),
                Name::Matches(pattern) => pattern.is_match(name, steps),
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

    /// Whether the block belongs to a `<Files>` section.
    pub fn is_about_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether the block restricts access.
    pub(super) fn limits_access(&self) -> bool {
        !self.compat.is_empty()
            || !self.require.is_empty()
            || self.closes
            || self.closes_by_rule
            || self.needs_tls
    }

    pub(super) fn restricts_links(&self) -> bool {
        self.links.iter().any(LinkOptions::restricts)
    }

    /// Whether the block does more than set variables.
    pub(super) fn decides(&self) -> bool {
        !self.handlers.is_empty()
            || !self.redirects.is_empty()
            || !self.env.is_empty()
            || self.restricts_links()
            || self.limits_access()
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.decides()
            && self.links.is_empty()
            && self.fixed_env.is_empty()
            && !self.replaces_rules
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
    /// The effect on a path.
    pub fn apply(&self, path: &str, steps: &Steps) -> RedirectOutcome {
        let led = |to: String| match self.status {
            300..400 if to.starts_with('/') || is_url(&to) => RedirectOutcome::To(self.status, to),
            300..400 => RedirectOutcome::Status(500),
            status @ 400.. => RedirectOutcome::Status(status),
            // Apache sends its error page.
            _ => RedirectOutcome::Unknown,
        };
        match &self.from {
            From::Prefix(prefix) => match path.strip_prefix(prefix.as_str()) {
                Some(rest) if rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/') => {
                    led(format!("{}{}", self.to, escaped(rest)))
                }
                _ => RedirectOutcome::Nowhere,
            },
            From::Pattern(None) => RedirectOutcome::Unknown,
            From::Pattern(Some(pattern)) => match pattern.is_match(path, steps) {
                Some(false) => RedirectOutcome::Nowhere,
                None => RedirectOutcome::Unknown,
                Some(true) => {
                    let Some(groups) = pattern.groups(path, steps) else {
                        return RedirectOutcome::Unknown;
                    };
                    let to = with_groups(&self.to, path, &groups, steps);
                    let end = to.find(['?', '#']).unwrap_or(to.len());
                    led(format!("{}{}", escaped(&to[..end]), &to[end..]))
                }
            },
        }
    }
}

/// Whether a text begins with a scheme.
pub(super) fn is_url(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let scheme = text.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| !scheme.is_empty() && scheme.chars().all(is_part))
}

/// The result of a `Redirect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedirectOutcome {
    Nowhere,
    /// The status and location of a redirect.
    To(u16, String),
    Status(u16),
    /// The result cannot be determined.
    Unknown,
}

/// Replaces `$1` and others by the groups of a match.
fn with_groups(text: &str, matched: &str, groups: &Groups, steps: &Steps) -> String {
    let placeholders = text.matches('$').count();
    if !steps.take_copy(text.len() + placeholders * matched.len()) {
        return String::new();
    }
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        match rest.bytes().next() {
            Some(digit @ b'0'..=b'9') => {
                let range = groups[usize::from(digit - b'0')].clone();
                // A group may end inside a character.
                out.extend_from_slice(range.map_or(&[], |range| &matched.as_bytes()[range]));
                rest = &rest[1..];
            }
            _ => out.push(b'$'),
        }
    }
    out.extend_from_slice(rest.as_bytes());
    String::from_utf8(out)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// `SetEnvIf`, `BrowserMatch` and `SetEnvIfExpr`.
#[derive(Debug)]
pub struct SetEnvIf {
    pub(super) attribute: String,
    /// None if it cannot be evaluated.
    pub(super) pattern: Option<Pattern>,
    /// Names and values; `None` unsets the variable.
    pub(super) sets: Vec<(String, Option<String>)>,
}

impl SetEnvIf {
    pub fn apply(&self, facts: &Facts<'_>, path: &str, env: &mut Env) {
        let steps = &facts.steps;
        if !steps.take((1 + self.sets.len()) * env.steps()) {
            return;
        }
        let value = self.value(facts, path, env);
        match self.holds(value.as_deref(), steps) {
            Some(false) => {}
            Some(true) => {
                let value = value.unwrap_or_default();
                let groups = self
                    .pattern
                    .as_ref()
                    .and_then(|one| one.groups(&value, steps));
                let Some(groups) = groups else {
                    return self.doubt(env);
                };
                for (name, text) in &self.sets {
                    match text {
                        Some(text) => env.set(name, with_groups(text, &value, &groups, steps)),
                        None => env.unset(name),
                    }
                }
            }
            None => self.doubt(env),
        }
    }

    /// Like `apply`, in a section that may not apply.
    pub fn apply_uncertain(&self, facts: &Facts<'_>, path: &str, env: &mut Env) {
        if !facts.steps.take((1 + self.sets.len()) * env.steps()) {
            return;
        }
        let value = self.value(facts, path, env);
        if self.holds(value.as_deref(), &facts.steps) != Some(false) {
            self.doubt(env);
        }
    }

    fn doubt(&self, env: &mut Env) {
        for (name, _) in &self.sets {
            env.set_unknown(name);
        }
    }

    fn holds(&self, value: Option<&str>, steps: &Steps) -> Option<bool> {
        let value = value.filter(|value| steps.take_copy(value.len()));
        self.pattern.as_ref()?.is_match(value?, steps)
    }

    /// The text that the pattern matches, if known.
    fn value(&self, facts: &Facts<'_>, path: &str, env: &Env) -> Option<String> {
        Some(match self.attribute.as_str() {
            "remote_addr" | "remote_host" => facts.client()?.to_string(),
            "server_addr" => facts.server()?.to_string(),
            "request_method" => facts.method.as_str().to_owned(),
            "request_uri" => path.to_owned(),
            "request_protocol" => format!("{:?}", facts.version),
            name if facts.headers.contains_key(name) => facts.header(name).into_owned(),
            name => match env.has(name)? {
                true => env.get(name).unwrap_or_default().to_owned(),
                false => String::new(),
            },
        })
    }
}

/// `SetEnv`, `UnsetEnv` and `PassEnv`. Apache applies them after the rules of a directory, so rules
/// see the variables only after an internal redirect.
#[derive(Debug)]
pub enum FixedEnv {
    Set(String, String),
    Unset(String),
    /// A variable of the server's environment, whose value is unknown.
    Pass(String),
}

impl FixedEnv {
    pub fn name(&self) -> &str {
        match self {
            FixedEnv::Set(name, _) | FixedEnv::Unset(name) | FixedEnv::Pass(name) => name,
        }
    }
}

/// A file that cannot be opened now. Its directives are unknown until then.
pub fn failed(error: LookupError) -> HtaccessFile {
    HtaccessFile {
        failed: Some(error),
        ..HtaccessFile::default()
    }
}

/// A file that cannot be read; it denies its directory.
pub fn unreadable() -> HtaccessFile {
    HtaccessFile {
        is_broken: true,
        ..HtaccessFile::default()
    }
}
