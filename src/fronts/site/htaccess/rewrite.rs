//! mod_rewrite in the context of a directory: rules with their conditions, and what becomes of a
//! URL.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

use super::condition::{Condition, Files, all_hold};
use super::facts::{Env, Facts, Matched, Template, View};
use super::parse::raw_words;
use super::pattern::Pattern;

/// What a file has to say about rewriting.
#[derive(Debug, Default)]
pub struct Rewriting {
    pub engine: Option<bool>,
    pub base: Option<String>,
    pub inherits: Inherits,
    pub merges_base: bool,
    pub rules: Vec<Arc<Rule>>,
}

/// Whether the rules of the directory above are evaluated too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Inherits {
    #[default]
    No,
    Behind,
    Before,
}

#[derive(Debug)]
pub struct Rule {
    /// None where it cannot be evaluated.
    pattern: Option<Pattern>,
    is_negated: bool,
    conditions: Vec<Condition>,
    /// None for `-`.
    to: Option<Template>,
    /// Its text cannot be known.
    is_unknown: bool,
    needs_groups: bool,
    flags: Flags,
}

#[derive(Debug, Default)]
struct Flags {
    /// `F`, `G`, or `R` with a status that is no redirect's.
    status: Option<u16>,
    redirect: Option<u16>,
    last: bool,
    end: bool,
    next: bool,
    chain: bool,
    skip: usize,
    appends_query: bool,
    discards_query: bool,
    splits_last: bool,
    no_escape: bool,
    not_in_subrequests: bool,
    escape: Option<fn(&str) -> String>,
    discards_path_info: bool,
    ignores_case: bool,
    env: Vec<(String, Option<Template>)>,
    /// `H` or `T`: is it PHP?
    handler: Option<bool>,
}

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
    /// What `H` and `T` have said of PHP.
    pub handler: Option<bool>,
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

impl Rule {
    /// Reads `RewriteRule`. Problems are what cannot be evaluated.
    pub fn parse(
        rest: &str,
        conditions: Vec<Condition>,
        problems: &mut Vec<String>,
    ) -> Result<Rule, String> {
        let words = raw_words(rest);
        let (pattern, to, flags) = match words.as_slice() {
            [pattern, to] => (pattern, to, ""),
            [pattern, to, flags, ..] => (pattern, to, flags.as_str()),
            _ => return Err("RewriteRule takes a pattern and a substitution".into()),
        };
        let mut is_unknown = false;
        let mut unknown = |what: String| {
            is_unknown = true;
            problems.push(what);
        };
        let flags = Flags::parse(flags, &mut unknown)?;
        let (is_negated, text) = match pattern.strip_prefix('!') {
            Some(text) => (true, text),
            None => (false, pattern.as_str()),
        };
        let pattern = Pattern::new(text, flags.ignores_case)
            .map_err(|why| unknown(format!("the pattern {text} cannot be evaluated: {why}")))
            .ok();
        let to = match to.as_str() {
            "-" => None,
            _ if flags.status.is_some() => None,
            text => Template::parse(text)
                .map_err(|what| unknown(format!("{what} is not known")))
                .ok(),
        };
        let mut templates = to
            .iter()
            .chain(flags.env.iter().filter_map(|(_, to)| to.as_ref()));
        let needs_groups = templates.any(Template::has_rule_groups)
            || conditions.iter().any(Condition::has_rule_groups);
        Ok(Rule {
            needs_groups: needs_groups && !is_negated,
            pattern,
            is_negated,
            conditions,
            to,
            is_unknown,
            flags,
        })
    }

    /// Whether it answers with a status such as 403.
    pub fn denies(&self) -> bool {
        self.flags.status.is_some() || self.is_unknown
    }

    /// Whether it does nothing but stop or skip other rules.
    fn is_exemption(&self) -> bool {
        self.to.is_none() && self.flags.status.is_none() && !self.is_unknown
    }
}

