//! One rule of mod_rewrite: parses `RewriteRule` and `RewriteOptions`.

use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_encode};

use super::condition::Condition;
use super::cost::ReadingBudget;
use super::handler::{FileHandler, MediaType, not_php};
use super::known::{is_status, leading_number};
use super::parse::{flags_of, raw_words};
use super::pattern::Pattern;
use super::template::{Escape, Template};

/// The rewrite directives of a file.
#[derive(Debug, Default)]
pub struct Rewriting {
    pub engine: Option<bool>,
    pub base: Option<String>,
    /// None if the directory does not set options.
    pub options: Option<Options>,
    pub rules: Vec<Arc<RewriteRule>>,
}

/// The effect of `RewriteOptions`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// How this directory inherits the rules of its parent.
    pub inherits: Inherits,
    /// How subdirectories inherit the rules of this directory.
    pub gives: Inherits,
    /// Whether this directory ignores the parent's setting for subdirectories.
    pub ignores: bool,
    pub merges_base: bool,
}

impl Options {
    /// Applies one word; an error if Apache does not know it.
    pub fn apply(&mut self, word: &str) -> Result<(), String> {
        match word.to_ascii_lowercase().as_str() {
            "inherit" => self.inherits = Inherits::Behind,
            "inheritbefore" => self.inherits = Inherits::Before,
            "inheritdown" => self.gives = Inherits::Behind,
            "inheritdownbefore" => self.gives = Inherits::Before,
            "ignoreinherit" => self.ignores = true,
            "mergebase" => self.merges_base = true,
            "allownoslash"
            | "allowanyuri"
            | "ignorecontextinfo"
            | "legacyprefixdocroot"
            | "longurloptimization"
            | "unsafeprefixstat" => {}
            // From Apache 2.0; later versions ignore it.
            word if word.starts_with("maxredirects=") => {}
            _ => return Err(format!("RewriteOptions {word} is unknown")),
        }
        Ok(())
    }

    /// How these rules combine with those of the parent, which has the options `above`.
    pub fn taken_from(&self, above: &Options) -> Inherits {
        match (self.inherits, self.ignores) {
            (Inherits::No, false) => above.gives,
            // As in Apache, the parent's `InheritDown` has precedence over the directory's
            // `InheritBefore`.
            (Inherits::Before, false) if above.gives == Inherits::Behind => Inherits::Behind,
            (inherits, _) => inherits,
        }
    }
}

/// Whether and where the rules of another directory are evaluated, too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Inherits {
    #[default]
    No,
    Behind,
    Before,
}

#[derive(Debug)]
pub struct RewriteRule {
    /// None if it cannot be evaluated.
    pub(super) pattern: Option<Pattern>,
    pub(super) is_negated: bool,
    pub(super) conditions: Vec<Condition>,
    /// None for `-`.
    pub(super) to: Option<Template>,
    /// The substitution is unknown.
    pub(super) is_unknown: bool,
    pub(super) needs_groups: bool,
    pub(super) flags: Flags,
}

#[derive(Debug, Default)]
pub(super) struct Flags {
    /// The flags `F` and `G`, or `R` with an error status.
    pub(super) status: Option<u16>,
    pub(super) redirect: Option<u16>,
    pub(super) last: bool,
    pub(super) end: bool,
    pub(super) next: bool,
    pub(super) chain: bool,
    pub(super) skip: usize,
    pub(super) appends_query: bool,
    pub(super) discards_query: bool,
    pub(super) splits_last: bool,
    pub(super) no_escape: bool,
    pub(super) not_in_subrequests: bool,
    /// The flags `B` and `BCTLS`.
    pub(super) escape: Option<Escape>,
    pub(super) discards_path_info: bool,
    pub(super) ignores_case: bool,
    pub(super) env: Vec<(String, VariableValue)>,
    pub(super) allows_question_marks: bool,
    /// The flag `H`.
    pub(super) handler: Option<FileHandler>,
    /// The flag `T`.
    pub(super) media_type: Option<MediaType>,
}

/// The effect of the flag `E` on a variable.
#[derive(Debug)]
pub(super) enum VariableValue {
    Text(Template),
    Unset,
    /// A value that cannot be known.
    Unknown,
}

