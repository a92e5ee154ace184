//! Rules that send requests to another engine, to a directory of files or to another URL, reject
//! them, or change headers of their responses.

mod headers;
mod redirect;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use percent_encoding::percent_decode_str;
use regex::Regex;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

pub use self::headers::HeaderChanges;
use self::headers::HeaderRule;
pub use self::redirect::Redirect;
use super::{Settings, Site, normalize};
use crate::app::host::{self, HostPattern};
use crate::units::{checked, checked_if_set, checked_list, one_or_more};

/// One `[[route]]`. It has `host`, or one of `prefix`, `suffix` and `regex`, or both; at most one
/// of `engine`, `root`, `redirect` and `deny`; and any number of conditions. All conditions must
/// hold. A rule with only `compress`, `stream_body` or `headers` leaves the action to the rules
/// below it.
///
/// The path is decoded and has no `.`, `..` or doubled slashes, but the client chooses it. A rule
/// for `/admin` does not cover `/index.php/admin`, which may lead to the same page.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RouteRule {
    /// The request is for one of these hosts; all by default.
    #[serde(deserialize_with = "for_hosts")]
    pub host: Option<Vec<HostPattern>>,
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
    #[serde(deserialize_with = "with_method")]
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
    /// Redirects to this path or URL, in which `{uri}`, `{path}`, `{query}` and `{1}` to `{9}`
    /// stand for parts of the request's.
    #[serde(deserialize_with = "with_location")]
    pub redirect: Option<String>,
    /// The status of the redirect, 302 by default.
    #[serde(deserialize_with = "with_status")]
    pub status: Option<u16>,
    /// Responds with 403.
    pub deny: bool,
    /// Headers to set in the response; an empty value removes one.
    #[serde(deserialize_with = "with_headers")]
    pub headers: BTreeMap<String, String>,
    /// Overrides `compress.enabled` for PHP's pages.
    pub compress: Option<bool>,
    /// Overrides `http.stream_body`.
    pub stream_body: Option<bool>,
}

/// What rules look at.
pub struct RequestFacts<'a> {
    pub method: &'a Method,
    /// As [`normalize`](super::normalize()) made it.
    pub path: &'a str,
    pub headers: &'a HeaderMap,
    pub query: Option<&'a str>,
}

/// The effect of the rules on a request.
#[derive(Debug, Default)]
pub struct Choice<'a> {
    /// None if the site handles the request.
    pub action: Option<&'a Action>,
    /// None if the default applies.
    pub compress: Option<bool>,
    /// None if the default applies.
    pub stream_body: Option<bool>,
    pub headers: HeaderChanges,
    /// The path of the rule that decides, as it is configured; `*` stands for any text.
    pub path: Option<&'a Arc<str>>,
}

/// What happens to a request that a rule matches.
#[derive(Debug)]
pub enum Action {
    Engine(String),
    Files(Arc<Site>),
    Redirect(Redirect),
    Deny,
}

/// The rules in their order.
#[derive(Debug, Default)]
pub struct Routes(Vec<Route>);

#[derive(Debug)]
struct Route {
    hosts: Option<Vec<HostPattern>>,
    path: Pattern,
    /// The path for people; none if it may be any.
    shown: Option<Arc<str>>,
    methods: Option<Vec<Method>>,
    cookie: Option<String>,
    header: Option<HeaderName>,
    query: Option<String>,
    action: Option<Action>,
    compress: Option<bool>,
    stream_body: Option<bool>,
    headers: Option<HeaderRule>,
}

#[derive(Debug)]
enum Pattern {
    All,
    Prefix(String),
    Suffix(String),
    Regex(Regex),
}

impl Routes {
    /// Validates the rules and opens their directories. The site's settings decide which symbolic
    /// links are followed and which files are hidden.
    pub fn new(rules: &[RouteRule], settings: &Settings) -> Result<Routes> {
        Routes::open(rules, &mut |root| files(root, settings))
    }