impl Flags {
    fn parse(text: &str, unknown: &mut impl FnMut(String)) -> Result<Flags, String> {
        let mut flags = Flags::default();
        let text = text.trim();
        if text.is_empty() {
            return Ok(flags);
        }
        let inside = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'));
        let Some(inside) = inside else {
            return Err(format!("the flags {text} are not in brackets"));
        };
        for flag in inside.split(',') {
            let flag = flag.trim();
            let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
            match name.to_ascii_lowercase().as_str() {
                "" => {}
                "f" | "forbidden" => flags.status = Some(403),
                "g" | "gone" => flags.status = Some(410),
                "r" | "redirect" => match status(value) {
                    Some(code @ 300..400) => flags.redirect = Some(code),
                    Some(code) => flags.status = Some(code),
                    None => return Err(format!("{flag} has no HTTP status")),
                },
                "l" | "last" | "pt" | "passthrough" => flags.last = true,
                "end" => (flags.last, flags.end) = (true, true),
                "n" | "next" => flags.next = true,
                "c" | "chain" => flags.chain = true,
                "s" | "skip" => {
                    flags.skip = value.parse().map_err(|_| format!("{flag} has no number"))?;
                }
                "qsa" | "qsappend" => flags.appends_query = true,
                "qsd" | "qsdiscard" => flags.discards_query = true,
                "qsl" | "qslast" => flags.splits_last = true,
                "ne" | "noescape" => flags.no_escape = true,
                "ns" | "nosubreq" => flags.not_in_subrequests = true,
                "nc" | "nocase" => flags.ignores_case = true,
                "b" => flags.escape = flags.escape.or(Some(escape_group)),
                "bnp" | "backrefnoplus" => flags.escape = Some(escape_group_without_plus),
                "bctls" => flags.escape = flags.escape.or(Some(escape_controls)),
                "dpi" | "discardpath" => flags.discards_path_info = true,
                "e" | "env" => match value.strip_prefix('!') {
                    Some(name) => flags.env.push((name.to_owned(), None)),
                    None => {
                        let (name, text) = value.split_once(':').unwrap_or((value, ""));
                        // A variable of unknown value is none.
                        let text = Template::parse(text).ok();
                        flags.env.push((name.to_owned(), text));
                    }
                },
                "h" | "handler" | "t" | "type" => {
                    flags.handler = Some(super::handler::is_php(value));
                }
                "co" | "cookie" | "bne" | "unsafeallow3f" | "unsafeprefixstat" | "unc"
                | "unsafeprefixstatus" => {}
                "p" | "proxy" => unknown("the flag P asks for a proxy, which Surus is none".into()),
                _ => unknown(format!("the flag {flag} is not known")),
            }
        }
        Ok(flags)
    }
}

fn status(text: &str) -> Option<u16> {
    match text.to_ascii_lowercase().as_str() {
        "" | "temp" => Some(302),
        "permanent" => Some(301),
        "seeother" => Some(303),
        number => number.parse().ok().filter(|code| (300..600).contains(code)),
    }
}

/// The rules that apply to a directory.
#[derive(Debug, Clone)]
pub struct Rules {
    pub rules: Vec<Arc<Rule>>,
    /// The directory whose file has them, with slashes at both ends.
    pub directory: Arc<str>,
    pub base: Option<String>,
}

/// Bytes of what a request is rewritten to. Longer is nothing that a file system or a script takes.
const MAX_NAME: usize = 64 << 10;

/// What one rule has come to.
enum Applied {
    No,
    Yes,
    Status(u16),
    Redirect(u16),
    Unknown,
}

