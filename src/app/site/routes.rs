//! Rules that send requests to another engine, to a directory of files, or reject them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use http::{HeaderMap, HeaderName, Method, header};
use percent_encoding::percent_decode_str;
use regex::Regex;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Settings, Site};
use crate::units::checked_if_set;

/// One `[[route]]`: exactly one of `prefix`, `suffix` and `regex`, at most one of `engine`, `root`
/// and `deny`, and any number of conditions, all of which must hold. A rule with only `compress`
/// leaves the action to the rules below it.
///
/// The path is decoded and has no `.`, `..` or doubled slashes, but the client chooses it: a rule
/// for `/admin` does not cover `/index.php/admin`, which may lead to the same page.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// The path begins with this; `/api` also matches `/apiary`.
    #[serde(deserialize_with = "prefixed")]
    pub prefix: Option<String>,
    /// The path ends with this.
    #[serde(deserialize_with = "suffixed")]
    pub suffix: Option<String>,
    /// The path matches this anywhere; `^` and `$` anchor it.
    #[serde(deserialize_with = "matching")]
    pub regex: Option<String>,
    /// Any of these methods; all by default.
    #[serde(deserialize_with = "asked_with")]
    pub methods: Option<Vec<String>>,
    /// The request has a cookie of this name.
    pub cookie: Option<String>,
    /// The request has a header of this name.
    #[serde(deserialize_with = "with_header")]
    pub header: Option<String>,
    /// The query has a parameter of this name.
    pub query: Option<String>,
    /// Runs PHP with the engine of this name.
    pub engine: Option<String>,
    /// Serves files below this absolute directory, never as PHP. The whole path is appended:
    /// `/static/a.css` is `static/a.css` there.
    pub root: Option<PathBuf>,
    /// Responds with 403.
    pub deny: bool,
    /// Overrides `compress.enabled` for PHP's pages.
    pub compress: Option<bool>,
}

/// The effect of the rules on a request.
#[derive(Debug, Default)]
pub struct Choice<'a> {
    /// None if the site handles the request.
    pub action: Option<&'a Action>,
    /// None if the default applies.
    pub compress: Option<bool>,
}

/// What happens to a request that a rule matches.
#[derive(Debug)]
pub enum Action {
    Engine(String),
    Files(Box<Site>),
    Deny,
}

/// The rules in their order.
#[derive(Debug, Default)]
pub struct Routes(Vec<Route>);

#[derive(Debug)]
struct Route {
    path: Pattern,
    methods: Option<Vec<Method>>,
    cookie: Option<String>,
    header: Option<HeaderName>,
    query: Option<String>,
    action: Option<Action>,
    compress: Option<bool>,
}

#[derive(Debug)]
enum Pattern {
    Prefix(String),
    Suffix(String),
    Regex(Regex),
}

impl Routes {
    /// Validates the rules and opens their directories. The site's settings decide which symbolic
    /// links are followed and which files are hidden.
    pub fn new(rules: &[Rule], settings: &Settings) -> Result<Routes> {
        Routes::open(rules, &mut |root| files(root, settings))
    }

    /// Like [`new`](Self::new), but `files` opens the directories, in the order of the rules.
    pub fn open(rules: &[Rule], files: &mut dyn FnMut(&Path) -> Result<Site>) -> Result<Routes> {
        let mut routes = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let route = Route::new(rule, files);
            routes.push(route.with_context(|| format!("[[route]] number {}", index + 1))?);
        }
        Ok(Routes(routes))
    }

    /// Returns the first matching rule's action, and the first matching `compress` that is not
    /// below it. `path` is the one that [`normalize`](super::normalize()) made.
    pub fn choose(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Choice<'_> {
        let mut choice = Choice::default();
        for route in &self.0 {
            if route.matches(method, path, headers, query) {
                choice.compress = choice.compress.or(route.compress);
                choice.action = route.action.as_ref();
                if choice.action.is_some() {
                    break;
                }
            }
        }
        choice
    }

    /// The names of all engines to which a rule sends requests.
    pub fn engines(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|route| match &route.action {
            Some(Action::Engine(name)) => Some(name.as_str()),
            Some(Action::Files(_) | Action::Deny) | None => None,
        })
    }
}

impl Route {
    fn new(rule: &Rule, files: &mut dyn FnMut(&Path) -> Result<Site>) -> Result<Route> {
        Ok(Route {
            path: pattern(rule)?,
            methods: rule.methods.as_deref().map(methods).transpose()?,
            cookie: rule
                .cookie
                .clone()
                .map(|name| named("cookie", name))
                .transpose()?,
            header: rule.header.as_deref().map(header_name).transpose()?,
            query: rule
                .query
                .clone()
                .map(|name| named("query", name))
                .transpose()?,
            action: action(rule, files)?,
            compress: rule.compress,
        })
    }

