//! Reads URL directives: rewriting, redirects, and environment variables.

use std::sync::Arc;

use super::condition::Condition;
use super::known::{is_status, leading_number};
use super::parse::{DirectiveNode, SyntaxError, flags_of, raw_words};
use super::pattern::Pattern;
use super::read::{HtaccessReader, Read, ReadContext, error};
use super::rule::{Inherits, Options, RewriteRule};
use super::rules::{Block, From, Redirect, Scope, SetEnvIf, is_url};

impl HtaccessReader {
    pub(super) fn rewriting(
        &mut self,
        node: &DirectiveNode,
        words: &[String],
        block: &mut Block,
        context: &ReadContext,
    ) -> Read {
        let wrong = |why| SyntaxError {
            line: node.line,
            why,
        };
        let mut problems = Vec::new();
        let mut closes = true;
        block.replaces_rules = context.is_section;
        match node.name.as_str() {
            "rewritecond" => {
                if self.conditions.is_empty() {
                    self.before_conditions = self.file.problems.len();
                }
                let condition = Condition::parse(&node.rest, &self.budget, &mut problems);
                let condition = condition.map_err(wrong)?;
                self.conditions.push(condition);
            }
            "rewriterule" => {
                let conditions = std::mem::take(&mut self.conditions);
                let rule = RewriteRule::parse(&node.rest, conditions, &self.budget, &mut problems);
                let rule = rule.map_err(wrong)?;
                if context.is_section {
                    closes = !rule.is_exemption() || rule.sets_variables();
                    block.closes_by_rule |= closes;
                    problems.push(
                        "rules in sections are not evaluated; access to what they protect is \
                         denied"
                            .into(),
                    );
                } else {
                    let rewriting = self.file.rewriting.get_or_insert_default();
                    rewriting.rules.push(rule.into());
                }
            }
            "rewriteengine" => {
                let on = match words[0].to_ascii_lowercase().as_str() {
                    "on" => true,
                    "off" => false,
                    _ => return error(node, "RewriteEngine must be On or Off"),
                };
                match context.is_section {
                    true => block.engine = Some(on),
                    false => self.file.rewriting.get_or_insert_default().engine = Some(on),
                }
            }
            "rewritebase" if words[0].starts_with('/') => {
                if !context.is_section {
                    let rewriting = self.file.rewriting.get_or_insert_default();
                    rewriting.base = Some(words[0].clone());
                }
            }
            "rewritebase" => return error(node, "RewriteBase must begin with a slash"),
            _ => {
                let mut ignored = Options::default();
                let options = match context.is_section {
                    true => &mut ignored,
                    false => {
                        let rewriting = self.file.rewriting.get_or_insert_default();
                        rewriting.options.get_or_insert_default()
                    }
                };
                for word in words {
                    options.apply(word).map_err(wrong)?;
                }
                if ignored.inherits != Inherits::No {
                    block.closes_by_rule = true;
                    problems.push("sections do not inherit rules; access to them is denied".into());
                }
            }
        }
        let is_rule = node.name == "rewriterule";
        let paths = pattern_of(&node.rest).filter(|_| is_rule);
        let context = context.narrowed(paths.map_or(Scope::Part, Scope::Paths));
        if is_rule {
            // Problems of the rule's conditions have the rule's scope.
            for problem in &mut self.file.problems[self.before_conditions..] {
                problem.about = context.about.clone();
            }
        }
        for what in problems {
            self.problem(node, what, &context, closes);
        }
        if is_rule {
            self.before_conditions = self.file.problems.len();
        }
        Ok(())
    }