impl RewriteRule {
    /// Parses `RewriteRule`. `problems` receives what cannot be evaluated.
    pub(super) fn parse(
        rest: &str,
        conditions: Vec<Condition>,
        budget: &ReadingBudget,
        problems: &mut Vec<String>,
    ) -> Result<RewriteRule, String> {
        let words = raw_words(rest);
        let (pattern, to, flags) = match words.as_slice() {
            [pattern, to] => (pattern, to, ""),
            [pattern, to, flags, ..] => (pattern, to, flags.as_str()),
            _ => return Err("RewriteRule needs a pattern and a substitution".into()),
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
        let pattern = Pattern::new(text, flags.ignores_case, budget)
            .map_err(|why| unknown(format!("the pattern {text} cannot be evaluated: {why}")))
            .ok();
        let to = match to.as_str() {
            "-" => None,
            _ if flags.status.is_some() => None,
            text => Template::parse(text)
                .map_err(|what| unknown(format!("{what} is not known")))
                .ok(),
        };
        let mut templates =
            to.iter()
                .chain(flags.env.iter().filter_map(|(_, value)| match value {
                    VariableValue::Text(text) => Some(text),
                    VariableValue::Unset | VariableValue::Unknown => None,
                }));
        let needs_groups = templates.any(Template::has_rule_groups)
            || conditions.iter().any(Condition::has_rule_groups);
        Ok(RewriteRule {
            needs_groups: needs_groups && !is_negated,
            pattern,
            is_negated,
            conditions,
            to,
            is_unknown,
            flags,
        })
    }

    /// Whether the rule responds with an error status such as 403.
    pub fn denies(&self) -> bool {
        self.flags.status.is_some() || self.is_unknown
    }

    pub fn sets_variables(&self) -> bool {
        !self.flags.env.is_empty()
    }

    /// Whether the rule only ends the rules or sets variables. If it is uncertain whether it
    /// applies, it is skipped, and its variables become unknown.
    pub fn is_exemption(&self) -> bool {
        let flags = &self.flags;
        self.to.is_none()
            && !self.denies()
            && flags.handler.is_none()
            && flags.media_type.is_none()
            && flags.skip == 0
            && !flags.chain
            && !flags.next
    }
}

impl Flags {
    fn parse(text: &str, unknown: &mut impl FnMut(String)) -> Result<Flags, String> {
        let mut flags = Flags::default();
        let (mut escapes, mut keeps_spaces, mut only_controls) = (false, false, false);
        for flag in flags_of(text.trim())? {
            let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
            match name.to_ascii_lowercase().as_str() {
                "f" | "forbidden" => flags.status = Some(403),
                "g" | "gone" => flags.status = Some(410),
                "r" | "redirect" => {
                    // Regardless of its status.
                    flags.not_in_subrequests = true;
                    match status(value) {
                        Some(code @ 300..400) => flags.redirect = Some(code),
                        Some(code @ 400..) => flags.status = Some(code),
                        Some(_) => unknown(format!(
                            "the flag {flag} is neither a redirect nor an error"
                        )),
                        None => return Err(format!("{flag} has an invalid HTTP status")),
                    }
                }
                "l" | "last" | "pt" | "passthrough" => flags.last = true,
                "end" => (flags.last, flags.end) = (true, true),
                "n" | "next" => flags.next = true,
                "c" | "chain" => flags.chain = true,
                "s" | "skip" => flags.skip = leading_number(value).max(0) as usize,
                "qsa" | "qsappend" => flags.appends_query = true,
                "qsd" | "qsdiscard" => flags.discards_query = true,
                "qsl" | "qslast" => flags.splits_last = true,
                "ne" | "noescape" => flags.no_escape = true,
                "ns" | "nosubreq" => flags.not_in_subrequests = true,
                "nc" | "nocase" => flags.ignores_case = true,
                "b" => escapes = true,
                "bnp" | "backrefnoplus" => keeps_spaces = true,
                "bctls" => only_controls = true,
                "dpi" | "discardpath" => flags.discards_path_info = true,
                "e" | "env" => {
                    let (name, text) = value.split_once(':').unwrap_or((value, ""));
                    if has_placeholder(name) {
                        unknown(from_request(flag));
                    }
                    flags.env.push(match value.strip_prefix('!') {
                        Some(name) => (name.to_owned(), VariableValue::Unset),
                        None => {
                            let text = Template::parse(text)
                                .map_or(VariableValue::Unknown, VariableValue::Text);
                            (name.to_owned(), text)
                        }
                    });
                }
                "h" | "handler" => {
                    let handler = FileHandler::named(value);
                    if has_placeholder(value) {
                        unknown(from_request(flag));
                    } else if handler == FileHandler::Unknown {
                        unknown(not_php(flag));
                    }
                    flags.handler = Some(handler);
                }
                "t" | "type" => {
                    let kind = MediaType::named(value);
                    if has_placeholder(value) {
                        unknown(from_request(flag));
                    } else if kind.handler == FileHandler::Unknown {
                        unknown(not_php(flag));
                    }
                    flags.media_type = Some(kind);
                }
                "unsafeallow3f" => flags.allows_question_marks = true,
                "co" | "cookie" | "bne" | "unsafeprefixstat" | "unc" => {}
                "p" | "proxy" => {
                    unknown("the flag P needs a proxy, which Surus does not provide".into())
                }
                _ => return Err(format!("unknown flag {flag}")),
            }
        }
        flags.escape = match (only_controls, escapes, keeps_spaces) {
            (true, _, true) => Some(escape_controls),
            (true, _, false) => Some(|text| with_plus(escape_controls(text))),
            (false, true, true) => Some(escape_group),
            (false, true, false) => Some(|text| with_plus(escape_group(text))),
            // As in Apache, `BNP` alone has no effect.
            (false, false, _) => None,
        };
        Ok(flags)
    }
}

/// Whether Apache replaces a part of the name in a flag, which Surus takes literally.
fn has_placeholder(name: &str) -> bool {
    name.contains(['$', '%', '\\'])
}

/// The problem of a flag with such a name.
fn from_request(flag: &str) -> String {
    format!("the flag {flag} takes a name from the request")
}

/// The status of the flag `R`. As in Apache, an unknown word means 302.
fn status(text: &str) -> Option<u16> {
    match text.to_ascii_lowercase().as_str() {
        "permanent" => Some(301),
        "seeother" => Some(303),
        number if number.starts_with(|c: char| c.is_ascii_digit()) => {
            let code = u16::try_from(leading_number(number)).ok();
            code.filter(|code| is_status(*code))
        }
        _ => Some(302),
    }
}

/// The characters that the flag `B` encodes.
const GROUP: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_');

fn escape_controls(text: &[u8]) -> String {
    const SET: &AsciiSet = &CONTROLS.add(b' ');
    percent_encode(text, SET).to_string()
}

fn escape_group(text: &[u8]) -> String {
    percent_encode(text, GROUP).to_string()
}

fn with_plus(escaped: String) -> String {
    escaped.replace("%20", "+")
}
