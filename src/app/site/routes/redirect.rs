//! Computes the target of a rule's `redirect`.

use std::borrow::Cow;

use anyhow::{Context, Result, bail, ensure};
use http::{StatusCode, Uri};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use regex::Regex;

use super::super::encode;
use crate::app::validate::is_host;

/// A location, and the status that goes with it.
#[derive(Debug)]
pub struct Redirect {
    pub status: StatusCode,
    parts: Vec<RedirectPart>,
    /// The rule's expression, for its groups.
    regex: Option<Regex>,
    /// Whether it begins with a scheme and a host.
    is_absolute: bool,
}

#[derive(Debug, PartialEq)]
enum RedirectPart {
    Text(String),
    /// The path as the client sent it.
    Path,
    /// The query with its question mark, if there is one.
    Query,
    /// What a group of the expression has matched.
    Group(usize),
}

/// The statuses of redirects.
const STATUSES: [StatusCode; 5] = [
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::FOUND,
    StatusCode::SEE_OTHER,
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
];

impl Redirect {
    pub(super) fn new(to: &str, status: Option<u16>, regex: Option<&Regex>) -> Result<Redirect> {
        let status = status.map_or(Ok(StatusCode::FOUND), self::status)?;
        let parts = parse(to)?;
        let groups = regex.map_or(0, |regex| regex.captures_len() - 1);
        for part in &parts {
            if let RedirectPart::Group(number) = part {
                ensure!(
                    *number <= groups,
                    "`redirect` has {{{number}}}, but {}",
                    match regex {
                        Some(_) => format!("`regex` has {groups} groups"),
                        None => "only `regex` has groups".to_owned(),
                    }
                );
            }
        }
        let is_absolute = check_start(to)?;
        Ok(Redirect {
            status,
            is_absolute,
            regex: regex
                .filter(|_| {
                    parts
                        .iter()
                        .any(|part| matches!(part, RedirectPart::Group(_)))
                })
                .cloned(),
            parts,
        })
    }

    /// Whether the location depends on the request's path.
    pub(super) fn is_fixed(&self) -> bool {
        let has_path =
            |part: &RedirectPart| matches!(part, RedirectPart::Path | RedirectPart::Group(_));
        !self.parts.iter().any(has_path)
    }

    /// The value of `Location`. `path` is the one of `target` as
    /// [`normalize`](super::super::normalize()) made it.
    pub fn location(&self, target: &Uri, path: &str) -> String {
        let groups = self.regex.as_ref().and_then(|regex| regex.captures(path));
        let mut location = String::new();
        for part in &self.parts {
            match part {
                RedirectPart::Text(text) => location.push_str(text),
                RedirectPart::Path => location.push_str(&visible(target.path())),
                RedirectPart::Query => {
                    if let Some(query) = target.query() {
                        location.push('?');
                        location.push_str(&visible(query));
                    }
                }
                RedirectPart::Group(number) => {
                    let group = groups.as_ref().and_then(|groups| groups.get(*number));
                    location.push_str(&encode(group.map_or("", |group| group.as_str())));
                }
            }
        }
        if self.is_absolute {
            return location;
        }
        // Two slashes would begin the name of another host, which the client could choose.
        let rest = location.trim_start_matches('/');
        format!("/{rest}")
    }
}

/// Encodes what the client may have sent and a `Location` must not have. Browsers take a backslash
/// for a slash.
fn visible(sent: &str) -> Cow<'_, str> {
    const OTHERS: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\');
    utf8_percent_encode(sent, OTHERS).into()
}

fn parse(to: &str) -> Result<Vec<RedirectPart>> {
    let is_invalid = |c: char| !c.is_ascii_graphic() || "\\\"<>}".contains(c);
    let text = |text: &str| {
        ensure!(
            !text.contains(is_invalid),
            "`redirect` is {to:?}; characters that a URL does not have are written as %XX"
        );
        Ok(RedirectPart::Text(text.to_owned()))
    };
    let mut parts = Vec::new();
    let mut rest = to;
    while let Some((before, after)) = rest.split_once('{') {
        if !before.is_empty() {
            parts.push(text(before)?);
        }
        let (name, after) = after
            .split_once('}')
            .with_context(|| format!("`redirect` is {to:?}; a `{{` has no `}}`"))?;
        match (name, name.parse()) {
            ("uri", _) => parts.extend([RedirectPart::Path, RedirectPart::Query]),
            ("path", _) => parts.push(RedirectPart::Path),
            ("query", _) => parts.push(RedirectPart::Query),
            (_, Ok(number @ 1..=9)) => parts.push(RedirectPart::Group(number)),
            _ => bail!(
                "`redirect` has {{{name}}}; it can have {{uri}}, {{path}}, {{query}}, and {{1}} to \
                 {{9}} for the groups of `regex`"
            ),
        }
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(text(rest)?);
    }
    Ok(parts)
}

