//! mod_rewrite in the context of a directory: what its rules make of a URL.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::condition::{Files, all_hold};
use super::facts::{Env, Facts, Matched, View};
use super::handler::Handler;
use super::rule::{Rule, Value};

/// A URL on its way through the rules.
pub struct Pass<'a> {
    pub facts: &'a Facts<'a>,
    pub files: &'a dyn Files,
    pub document_root: &'a str,
    pub path: &'a str,
    pub end: usize,
    pub query: Option<Cow<'a, str>>,
    pub env: &'a mut Env,
    pub is_subrequest: bool,
    /// What `H` and `T` have said.
    pub handler: Option<Handler>,
    /// It was `H`.
    pub has_handler: bool,
    /// `END` has been met.
    pub is_over: bool,
}

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Unchanged,
    /// The request goes on with this path, not encoded.
    Internal(String),
    Redirect(u16, String),
    Status(u16),
    /// A rule that cannot be evaluated closes.
    Unknown,
}

/// Rounds of a rule with `N`.
const MAX_ROUNDS: usize = 1000;

/// The rules that apply to a directory.
#[derive(Debug, Clone)]
pub struct Rules {
    pub rules: Vec<Arc<Rule>>,
    /// The directory whose file has them, with slashes at both ends.
    pub directory: Arc<str>,
    pub base: Option<String>,
    /// They apply to files of a section with directives of mod_rewrite, too.
    pub holds_in_sections: bool,
}

/// Bytes of what a request is rewritten to. Longer is nothing that a file system or a script takes.
const MAX_NAME: usize = 64 << 10;

/// What one rule has come to.
enum Applied {
    No,
    Yes,
    Status(u16),
    Unknown,
}

/// A request on its way through the rules: what they have made of it.
#[derive(Default)]
struct Made {
    /// The path of a file, a URL path, or a URL.
    filename: Option<String>,
    /// The status of a redirection.
    status: Option<u16>,
    /// The last rule that changed it has `NE`.
    no_escape: bool,
    discards_path_info: bool,
}

impl Rules {
    pub fn run(&self, pass: &mut Pass<'_>) -> Outcome {
        let mut made = Made::default();
        let mut rounds = 0;
        let mut at = 0;
        while let Some(rule) = self.rules.get(at) {
            at += 1;
            if pass.is_subrequest && rule.flags.not_in_subrequests {
                continue;
            }
            match self.apply(rule, pass, &mut made) {
                Applied::No => {
                    if rule.flags.chain {
                        while self.rules.get(at).is_some_and(|rule| rule.flags.chain) {
                            at += 1;
                        }
                        at += 1;
                    }
                    continue;
                }
                Applied::Unknown => return Outcome::Unknown,
                Applied::Status(status) => return Outcome::Status(status),
                Applied::Yes => {}
            }
            pass.is_over |= rule.flags.end;
            if rule.flags.last {
                break;
            }
            // Rules that repeat may let it grow without end.
            let name = made.filename.as_ref();
            if name.is_some_and(|name| name.len() > MAX_NAME) {
                return Outcome::Status(500);
            }
            if rule.flags.next {
                rounds += 1;
                if rounds > MAX_ROUNDS {
                    return Outcome::Status(500);
                }
                at = 0;
                continue;
            }
            at = at.saturating_add(rule.flags.skip);
        }
        let Some(filename) = &made.filename else {
            return Outcome::Unchanged;
        };
        if is_absolute(filename) {
            let status = made.status.unwrap_or(302);
            return self.redirect(status, filename, pass, made.no_escape);
        }
        // Apache sends what is there with the status of the redirection, which leads nowhere.
        if made.status.is_some() {
            return Outcome::Unknown;
        }
        // Where the rules lead to what was asked for, the request does not begin again.
        if filename.strip_prefix(pass.document_root) == Some(&pass.path[..pass.end]) {
            return Outcome::Unchanged;
        }
        if !filename.starts_with('/') {
            return Outcome::Status(400);
        }
        // As Apache: the handler takes the place of the one that would lead elsewhere.
        if pass.has_handler {
            return Outcome::Status(403);
        }
        Outcome::Internal(self.url(filename, pass.document_root).into_owned())
    }

