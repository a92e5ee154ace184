//! Reports directives that Surus ignores although applications use them, with what replaces them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::known::AUTO_FILES;
use super::parse::{DirectiveNode, flags_of, raw_words};
use super::rules::{Problem, Scope};

/// The ignored directives of a file.
#[derive(Default)]
pub(super) struct IgnoredDirectives {
    reported_kinds: BTreeSet<IgnoredKind>,
    /// By their names in lower case.
    variables: BTreeMap<String, SetVariable>,
}

/// Each is reported once in a file, because usual files have many lines of some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum IgnoredKind {
    PhpSetting,
    ErrorPage,
    ResponseHeader,
    MultiViews,
}

/// A variable that PHP may miss.
struct SetVariable {
    name: String,
    line: u32,
    /// Set by the flag `E` of a rule, instead of by `SetEnv`.
    is_of_rule: bool,
}

/// Variables that Surus sets itself, or that must not reach PHP. With `modHeadersAvailable`,
/// Nextcloud leaves out its security headers.
const NOT_MISSED: [&str; 8] = [
    "https",
    "path_info",
    "query_string",
    "remote_addr",
    "request_uri",
    "script_name",
    "server_port",
    "modheadersavailable",
];

/// Finds the variables on which directives depend, also in expressions. The first alternative
/// consumes the flag `[ENV=x]`, which sets a variable.
static CONDITION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let one = r#"%\{(?:req)?env:|\b(?:req)?env\s*\(\s*[\\'"]*|\benv=!?|\bsetenvif(?:nocase)?\s+"?"#;
    let several = r"\brequire\s+(?:not\s+)?env\s+([\w \t]+)";
    Regex::new(&format!(r"(?i-u)[\[,]\s*env=|(?:{one})(\w+)|{several}")).ok()
});

impl IgnoredDirectives {
    /// What to report about a directive, if it is the first ignored one of its kind. Variables are
    /// reported at the end of the file.
    pub(super) fn report(&mut self, node: &DirectiveNode, words: &[String]) -> Option<String> {
        let first = words.first().map_or("", String::as_str);
        let lower = first.to_ascii_lowercase();
        let kind = match node.name.as_str() {
            "setenv" | "rewriterule" => {
                self.note_variables(node, first);
                return None;
            }
            // `engine` applies, and files to prepend are reported by name.
            "php_value" | "php_flag" if lower != "engine" && !AUTO_FILES.contains(&&*lower) => {
                IgnoredKind::PhpSetting
            }
            "errordocument"
                if (words.get(1)).is_some_and(|page| !page.eq_ignore_ascii_case("default")) =>
            {
                IgnoredKind::ErrorPage
            }
            "header" => IgnoredKind::ResponseHeader,
            "options" if words.iter().any(|word| switches_on_multi_views(word)) => {
                IgnoredKind::MultiViews
            }
            _ => return None,
        };
        if !self.reported_kinds.insert(kind) {
            return None;
        }
        Some(match kind {
            IgnoredKind::PhpSetting => format!(
                "{} {first} is ignored; write it into .user.ini, or into [php] of surus.toml",
                node.name
            ),
            IgnoredKind::ErrorPage => format!(
                "ErrorDocument {first} is ignored; write {first}.html into `errors` of the \
                 document root, or into error_pages.directory"
            ),
            IgnoredKind::ResponseHeader => {
                "Header is ignored; write `headers` into a [[route]]".to_owned()
            }
            IgnoredKind::MultiViews => {
                "MultiViews is ignored, so a URL without its ending finds no file; write a \
                 RewriteRule or a [[route]]"
                    .to_owned()
            }
        })
    }

    /// Notes the variables that a directive sets for PHP.
    fn note_variables(&mut self, node: &DirectiveNode, first: &str) {
        let is_of_rule = node.name == "rewriterule";
        let names = match is_of_rule {
            true => set_by_rule(&node.rest),
            false if may_be_missed(first, "") => vec![first.to_owned()],
            false => Vec::new(),
        };
        for name in names {
            let variable = SetVariable {
                name,
                line: node.line,
                is_of_rule,
            };
            let lower = variable.name.to_ascii_lowercase();
            self.variables.entry(lower).or_insert(variable);
        }
    }

    /// The variables on which no directive of the file depends: a report for each kind of
    /// directive that sets them.
    pub(super) fn missed_variables(&mut self, text: &str) -> Vec<Problem> {
        let condition = CONDITION.as_ref().filter(|_| !self.variables.is_empty());
        let conditions = condition.into_iter();
        for found in conditions.flat_map(|one| one.captures_iter(text)) {
            let names = found.get(1).or_else(|| found.get(2));
            let names = names.map_or("", |names| names.as_str());
            for name in names.split_ascii_whitespace() {
                self.variables.remove(&name.to_ascii_lowercase());
            }
        }
        let of_set_env = "variables of SetEnv do not reach PHP from here; set them in [env]";
        let of_rules = "variables of the flag E do not reach PHP from here; set those in [env] \
                        whose value is always the same";
        let reports = [(of_set_env, false), (of_rules, true)].map(|(what, is_of_rule)| {
            let missed = self.variables.values();
            let missed: Vec<_> = missed.filter(|one| one.is_of_rule == is_of_rule).collect();
            let names: Vec<_> = missed.iter().map(|one| one.name.as_str()).collect();
            Some(Problem {
                line: missed.iter().map(|one| one.line).min()?,
                what: format!("{what}: {}", names.join(", ")),
                about: Scope::All,
                closes: false,
                is_logged: true,
            })
        });
        reports.into_iter().flatten().collect()
    }
}

/// The variables that a rule sets for PHP.
fn set_by_rule(rule: &str) -> Vec<String> {
    let words = raw_words(rule);
    let flags = words.get(2).and_then(|flags| flags_of(flags).ok());
    let names = flags.into_iter().flatten().filter_map(|flag| {
        let (key, value) = flag.split_once('=')?;
        let is_variable = ["e", "env"].contains(&&*key.trim().to_ascii_lowercase());
        let (name, text) = value.split_once(':').unwrap_or((value, ""));
        (is_variable && may_be_missed(name, text)).then(|| name.to_owned())
    });
    names.collect()
}

/// Whether an application may miss the variable. Those with a hyphen, such as `no-gzip`, are
/// Apache's own.
fn may_be_missed(name: &str, value: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let lower = name.to_ascii_lowercase();
    // PHP has the request's headers anyway. Symfony's `%0` is the header `Authorization`, too.
    let is_header = lower.starts_with("http_") && value.to_ascii_lowercase().contains("%{http:")
        || lower == "http_authorization" && value.contains('%');
    !name.is_empty() && name.chars().all(is_name) && !is_header && !NOT_MISSED.contains(&&*lower)
}

fn switches_on_multi_views(option: &str) -> bool {
    let name = option.strip_prefix('+').unwrap_or(option);
    name.eq_ignore_ascii_case("multiviews")
}