    pub(super) fn redirect(
        &mut self,
        node: &DirectiveNode,
        words: &[String],
        context: &ReadContext,
    ) -> Result<Redirect, SyntaxError> {
        let wrong = |why: &str| error(node, format!("{}: {why}", node.name));
        let first = words.first().map_or("", String::as_str);
        let named = match (node.name.as_str(), first.to_ascii_lowercase().as_str()) {
            ("redirectpermanent", _) => None,
            ("redirecttemp", _) => None,
            (_, "permanent") => Some(301),
            (_, "temp") => Some(302),
            (_, "seeother") => Some(303),
            (_, "gone") => Some(410),
            (_, number) if number.starts_with(|c: char| c.is_ascii_digit()) => {
                let code = u16::try_from(leading_number(number)).ok();
                // As in Apache, which detects it when it responds.
                Some(code.filter(|code| is_status(*code)).unwrap_or(500))
            }
            _ => None,
        };
        let default = if node.name == "redirectpermanent" {
            301
        } else {
            302
        };
        let (status, rest) = match named {
            Some(status) => (status, &words[1..]),
            None => (default, words),
        };
        let (from, to) = match (status, rest) {
            (300..400, [from, to]) => (from, to.clone()),
            (300..400, _) => return wrong("needs a path and a URL"),
            (_, [from]) => (from, String::new()),
            _ => return wrong("needs only a path for a status that is not a redirect"),
        };
        if node.name != "redirectmatch" && !to.is_empty() && !to.starts_with('/') && !is_url(&to) {
            return wrong("the URL must begin with a scheme or a slash");
        }
        let from = match node.name.as_str() {
            "redirectmatch" => From::Pattern(match Pattern::new(from, false, &self.budget) {
                Ok(pattern) => Some(pattern),
                Err(why) => {
                    let what = format!("the pattern {from} cannot be evaluated: {why}");
                    self.problem(node, what, &context.narrowed(Scope::Part), true);
                    None
                }
            }),
            _ => From::Prefix(single_slashes(from)),
        };
        Ok(Redirect { from, status, to })
    }

    pub(super) fn set_env_if(
        &mut self,
        node: &DirectiveNode,
        words: &[String],
        context: &ReadContext,
    ) -> Result<SetEnvIf, SyntaxError> {
        let takes = |what| error(node, format!("{} needs {what}", node.name));
        let (attribute, words) = match node.name.as_str() {
            "browsermatch" | "browsermatchnocase" => ("user-agent".to_owned(), words),
            "setenvifexpr" => (String::new(), words),
            _ => match words.split_first() {
                Some((attribute, rest)) => (attribute.to_ascii_lowercase(), rest),
                None => return takes("a header or an attribute"),
            },
        };
        let [pattern, sets @ ..] = words else {
            return takes("a pattern");
        };
        if sets.is_empty() {
            return takes("a variable");
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let pattern = match node.name.as_str() {
            "setenvifexpr" => Err("expressions are not evaluated".to_owned()),
            _ if !attribute.chars().all(is_name) => {
                Err(format!("{attribute} matches several headers"))
            }
            name => Pattern::new(pattern, name.ends_with("nocase"), &self.budget),
        };
        if let Err(why) = &pattern {
            let what = format!("{why}: its variables are unknown");
            self.problem(node, what, &context.narrowed(Scope::Part), true);
        }
        let set = |text: &String| match (text.strip_prefix('!'), text.split_once('=')) {
            (Some(name), _) => (name.to_owned(), None),
            (None, Some((name, value))) => (name.to_owned(), Some(value.to_owned())),
            (None, None) => (text.clone(), Some("1".to_owned())),
        };
        Ok(SetEnvIf {
            attribute,
            pattern: pattern.ok(),
            sets: sets.iter().map(set).collect(),
        })
    }
}

/// The pattern of a rule, if it determines the affected paths.
fn pattern_of(rule: &str) -> Option<Arc<str>> {
    let words = raw_words(rule);
    let (pattern, flags) = (words.first()?, words.get(2));
    let is_narrow =
        !["^", "", ".", ".*", "^.*", "^.*$", "(.*)", "^(.*)", "^(.*)$"].contains(&pattern.as_str());
    let flags = flags.and_then(|flags| flags_of(flags).ok());
    let mut flags = flags.into_iter().flatten();
    let ignores_case = flags.any(|flag| ["nc", "nocase"].contains(&&*flag.to_ascii_lowercase()));
    let flag = if ignores_case { "(?i)" } else { "" };
    (is_narrow && !pattern.starts_with('!')).then(|| format!("{flag}{pattern}").into())
}

/// Merges slashes as Apache does before it compares: `//` becomes `/`.
fn single_slashes(path: &str) -> String {
    let mut single = String::with_capacity(path.len());
    for c in path.chars() {
        if c != '/' || !single.ends_with('/') {
            single.push(c);
        }
    }
    single
}