    fn matches(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> bool {
        let path = match &self.path {
            Pattern::Prefix(prefix) => path.starts_with(prefix),
            Pattern::Suffix(suffix) => path.ends_with(suffix),
            Pattern::Regex(regex) => regex.is_match(path),
        };
        path && self
            .methods
            .as_ref()
            .is_none_or(|methods| methods.contains(method))
            && self
                .header
                .as_ref()
                .is_none_or(|name| headers.contains_key(name))
            && self
                .cookie
                .as_ref()
                .is_none_or(|name| has_cookie(headers, name))
            && self
                .query
                .as_ref()
                .is_none_or(|name| has_parameter(query, name))
    }
}

fn pattern(rule: &Rule) -> Result<Pattern> {
    match (&rule.prefix, &rule.suffix, &rule.regex) {
        (Some(path), None, None) => prefix(path),
        (None, Some(end), None) => suffix(end),
        (None, None, Some(text)) => regex(text),
        _ => bail!("a rule needs exactly one of `prefix`, `suffix` and `regex`"),
    }
}

fn prefix(path: &str) -> Result<Pattern> {
    ensure!(
        path.starts_with('/'),
        "`prefix` is {path:?}; it must begin with a slash"
    );
    Ok(Pattern::Prefix(path.to_owned()))
}

fn suffix(end: &str) -> Result<Pattern> {
    ensure!(
        !end.is_empty(),
        "`suffix` is empty, which matches every path"
    );
    Ok(Pattern::Suffix(end.to_owned()))
}

fn regex(text: &str) -> Result<Pattern> {
    let regex = Regex::new(text).with_context(|| format!("`regex` is {text:?}"))?;
    Ok(Pattern::Regex(regex))
}

// Validated during deserialization, so that an error has its line.

fn prefixed<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked_if_set(from, |path: &String| prefix(path).map(drop))
}

fn suffixed<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked_if_set(from, |end: &String| suffix(end).map(drop))
}

fn matching<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked_if_set(from, |text: &String| regex(text).map(drop))
}

fn asked_with<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    checked_if_set(from, |names: &Vec<String>| methods(names).map(drop))
}

fn with_header<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked_if_set(from, |name: &String| header_name(name).map(drop))
}

fn action(rule: &Rule, files: &mut dyn FnMut(&Path) -> Result<Site>) -> Result<Option<Action>> {
    ensure!(
        rule.compress.is_none() || rule.root.is_none() && !rule.deny,
        "`compress` applies only to PHP; a rule with `root` or `deny` does not run it"
    );
    Ok(Some(match (&rule.engine, &rule.root, rule.deny) {
        (Some(engine), None, false) => Action::Engine(engine.clone()),
        (None, Some(root), false) => Action::Files(Box::new(files(root)?)),
        (None, None, true) => Action::Deny,
        (None, None, false) if rule.compress.is_some() => return Ok(None),
        _ => bail!("a rule needs exactly one of `engine`, `root` and `deny = true`, or `compress`"),
    }))
}

/// Opens the directory of a rule.
pub fn files(root: &Path, settings: &Settings) -> Result<Site> {
    ensure!(
        root.is_absolute(),
        "`root` is {}; it must be an absolute path",
        root.display()
    );
    Site::of_files(root, settings.symlinks)?.hiding(&settings.hidden)
}

fn methods(names: &[String]) -> Result<Vec<Method>> {
    ensure!(
        !names.is_empty(),
        "`methods` is empty and matches no request; leave it out to match all"
    );
    let method = |name: &String| match Method::from_bytes(name.as_bytes()) {
        Ok(method) if !name.bytes().any(|b| b.is_ascii_lowercase()) => Ok(method),
        _ => {
            bail!(
                "`methods` has {name:?}; it expects names such as \"GET\" or \"POST\", in capitals"
            )
        }
    };
    names.iter().map(method).collect()
}

fn header_name(name: &str) -> Result<HeaderName> {
    HeaderName::from_bytes(name.as_bytes()).with_context(|| {
        format!("`header` is {name:?}; it expects the name of a header, such as \"Authorization\"")
    })
}

fn named(setting: &str, name: String) -> Result<String> {
    ensure!(!name.is_empty(), "`{setting}` is empty; it expects a name");
    Ok(name)
}

fn has_cookie(headers: &HeaderMap, name: &str) -> bool {
    let values = headers.get_all(header::COOKIE).iter();
    values
        .flat_map(|value| value.as_bytes().split(|b| *b == b';'))
        .any(|pair| {
            let pair = pair.trim_ascii_start();
            let end = pair.iter().position(|b| *b == b'=');
            end.is_some_and(|end| &pair[..end] == name.as_bytes())
        })
}

fn has_parameter(query: Option<&str>, name: &str) -> bool {
    query.unwrap_or_default().split('&').any(|pair| {
        let (key, _) = pair.split_once('=').unwrap_or((pair, ""));
        key == name || percent_decode_str(&key.replace('+', " ")).eq(name.bytes())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