    /// Like [`new`](Self::new), but `files` opens the directories, in the order of the rules.
    pub fn open(
        rules: &[RouteRule],
        files: &mut dyn FnMut(&Path) -> Result<Site>,
    ) -> Result<Routes> {
        let mut routes = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let route = Route::new(rule, files);
            routes.push(route.with_context(|| format!("[[route]] number {}", index + 1))?);
        }
        Ok(Routes(routes))
    }

    /// Returns the first matching rule's action, and the first matching `compress` and
    /// `stream_body`, and all `headers` that are not below it.
    pub fn choose(&self, request: &RequestFacts<'_>) -> Choice<'_> {
        let mut choice = Choice::default();
        for route in &self.0 {
            if route.matches(request) {
                choice.compress = choice.compress.or(route.compress);
                choice.stream_body = choice.stream_body.or(route.stream_body);
                choice.headers.0.extend(route.headers.clone());
                choice.action = route.action.as_ref();
                if choice.action.is_some() {
                    choice.path = route.shown.as_ref();
                    break;
                }
            }
        }
        choice
    }

    /// The directories of files of the rules.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        self.sites().map(Site::root)
    }

    /// The sites that send files of these directories.
    pub fn sites(&self) -> impl Iterator<Item = &Site> {
        self.0.iter().filter_map(|route| match &route.action {
            Some(Action::Files(site)) => Some(&**site),
            _ => None,
        })
    }

    /// The numbers, from 1 on, of rules whose redirect leads a browser back to the same rule, as
    /// far as an example shows it.
    pub fn endless_redirects(&self) -> Vec<usize> {
        let endless = (1..).zip(&self.0);
        endless
            .filter(|(_, route)| self.is_endless(route).unwrap_or(false))
            .map(|(number, _)| number)
            .collect()
    }

    fn is_endless(&self, route: &Route) -> Option<bool> {
        let Some(action @ Action::Redirect(redirect)) = &route.action else {
            return None;
        };
        let host = match route.hosts.as_ref().and_then(|hosts| hosts.first()) {
            None => "a.example",
            Some(HostPattern::Exact(name)) => name,
            Some(HostPattern::Below(suffix)) => &format!("a{suffix}"),
        };
        let path = match &route.path {
            Pattern::All => "/",
            Pattern::Prefix(prefix) => prefix,
            Pattern::Suffix(suffix) if suffix.starts_with('/') => suffix,
            Pattern::Suffix(suffix) => &format!("/a{suffix}"),
            Pattern::Regex(_) if redirect.is_fixed() => "/",
            Pattern::Regex(_) => return None,
        };
        let location = redirect.location(&path.parse().ok()?, path);
        let location: Uri = location.parse().ok()?;
        if location.port().is_some() {
            return None; // Maybe another server.
        }
        let host = HeaderValue::from_str(location.host().unwrap_or(host)).ok()?;
        let again = self.choose(&RequestFacts {
            method: &Method::GET,
            path: normalize(location.path()).ok()?.path(),
            headers: &HeaderMap::from_iter([(header::HOST, host)]),
            query: location.query(),
        });
        again.action.map(|again| std::ptr::eq(again, action))
    }
}

/// The names of the engines to which rules send requests.
pub fn engines(rules: &[RouteRule]) -> impl Iterator<Item = &str> {
    rules.iter().filter_map(|rule| rule.engine.as_deref())
}

impl Route {
    fn new(rule: &RouteRule, files: &mut dyn FnMut(&Path) -> Result<Site>) -> Result<Route> {
        let path = pattern(rule)?;
        Ok(Route {
            hosts: rule.host.clone(),
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
            action: action(rule, &path, files)?,
            shown: shown(rule),
            path,
            compress: rule.compress,
            stream_body: rule.stream_body,
            headers: headers::parse(&rule.headers)?,
        })
    }

    fn matches(&self, request: &RequestFacts<'_>) -> bool {
        let path = match &self.path {
            Pattern::All => true,
            Pattern::Prefix(prefix) => request.path.starts_with(prefix),
            Pattern::Suffix(suffix) => request.path.ends_with(suffix),
            Pattern::Regex(regex) => regex.is_match(request.path),
        };
        path && self.is_for(request.headers)
            && self
                .methods
                .as_ref()
                .is_none_or(|methods| methods.contains(request.method))
            && self
                .header
                .as_ref()
                .is_none_or(|name| request.headers.contains_key(name))
            && self
                .cookie
                .as_ref()
                .is_none_or(|name| has_cookie(request.headers, name))
            && self
                .query
                .as_ref()
                .is_none_or(|name| has_parameter(request.query, name))
    }