impl Rules {
    pub fn run(&self, pass: &mut Pass<'_>) -> Outcome {
        let mut filename: Option<String> = None;
        let mut has_path_info = true;
        let mut rounds = 0;
        let mut at = 0;
        while let Some(rule) = self.rules.get(at) {
            at += 1;
            if pass.is_subrequest
                && (rule.flags.not_in_subrequests || rule.flags.redirect.is_some())
            {
                continue;
            }
            match self.apply(rule, pass, &mut filename, &mut has_path_info) {
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
                Applied::Redirect(status) => {
                    let to = filename.unwrap_or_default();
                    return self.redirect(status, &to, pass, rule.flags.no_escape);
                }
                Applied::Yes => {}
            }
            pass.is_over |= rule.flags.end;
            if rule.flags.last {
                break;
            }
            if rule.flags.next {
                rounds += 1;
                if rounds > MAX_ROUNDS {
                    return Outcome::Status(500);
                }
                at = 0;
            }
            // Rules that repeat may let it grow without end.
            if filename.as_ref().is_some_and(|name| name.len() > MAX_NAME) {
                return Outcome::Status(500);
            }
            at = at.saturating_add(rule.flags.skip);
        }
        match filename {
            // Where the rules lead to what was asked for, the request does not begin again.
            Some(filename)
                if filename.strip_prefix(pass.document_root) != Some(&pass.path[..pass.end]) =>
            {
                if !filename.starts_with('/') {
                    return Outcome::Status(400);
                }
                Outcome::Internal(self.url(&filename, pass.document_root).into_owned())
            }
            _ => Outcome::Unchanged,
        }
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

    fn apply(
        &self,
        rule: &Rule,
        pass: &mut Pass<'_>,
        filename: &mut Option<String>,
        has_path_info: &mut bool,
    ) -> Applied {
        let subject: Cow<'_, str> = match &filename {
            None => pass.path.into(),
            Some(filename) => {
                let info = if *has_path_info {
                    &pass.path[pass.end..]
                } else {
                    ""
                };
                match filename.strip_prefix(pass.document_root) {
                    Some(below) if below.starts_with('/') => format!("{below}{info}").into(),
                    _ => format!("{filename}{info}").into(),
                }
            }
        };
        let subject = subject.strip_prefix(&*self.directory).unwrap_or(&subject);
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
            && let Some(pattern) = &rule.pattern
            && let Some(groups) = pattern.groups(subject)
        {
            matched = Matched {
                text: subject.to_owned(),
                groups,
            };
        }
        let mut condition = Matched::default();
        let view = View {
            facts: pass.facts,
            document_root: pass.document_root,
            path: pass.path,
            end: pass.end,
            filename: filename.as_deref(),
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
            return match rule.is_exemption() {
                true => Applied::No,
                false => Applied::Unknown,
            };
        }
        let escape = rule.flags.escape;
        let to = rule.to.as_ref();
        let to = to.map(|to| to.expand(&view, &matched, &condition, escape).into_owned());
        let expand = |template: &Template| {
            template
                .expand(&view, &matched, &condition, None)
                .into_owned()
        };
        let env: Vec<(&String, Option<String>)> = rule
            .flags
            .env
            .iter()
            .map(|(name, value)| (name, value.as_ref().map(expand)))
            .collect();
        for (name, value) in env {
            match value {
                Some(value) => pass.env.set(name, value),
                None => pass.env.unset(name),
            }
        }
        if let Some(is_php) = rule.flags.handler {
            pass.handler = Some(is_php);
        }
        if let Some(status) = rule.flags.status {
            return Applied::Status(status);
        }
        let Some(mut to) = to else {
            return Applied::Yes;
        };
        if rule.flags.discards_path_info {
            *has_path_info = false;
        }
        let split = match rule.flags.splits_last {
            true => to.rfind('?'),
            false => to.find('?'),
        };
        // A question mark that the client has put into the path would become a query of its own.
        if split.is_some() && rule.needs_groups && pass.path.contains('?') {
            return Applied::Unknown;
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
        let is_redirect = is_absolute(&to);
        *filename = Some(to);
        match rule.flags.redirect {
            Some(status) => Applied::Redirect(status),
            None if is_redirect => Applied::Redirect(302),
            None => Applied::Yes,
        }
    }

    fn redirect(&self, status: u16, to: &str, pass: &Pass<'_>, no_escape: bool) -> Outcome {
        let set = if no_escape { RAW } else { ESCAPED };
        let mut location = match is_absolute(to) {
            true => utf8_percent_encode(to, set).to_string(),
            false => {
                let path = self.url(to, pass.document_root);
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

/// What the flag B encodes.
const GROUP: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_');

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

fn escape_controls(text: &str) -> String {
    const SET: &AsciiSet = &CONTROLS.add(b' ');
    utf8_percent_encode(text, SET).to_string()
}

fn escape_group(text: &str) -> String {
    escape_group_without_plus(text).replace("%20", "+")
}

fn escape_group_without_plus(text: &str) -> String {
    utf8_percent_encode(text, GROUP).to_string()
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
