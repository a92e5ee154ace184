//! Evaluates the mod_rewrite rules of a directory for a URL.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::condition::{FileLookup, all_hold};
use super::facts::{Env, Facts, FactsView};
use super::handler::FileHandler;
use super::rule::{RewriteRule, VariableValue};
use super::template::Matched;

/// The input and state of one evaluation.
pub struct Pass<'a> {
    pub facts: &'a Facts<'a>,
    pub files: &'a dyn FileLookup,
    pub document_root: &'a str,
    pub path: &'a str,
    pub end: usize,
    pub query: Option<Cow<'a, str>>,
    pub env: &'a mut Env,
    pub is_subrequest: bool,
    /// The handler that the flags `H` and `T` set.
    pub handler: Option<FileHandler>,
    /// Whether the flag `H` set it.
    pub has_handler: bool,
    /// The type that the flag `T` set.
    pub media_type: Option<Arc<str>>,
    /// Whether a rule had the flag `END`.
    pub is_over: bool,
}

/// The result of the rules.
#[derive(Debug, PartialEq, Eq)]
pub enum RewriteOutcome {
    Unchanged,
    /// The request continues with this path, which is not encoded.
    Internal(String),
    Redirect(u16, String),
    Status(u16),
    /// A rule that cannot be evaluated denies access.
    Unknown,
}

/// The limit of repetitions by the flag `N`.
const MAX_ROUNDS: usize = 1000;

/// The rules that apply to a directory.
#[derive(Debug, Clone)]
pub struct Rules {
    pub rules: Vec<Arc<RewriteRule>>,
    /// The directory of the `.htaccess` file, with slashes at both ends.
    pub directory: Arc<str>,
    pub base: Option<String>,
    /// Whether the rules also apply to files of a section with mod_rewrite directives.
    pub holds_in_sections: bool,
}

/// The longest rewritten name, in bytes. File systems and scripts accept no longer ones.
const MAX_NAME: usize = 64 << 10;

/// The result of one rule.
enum Applied {
    No,
    Yes,
    Status(u16),
    Unknown,
}

/// The intermediate result of the rules.
#[derive(Default)]
struct Made {
    /// A file path, URL path or URL.
    filename: Option<String>,
    /// The status of a redirect.
    status: Option<u16>,
    /// The last rule that changed the name has the flag `NE`.
    no_escape: bool,
    discards_path_info: bool,
}

impl Rules {
    pub fn run(&self, pass: &mut Pass<'_>) -> RewriteOutcome {
        let mut made = Made::default();
        let mut rounds = 0;
        let mut at = 0;
        while let Some(rule) = self.rules.get(at) {
            at += 1;
            if !pass.facts.steps.take(pass.env.steps()) {
                return RewriteOutcome::Unknown;
            }
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
                Applied::Unknown => return RewriteOutcome::Unknown,
                Applied::Status(status) => return RewriteOutcome::Status(status),
                Applied::Yes => {}
            }
            pass.is_over |= rule.flags.end;
            if rule.flags.last {
                break;
            }
            // Rules that repeat could grow the name without limit.
            let name = made.filename.as_ref();
            if name.is_some_and(|name| name.len() > MAX_NAME) {
                return RewriteOutcome::Status(500);
            }
            if rule.flags.next {
                rounds += 1;
                if rounds > MAX_ROUNDS {
                    return RewriteOutcome::Status(500);
                }
                at = 0;
                continue;
            }
            at = at.saturating_add(rule.flags.skip);
        }
        let Some(filename) = &made.filename else {
            return RewriteOutcome::Unchanged;
        };
        if is_absolute(filename) {
            let status = made.status.unwrap_or(302);
            return self.redirect(status, filename, pass, made.no_escape);
        }
        // Apache sends the existing file with the status of the redirect; such a response leads
        // nowhere.
        if made.status.is_some() {
            return RewriteOutcome::Unknown;
        }
        // If the rules lead to the requested file, the request is not restarted.
        if filename.strip_prefix(pass.document_root) == Some(&pass.path[..pass.end]) {
            return RewriteOutcome::Unchanged;
        }
        if !filename.starts_with('/') {
            return RewriteOutcome::Status(400);
        }
        // As in Apache, the handler replaces the one that performs the internal redirect.
        if pass.has_handler {
            return RewriteOutcome::Status(403);
        }
        RewriteOutcome::Internal(self.url(filename, pass.document_root).into_owned())
    }

    /// Converts a file path to a URL path; returns a URL path unchanged.
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

    /// The text that patterns match: the file path relative to the directory. A URL path set by an
    /// earlier rule keeps its directories.
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

    fn apply(&self, rule: &RewriteRule, pass: &mut Pass<'_>, made: &mut Made) -> Applied {
        let subject = self.subject(pass, made);
        let subject = &*subject;
        let steps = &pass.facts.steps;
        let variables = rule.flags.env.len() * pass.env.steps();
        if !steps.take_copy(subject.len()) || !steps.take(variables) {
            return Applied::Unknown;
        }
        let matches = rule
            .pattern
            .as_ref()
            .and_then(|pattern| pattern.is_match(subject, steps));
        let mut certain = true;
        match matches {
            Some(matches) if matches == rule.is_negated => return Applied::No,
            Some(_) => {}
            None => certain = false,
        }
        let mut matched = Matched::default();
        if rule.needs_groups {
            let pattern = rule.pattern.as_ref().filter(|_| certain);
            let groups = pattern.and_then(|pattern| pattern.groups(subject, steps));
            certain = groups.is_some();
            matched = match groups {
                Some(groups) => Matched::new(subject.to_owned(), groups),
                None => Matched::unknown(),
            };
        }
        let mut condition = Matched::default();
        let view = FactsView {
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
        if to.is_some_and(|to| !to.is_known(&view, &matched, &condition)) {
            return Applied::Unknown;
        }
        // Like Apache since 2.4.60. An encoded question mark of the client would begin a query.
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
                    VariableValue::Text(text) if text.is_known(&view, &matched, &condition) => {
                        let text = text.expand(&view, &matched, &condition, None);
                        Some(Some(text.into_owned()))
                    }
                    VariableValue::Unset => Some(None),
                    VariableValue::Text(_) | VariableValue::Unknown => None,
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
        let media_type = rule.flags.media_type.as_ref();
        let handler = rule.flags.handler.or(media_type.map(|kind| kind.handler));
        if let Some(kind) = media_type {
            pass.media_type = Some(kind.name.clone());
        }
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
            // Like Apache since 2.4.56. Such characters of the client would split the query in a
            // log line or at another server.
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

    fn redirect(&self, status: u16, to: &str, pass: &Pass<'_>, no_escape: bool) -> RewriteOutcome {
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
        RewriteOutcome::Redirect(status, location)
    }
}

/// Characters that are not allowed in a header.
const RAW: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\');

/// The characters that Apache escapes in paths.
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

/// Escapes a path as Apache does for a URL.
pub(super) fn escaped(path: &str) -> String {
    utf8_percent_encode(path, ESCAPED).to_string()
}

/// The location of a redirect. It gets the request's query unless it has one.
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

/// Whether the target has a scheme, such as `https://example.org/`.
fn is_absolute(to: &str) -> bool {
    to.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'+')
    }) || to.starts_with("mailto:")
}