/// Checks that the client cannot choose the host. Returns whether the location names one.
fn check_start(to: &str) -> Result<bool> {
    let is_path = |text: &str| text.starts_with("{uri}") || text.starts_with("{path}");
    let scheme = ["http://", "https://"];
    if let Some(rest) = scheme.iter().find_map(|scheme| to.strip_prefix(scheme)) {
        let end = rest.find(['/', '?', '#', '{']).unwrap_or(rest.len());
        let (host, rest) = rest.split_at(end);
        ensure!(
            !host.is_empty() && is_host(host.as_bytes()),
            "`redirect` is {to:?}; a host must follow the scheme"
        );
        ensure!(
            !rest.starts_with('{') || is_path(rest),
            "`redirect` is {to:?}; only a path may follow the host: `/`, {{uri}} or {{path}}"
        );
        return Ok(true);
    }
    ensure!(
        is_path(to) || to.starts_with('/') && !to.starts_with("//"),
        "`redirect` is {to:?}; it expects a path such as \"/new\", or a URL that begins with \
         https:// or http://"
    );
    Ok(false)
}

pub(super) fn check_location(to: &str) -> Result<()> {
    parse(to)?;
    check_start(to).map(drop)
}

pub(super) fn status(number: u16) -> Result<StatusCode> {
    let mut redirects = STATUSES.into_iter();
    redirects
        .find(|status| *status == number)
        .with_context(|| format!("`status` is {number}; a redirect has one of {STATUSES:?}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::super::normalize;
    use super::*;

    fn location(redirect: &Redirect, target: &str) -> String {
        let uri: Uri = target.parse().unwrap();
        let path = normalize(uri.path()).unwrap().path().to_owned();
        redirect.location(&uri, &path)
    }

    #[test]
    fn location_is_made_of_the_host_and_path_that_the_client_sent() {
        for (to, regex, target, expected) in [
            ("/new", "", "/old?a=1", "/new"),
            ("/new{query}", "", "/old?a=1", "/new?a=1"),
            ("/new{query}", "", "/old", "/new"),
            ("/v2{path}", "", "/a%20b/c?a", "/v2/a%20b/c"),
            ("{uri}", "", "/a?b=%C3%A9", "/a?b=%C3%A9"),
            (
                "https://b.example{uri}",
                "",
                "/a?b",
                "https://b.example/a?b",
            ),
            (
                "https://b.example:81/x{path}",
                "",
                "/a?b",
                "https://b.example:81/x/a",
            ),
            ("/{2}/{1}", "^/(\\w+)/(\\w+)", "/a/b", "/b/a"),
            ("/n/{1}", "^/o/(.*)", "/o/a%20b%2f%C3%A9", "/n/a%20b/%C3%A9"),
            ("/n/{1}", "^/o/(x)?", "/o/", "/n/"),
        ] {
            let regex = (!regex.is_empty()).then(|| Regex::new(regex).unwrap());
            let redirect = Redirect::new(to, None, regex.as_ref()).unwrap();
            assert_eq!(location(&redirect, target), expected, "{to} {target}");
            assert_eq!(redirect.status, 302);
        }
    }

    #[test]
    fn client_cannot_choose_the_host() {
        for (to, regex, target) in [
            ("{uri}", "", "//evil.example/"),
            ("{path}", "", "///evil.example"),
            ("/{1}", "^/x(.*)", "/x/evil.example"),
            ("{uri}", "", "/%5Cevil.example"),
        ] {
            let regex = (!regex.is_empty()).then(|| Regex::new(regex).unwrap());
            let redirect = Redirect::new(to, None, regex.as_ref()).unwrap();
            let location = location(&redirect, target);
            assert!(
                location.starts_with('/') && !location[1..].starts_with(['/', '\\']),
                "{to} {target}: {location}"
            );
        }
        assert_eq!(visible("/\\a b\u{e9}"), "/%5Ca%20b%C3%A9");
    }

    #[test]
    fn invalid_location_is_rejected() {
        let regex = Regex::new("(.)").unwrap();
        for (to, says) in [
            ("", "it expects a path"),
            ("new", "it expects a path"),
            ("//evil.example", "it expects a path"),
            ("{query}", "it expects a path"),
            ("{1}", "it expects a path"),
            ("ftp://a.example/", "it expects a path"),
            ("https:///x", "a host must follow"),
            ("https://{1}.example", "a host must follow"),
            ("https://u@a.example/", "a host must follow"),
            ("https://a.example{1}", "only a path may follow"),
            ("https://a.example{query}", "only a path may follow"),
            ("/{host}", "has {host}; it can have {uri}"),
            ("/{0}", "has {0}"),
            ("/{uri", "has no `}`"),
            ("/a}b", "%XX"),
            ("/a b", "%XX"),
            ("/a\\b", "%XX"),
            ("/\u{e9}", "%XX"),
        ] {
            let error = Redirect::new(to, None, Some(&regex)).unwrap_err();
            assert!(format!("{error:#}").contains(says), "{to}: {error:#}");
        }
        let error =
            |status, regex| format!("{:#}", Redirect::new("/{2}", status, regex).unwrap_err());
        assert!(error(None, None).contains("only `regex` has groups"));
        assert!(error(None, Some(&regex)).contains("has 1 groups"));
        assert!(error(Some(200), Some(&regex)).contains("[301, 302, 303, 307, 308]"));
    }
}