    /// The URL path of what is a path of a file, or a URL path already.
    fn url<'a>(&self, filename: &'a str, document_root: &str) -> Cow<'a, str> {
        let below = filename.strip_prefix(document_root);
        let below = below.filter(|rest| rest.starts_with('/'));
        if let (Some(base), Some(below)) = (&self.base, below)
            && let Some(rest) = below.strip_prefix(&*self.directory)
        {
            return format!("{}/{rest}", base.trim_end_matches('/')).into();
        }
        below.unwrap_or(filename).into()
    }

    /// What patterns are matched with: a file's path without that of the directory. A URL path,
    /// which an earlier rule has put in its place, keeps its directories.
    fn subject<'a>(&self, pass: &Pass<'a>, made: &Made) -> Cow<'a, str> {
        let Some(filename) = &made.filename else {
            let path = pass.path;
            return path.strip_prefix(&*self.directory).unwrap_or(path).into();
        };
        let info = match made.discards_path_info {
            true => "",
            false => &pass.path[pass.end..],
        };
        let below = filename.strip_prefix(pass.document_root);
        let below = below.filter(|below| below.starts_with('/'));
        let whole = format!("{}{info}", below.unwrap_or(filename));
        match below.and(whole.strip_prefix(&*self.directory)) {
            Some(rest) => rest.to_owned().into(),
            None => whole.into(),
        }
    }

    fn apply(&self, rule: &Rule, pass: &mut Pass<'_>, made: &mut Made) -> Applied {
        let subject = self.subject(pass, made);
        let subject = &*subject;
        let matches = rule
            .pattern
            .as_ref()
            .and_then(|pattern| pattern.is_match(subject));
        let mut certain = true;
        match matches {
            Some(matches) if matches == rule.is_negated => return Applied::No,
            Some(_) => {}
            None => certain = false,
        }
        let mut matched = Matched::default();
        if rule.needs_groups
            && certain
            && let Some(pattern) = &rule.pattern
        {
            match pattern.groups(subject) {
                Some(groups) => {
                    matched = Matched {
                        text: subject.to_owned(),
                        groups,
                    }
                }
                None => certain = false,
            }
        }
        let mut condition = Matched::default();
        let view = View {
            facts: pass.facts,
            document_root: pass.document_root,
            path: pass.path,
            end: pass.end,
            filename: made.filename.as_deref(),
            query: pass.query.as_deref(),
            env: pass.env,
            is_subrequest: pass.is_subrequest,
        };
        match all_hold(
            &rule.conditions,
            &view,
            pass.files,
            &matched,
            &mut condition,
        ) {
            Some(false) => return Applied::No,
            Some(true) => {}
            None => certain = false,
        }
        if rule.is_unknown || !certain {
            if !rule.is_exemption() {
                return Applied::Unknown;
            }
            for (name, _) in &rule.flags.env {
                pass.env.set_unknown(name);
            }
            return Applied::No;
        }
        let escape = rule.flags.escape;
        let to = rule.to.as_ref();
        if to.is_some_and(|to| !to.is_known(view.env)) {
            return Applied::Unknown;
        }
        // As Apache since 2.4.60: a question mark that the client has put into the path would begin
        // a query.
        let has_foreign_query = !rule.flags.allows_question_marks
            && pass.facts.has_encoded_question_mark()
            && to.is_some_and(|to| {
                let before = to.before_query();
                before
                    .expand(&view, &matched, &condition, escape)
                    .contains('?')
            });
        let to = to.map(|to| to.expand(&view, &matched, &condition, escape).into_owned());
        let values: Vec<(&String, Option<Option<String>>)> = rule
            .flags
            .env
            .iter()
            .map(|(name, value)| {
                let value = match value {
                    Value::Text(text) if text.is_known(view.env) => {
                        let text = text.expand(&view, &matched, &condition, None);
                        Some(Some(text.into_owned()))
                    }
                    Value::Unset => Some(None),
                    Value::Text(_) | Value::Unknown => None,
                };
                (name, value)
            })
            .collect();
        for (name, value) in values {
            match value {
                Some(Some(value)) => pass.env.set(name, value),
                Some(None) => pass.env.unset(name),
                None => pass.env.set_unknown(name),
            }
        }
        let handler = rule.flags.handler.or(rule.flags.media_type);
        pass.handler = handler.or(pass.handler);
        pass.has_handler |= rule.flags.handler.is_some();
        if let Some(status) = rule.flags.status {
            return Applied::Status(status);
        }
        let Some(mut to) = to else {
            return Applied::Yes;
        };
        made.no_escape = rule.flags.no_escape;
        made.discards_path_info |= rule.flags.discards_path_info;
        let split = match rule.flags.splits_last {
            true => to.rfind('?'),
            false => to.find('?'),
        };
        if has_foreign_query {
            return Applied::Status(403);
        }
        if rule.flags.discards_query {
            pass.query = None;
        }
        if let Some(at) = split {
            let query = to.split_off(at);
            let query = &query[1..];
            let old = pass.query.take().filter(|old| !old.is_empty());
            let query = match (rule.flags.appends_query, old) {
                (true, Some(old)) if query.is_empty() => old.into_owned(),
                (true, Some(old)) => format!("{query}&{old}"),
                _ => query.to_owned(),
            };
            let query = query.trim_end_matches('&');
            // As Apache since 2.4.56: what the client has put into the path would split the query
            // of a log line or of another server.
            if rule.flags.redirect.is_none() && query.bytes().any(|b| b <= b' ' || b == 0x7f) {
                return Applied::Status(403);
            }
            pass.query = (!query.is_empty()).then(|| Cow::Owned(query.to_owned()));
        }
        if !to.starts_with('/') && !is_absolute(&to) {
            to = format!("{}{}{to}", pass.document_root, self.directory);
        }
        let is_redirect = rule.flags.redirect.is_some();
        if is_redirect && !is_absolute(&to) {
            let path = self.url(&to, pass.document_root);
            let slash = if path.starts_with('/') { "" } else { "/" };
            to = format!("{}{slash}{path}", pass.facts.host_url());
        }
        if is_absolute(&to) {
            made.status = Some(rule.flags.redirect.unwrap_or(302));
        }
        made.filename = Some(to);
        Applied::Yes
    }

    fn redirect(&self, status: u16, to: &str, pass: &Pass<'_>, no_escape: bool) -> Outcome {
        let set = if no_escape { RAW } else { ESCAPED };
        let host = pass.facts.host_url();
        let below = to.strip_prefix(&host).filter(|rest| rest.starts_with('/'));
        let mut location = match below {
            None => utf8_percent_encode(to, set).to_string(),
            Some(path) => {
                // Two slashes would name another host.
                let path = path.trim_start_matches('/');
                format!("/{}", utf8_percent_encode(path, set))
            }
        };
        if let Some(query) = pass.query.as_deref() {
            location.push('?');
            location.extend(utf8_percent_encode(query, RAW));
        }
        Outcome::Redirect(status, location)
    }
}

/// What no header may have.
const RAW: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\');

/// As Apache escapes paths.
const ESCAPED: &AsciiSet = &RAW
    .add(b'%')
    .add(b'?')
    .add(b'#')
    .add(b'[')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A path as Apache writes it into a URL.
pub(super) fn escaped(path: &str) -> String {
    utf8_percent_encode(path, ESCAPED).to_string()
}

/// The place that a redirection names, with the request's query where it has none of its own.
pub fn location(to: &str, query: Option<&str>) -> String {
    let mut location = utf8_percent_encode(to, RAW).to_string();
    if location.starts_with("//") {
        // Two slashes would name another host.
        location = format!("/{}", location.trim_start_matches('/'));
    }
    if let Some(query) = query.filter(|_| !to.contains('?')) {
        location.push('?');
        location.extend(utf8_percent_encode(query, RAW));
    }
    location
}

/// `https://example.org/`, and what else has a scheme.
fn is_absolute(to: &str) -> bool {
    to.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'+')
    }) || to.starts_with("mailto:")
}