    fn is_for(&self, headers: &HeaderMap) -> bool {
        let Some(hosts) = &self.hosts else {
            return true;
        };
        let host = headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        let is_host = |name| hosts.iter().any(|pattern| pattern.matches(name));
        host.is_some_and(|host| is_host(host::name(host)))
    }
}

fn pattern(rule: &RouteRule) -> Result<Pattern> {
    match (&rule.prefix, &rule.suffix, &rule.regex) {
        (Some(path), None, None) => prefix(path),
        (None, Some(end), None) => suffix(end),
        (None, None, Some(text)) => regex(text),
        (None, None, None) if rule.host.is_some() => Ok(Pattern::All),
        _ => bail!("a rule needs exactly one of `prefix`, `suffix` and `regex`, or only `host`"),
    }
}

/// The path of a rule, with `*` for any text.
fn shown(rule: &RouteRule) -> Option<Arc<str>> {
    let prefix = rule.prefix.as_ref().map(|path| format!("{path}*"));
    let suffix = || Some(format!("*{}", rule.suffix.as_ref()?));
    let path = prefix.or_else(suffix).or(rule.regex.clone());
    path.map(Arc::from)
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

fn with_method<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    checked_list(from, |names| methods(names).map(drop)).map(Some)
}

fn with_header<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked_if_set(from, |name: &String| header_name(name).map(drop))
}

fn for_hosts<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<HostPattern>>, D::Error> {
    let hosts: Vec<HostPattern> = one_or_more(from)?;
    match hosts.is_empty() {
        true => Err(D::Error::custom(
            "`host` is empty and matches no request; leave it out to match all",
        )),
        false => Ok(Some(hosts)),
    }
}

fn with_location<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked_if_set(from, |to: &String| redirect::check_location(to))
}

fn with_status<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u16>, D::Error> {
    checked_if_set(from, |status: &u16| redirect::status(*status).map(drop))
}

fn with_headers<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    checked(from, |all: &BTreeMap<String, String>| {
        headers::parse(all).map(drop)
    })
}

fn action(
    rule: &RouteRule,
    path: &Pattern,
    files: &mut dyn FnMut(&Path) -> Result<Site>,
) -> Result<Option<Action>> {
    let runs_php = rule.root.is_none() && rule.redirect.is_none() && !rule.deny;
    for (name, is_set) in [
        ("compress", rule.compress.is_some()),
        ("stream_body", rule.stream_body.is_some()),
    ] {
        ensure!(
            !is_set || runs_php,
            "`{name}` applies only to PHP; a rule with `root`, `redirect` or `deny` does not run it"
        );
    }
    ensure!(
        rule.status.is_none() || rule.redirect.is_some(),
        "`status` is the status of a `redirect`, which the rule does not have"
    );
    let has_more =
        rule.compress.is_some() || rule.stream_body.is_some() || !rule.headers.is_empty();
    let action = match (&rule.engine, &rule.root, &rule.redirect, rule.deny) {
        (Some(engine), None, None, false) => Action::Engine(engine.clone()),
        (None, Some(root), None, false) => Action::Files(Arc::new(files(root)?)),
        (None, None, Some(to), false) => {
            let regex = match path {
                Pattern::Regex(regex) => Some(regex),
                _ => None,
            };
            Action::Redirect(Redirect::new(to, rule.status, regex)?)
        }
        (None, None, None, true) => Action::Deny,
        (None, None, None, false) if has_more => return Ok(None),
        _ => bail!(
            "a rule needs exactly one of `engine`, `root`, `redirect` and `deny = true`, or \
             `compress`, `stream_body` or `headers`"
        ),
    };
    Ok(Some(action))
}

/// Opens the directory of a rule.
pub fn files(root: &Path, settings: &Settings) -> Result<Site> {
    ensure!(
        root.is_absolute(),
        "`root` is {}; it must be an absolute path",
        root.display()
    );
    Site::files_only(root, settings.symlinks)?.protected(settings)
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
