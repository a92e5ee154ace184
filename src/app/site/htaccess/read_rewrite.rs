//! Reads where URLs lead: rewriting, redirections, and the variables that both ask for.

use super::condition::Condition;
use super::parse::{Node, SyntaxError};
use super::pattern::Pattern;
use super::read::{Context, Read, Reader, error};
use super::rule::{Inherits, Options, Rule};
use super::rules::{Block, From, Redirect, SetEnvIf};

impl Reader {
    pub(super) fn rewriting(
        &mut self,
        node: &Node,
        words: &[String],
        block: &mut Block,
        context: &Context,
    ) -> Read {
        let wrong = |why| SyntaxError {
            line: node.line,
            why,
        };
        let mut problems = Vec::new();
        let mut closes = true;
        match node.name.as_str() {
            "rewritecond" => {
                let condition = Condition::parse(&node.rest, &mut problems).map_err(wrong)?;
                self.conditions.push(condition);
            }
            "rewriterule" => {
                let conditions = std::mem::take(&mut self.conditions);
                let rule = Rule::parse(&node.rest, conditions, &mut problems).map_err(wrong)?;
                if context.is_section {
                    closes = !rule.is_exemption() || rule.sets_variables();
                    block.closes_by_rule |= closes;
                    problems.push(
                        "rules in sections are not evaluated; what they protect is closed".into(),
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
                    _ => return error(node, "RewriteEngine is On or Off"),
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
            "rewritebase" => return error(node, "RewriteBase begins with a slash"),
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
                    options.hear(word).map_err(wrong)?;
                }
                if ignored.inherits != Inherits::No {
                    block.closes_by_rule = true;
                    problems.push("rules are not inherited by sections; they are closed".into());
                }
            }
        }
        for what in problems {
            self.problem(node, what, context, closes);
        }
        Ok(())
    }

    pub(super) fn redirect(
        &mut self,
        node: &Node,
        words: &[String],
        context: &Context,
    ) -> Result<Redirect, SyntaxError> {
        let (status, rest) = match (node.name.as_str(), words.first().map(String::as_str)) {
            ("redirectpermanent", _) => (301, words),
            ("redirecttemp", _) => (302, words),
            (_, Some(word)) => match word.to_ascii_lowercase().as_str() {
                "permanent" => (301, &words[1..]),
                "temp" => (302, &words[1..]),
                "seeother" => (303, &words[1..]),
                "gone" => (410, &words[1..]),
                number => match number.parse::<u16>() {
                    Ok(code) if (300..600).contains(&code) => (code, &words[1..]),
                    _ => (302, words),
                },
            },
            (name, None) => return error(node, format!("{name} takes a path")),
        };
        let to = rest.get(1).cloned().unwrap_or_default();
        let Some(from) = rest
            .first()
            .filter(|_| (300..400).contains(&status) != to.is_empty())
        else {
            return error(
                node,
                "a redirection takes a path and a URL, another status only a path",
            );
        };
        let from = match node.name.as_str() {
            "redirectmatch" => From::Pattern(match Pattern::new(from, false) {
                Ok(pattern) => Some(pattern),
                Err(why) => {
                    let what = format!("the pattern {from} cannot be evaluated: {why}");
                    self.problem(node, what, context, true);
                    None
                }
            }),
            _ => From::Prefix(single_slashes(from)),
        };
        Ok(Redirect { from, status, to })
    }

    pub(super) fn set_env_if(
        &mut self,
        node: &Node,
        words: &[String],
        context: &Context,
    ) -> Result<SetEnvIf, SyntaxError> {
        let takes = |what| error(node, format!("{} takes {what}", node.name));
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
                Err(format!("{attribute} names several headers"))
            }
            name => Pattern::new(pattern, name.ends_with("nocase")),
        };
        if let Err(why) = &pattern {
            let what = format!("{why}: whether its variables are set is not known");
            self.problem(node, what, context, true);
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

/// A path as Apache writes it before it compares: `//` is `/`.
fn single_slashes(path: &str) -> String {
    let mut single = String::with_capacity(path.len());
    for c in path.chars() {
        if c != '/' || !single.ends_with('/') {
            single.push(c);
        }
    }
    single
}
