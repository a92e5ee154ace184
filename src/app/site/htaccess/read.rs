//! Converts a parsed file into typed directives, and records what cannot be evaluated.
//!
//! `read_require.rs` reads access directives, `read_rewrite.rs` URL directives, `read_handler.rs`
//! those of handlers and types. `read_ignored.rs` reports those that Surus ignores.

use std::collections::BTreeSet;

use super::access::{Limit, Merging, MethodLimits};
use super::condition::Condition;
use super::cost::{MAX_PROBLEM, MAX_PROBLEMS, ReadingBudget, SiteMemory};
use super::handler::{FileHandler, Switch};
use super::known::{AUTO_FILES, are_options, counts, is_ignored, leading_number, method};
use super::link_options::LinkOptions;
use super::parse::{DirectiveNode, SyntaxError, parse, words};
use super::pattern::Pattern;
use super::read_ignored::IgnoredDirectives;
use super::rules::{Block, FixedEnv, HtaccessFile, Name, Problem, Scope};
use super::wildcards::{has_wildcards, of_wildcards};

/// Reads a file, and charges it to `memory`.
pub fn read(text: &str, memory: &SiteMemory) -> HtaccessFile {
    let mut reader = HtaccessReader {
        budget: ReadingBudget::of(memory),
        ..HtaccessReader::default()
    };
    let outcome = parse(text, &reader.budget)
        .and_then(|nodes| reader.section(&nodes, &mut Block::default(), &ReadContext::default()));
    if let Some(excess) = reader.budget.excess() {
        return HtaccessFile {
            is_broken: true,
            excess: Some(excess),
            spent: reader.budget.spent(),
            problems: vec![Problem {
                line: outcome.map_or_else(|error| error.line, |()| 1),
                what: excess.why(),
                about: Scope::All,
                closes: true,
                is_logged: true,
            }],
            ..HtaccessFile::default()
        };
    }
    for problem in reader.ignored.missed_variables(text) {
        reader.report(problem);
    }
    let mut file = reader.file;
    file.spent = reader.budget.spent();
    file.memory = Some(reader.budget.into_share());
    file.blocks.insert(0, reader.outside);
    if let Err(error) = outcome {
        file.is_broken = true;
        file.problems.push(Problem {
            line: error.line,
            what: shortened(format!("{}; Apache answers 500", error.why)),
            about: Scope::All,
            closes: true,
            is_logged: false,
        });
    }
    file.problems.sort_by_key(|problem| problem.line);
    if let (Some(last), more @ 1..) = (file.problems.last(), reader.more_problems) {
        let more = Problem {
            what: format!("{more} more problems of this file are not listed"),
            closes: false,
            is_logged: false,
            ..last.clone()
        };
        file.problems.push(more);
    }
    file
}

#[derive(Debug, Clone, Default)]
pub(super) struct ReadContext {
    /// Shared by the directives of a section.
    limits: MethodLimits,
    /// Inside a `<Files>` or `<If>` section.
    pub is_section: bool,
    /// The scope of problems.
    pub about: Scope,
}

impl ReadContext {
    pub(super) fn limits(&self) -> MethodLimits {
        self.limits.clone()
    }

    /// The same context with a narrower scope for problems.
    pub(super) fn narrowed(&self, to: Scope) -> ReadContext {
        let about = match self.about {
            Scope::All => to,
            ref about => about.clone(),
        };
        ReadContext {
            about,
            ..self.clone()
        }
    }
}

#[derive(Default)]
pub(super) struct HtaccessReader {
    pub file: HtaccessFile,
    outside: Block,
    pub conditions: Vec<Condition>,
    /// The number of problems before those of the pending conditions.
    pub before_conditions: usize,
    pub budget: ReadingBudget,
    /// The number of problems that are not kept.
    more_problems: usize,
    ignored: IgnoredDirectives,
}

pub(super) type Read = Result<(), SyntaxError>;

impl HtaccessReader {
    /// Reads lines into a block; outside sections, that is the block of the whole file.
    fn section(
        &mut self,
        nodes: &[DirectiveNode],
        block: &mut Block,
        context: &ReadContext,
    ) -> Read {
        self.lines(nodes, block, context)?;
        block.handlers.sort_by_key(Switch::removes_handler);
        if !context.is_section {
            self.outside = std::mem::take(block);
        }
        Ok(())
    }

    fn lines(&mut self, nodes: &[DirectiveNode], block: &mut Block, context: &ReadContext) -> Read {
        for node in nodes {
            match &node.children {
                Some(children) => self.container(node, children, block, context)?,
                None => self.directive(node, block, context)?,
            }
            if let Some(excess) = self.budget.excess() {
                return error(node, excess.why());
            }
        }
        Ok(())
    }

    fn container(
        &mut self,
        node: &DirectiveNode,
        children: &[DirectiveNode],
        block: &mut Block,
        context: &ReadContext,
    ) -> Read {
        if let Some(counts) = counts(node, &self.budget) {
            return match counts {
                Ok(true) => self.lines(children, block, context),
                Ok(false) => Ok(()),
                Err(why) => error(node, why),
            };
        }
        match node.name.as_str() {
            "limit" | "limitexcept" => {
                let names = words(&node.rest);
                let methods: Option<BTreeSet<_>> = names.iter().map(|name| method(name)).collect();
                let methods = methods.filter(|all| !all.is_empty() && !all.contains("TRACE"));
                let Some(methods) = methods else {
                    return error(
                        node,
                        format!("<{} {}> names no methods", node.name, node.rest),
                    );
                };
                let limit = Limit {
                    methods: methods.into_iter().collect(),
                    is_except: node.name == "limitexcept",
                };
                let mut context = context.clone();
                context.limits = context.limits.iter().cloned().chain([limit]).collect();
                self.lines(children, block, &context)
            }
            "files" | "filesmatch" => self.files(node, children, block, context),
            "if" | "elseif" | "else" | "iffile" | "ifdirective" | "ifsection" => {
                self.uncertain(node, children, block, context)
            }
            "requireall" | "requireany" | "requirenone" => {
                let group = self.group(node, children, context, false)?;
                block.require.push(group);
                Ok(())
            }
            name => error(node, format!("<{name}> is not allowed in .htaccess files")),
        }
    }

    fn files(
        &mut self,
        node: &DirectiveNode,
        children: &[DirectiveNode],
        block: &Block,
        context: &ReadContext,
    ) -> Read {
        let mut arguments = words(&node.rest);
        let is_pattern =
            node.name == "filesmatch" || arguments.first().is_some_and(|word| word == "~");
        if node.name == "files" && is_pattern {
            arguments.remove(0);
        }
        let Ok([text]) = <[String; 1]>::try_from(arguments) else {
            return error(node, format!("<{}> needs one name or pattern", node.name));
        };
        if block.is_about_names() {
            let what = format!(
                "<{}> in such a section has no effect, as in Apache",
                node.name
            );
            self.problem(node, what, context, false);
            return Ok(());
        }
        let pattern = match is_pattern {
            true => Some(text.clone()),
            false => has_wildcards(&text).then(|| of_wildcards(&text)),
        };
        let name = match &pattern {
            None => Name::Is(text.clone()),
            Some(pattern) => match Pattern::new(pattern, false, &self.budget) {
                Ok(pattern) => Name::Matches(pattern),
                Err(why) => {
                    self.problem(
                        node,
                        format!("the pattern {text} cannot be evaluated: {why}"),
                        context,
                        true,
                    );
                    Name::Unknown
                }
            },
        };
        let inside = ReadContext {
            is_section: true,
            about: Scope::Names(match pattern {
                Some(pattern) => pattern.into(),
                None => format!("^{}$", regex::escape(&text)).into(),
            }),
            ..context.clone()
        };
        self.inner(
            children,
            Block {
                names: vec![name],
                is_uncertain: block.is_uncertain,
                merging: Merging::Off,
                ..Block::default()
            },
            &inside,
        )
    }

    fn uncertain(
        &mut self,
        node: &DirectiveNode,
        children: &[DirectiveNode],
        block: &Block,
        context: &ReadContext,
    ) -> Read {
        let says = format!(
            "<{} {}> is not evaluated: Surus denies what it denies, and ignores what it allows",
            node.name, node.rest
        );
        let mut names = Vec::new();
        if block.is_about_names() {
            names.push(Name::Unknown);
        }
        let inside = ReadContext {
            is_section: true,
            ..context.narrowed(Scope::Part)
        };
        let before = self.file.blocks.len();
        self.inner(
            children,
            Block {
                names,
                is_uncertain: true,
                ..Block::default()
            },
            &inside,
        )?;
        if self.file.blocks[before..].iter().any(Block::decides) {
            self.problem(node, says, &inside, true);
        }
        Ok(())
    }

    fn inner(
        &mut self,
        children: &[DirectiveNode],
        mut block: Block,
        context: &ReadContext,
    ) -> Read {
        let conditions = std::mem::take(&mut self.conditions);
        self.lines(children, &mut block, context)?;
        block.handlers.sort_by_key(Switch::removes_handler);
        self.conditions = conditions;
        if !block.is_empty() {
            self.file.blocks.push(block);
        }
        Ok(())
    }

    fn directive(
        &mut self,
        node: &DirectiveNode,
        block: &mut Block,
        context: &ReadContext,
    ) -> Read {
        let words = words(&node.rest);
        let first = words.first().map_or("", String::as_str);
        let lower = first.to_ascii_lowercase();
        if let Some((least, max)) = arguments(&node.name)
            && !(least..=max).contains(&words.len())
        {
            return error(
                node,
                format!("{} has the wrong number of arguments", node.name),
            );
        }
        if let Some(what) = self.ignored.report(node, &words) {
            self.lacks(node, what, context);
        }
        match node.name.as_str() {
            "require" | "order" | "allow" | "deny" | "satisfy" | "authmerging"
            | "sslrequiressl" | "sslrequire" | "sslverifyclient" | "mdrequirehttps" => {
                self.access(node, &words, block, context)?;
            }
            // MediaWiki has `php_admin_flag engine off` in a section for PHP 7.
            "php_flag" | "php_value" | "php_admin_flag" | "php_admin_value"
                if lower == "engine" =>
            {
                let value = words[1].to_ascii_lowercase();
                // mod_php reads flags as on or 1; values are parsed as in php.ini.
                let on = match node.name.ends_with("flag") {
                    true => ["on", "1"].contains(&value.as_str()),
                    false => {
                        ["on", "yes", "true"].contains(&value.as_str())
                            || leading_number(&value) != 0
                    }
                };
                block.handlers.push(Switch::Engine(on));
            }
            "php_flag" | "php_value"
                if AUTO_FILES.contains(&&*lower) && !words[1].eq_ignore_ascii_case("none") =>
            {
                let what = format!(
                    "{first} is not supported here, so {} does not run; write it into .user.ini, \
                     or into [php] of surus.toml",
                    words[1]
                );
                self.lacks(node, what, context);
            }
            "php_flag" | "php_value" => {}
            "php_admin_flag" | "php_admin_value" => {
                return error(node, format!("{} is not allowed here", node.name));
            }
            "sethandler" | "forcetype" | "addhandler" | "addtype" | "removehandler"
            | "removetype" => self.handler(node, &words, block, context),
            "action" if FileHandler::named(first) != FileHandler::Php => {
                let what =
                    format!("Action {first} names a handler script, which Surus does not call");
                self.closes(node, what, block, context);
            }
            "action" => {}
            "options" if are_options(&words) => {
                let links = LinkOptions::parse(&words);
                block.links.extend((!links.is_empty()).then_some(links));
            }
            "options" => return error(node, format!("Options {} is not known", node.rest)),
            "redirect" | "redirectmatch" | "redirectpermanent" | "redirecttemp" => {
                let redirect = self.redirect(node, &words, context)?;
                block.redirects.push(redirect);
            }
            "setenvif" | "setenvifnocase" | "browsermatch" | "browsermatchnocase"
            | "setenvifexpr" => block.env.push(self.set_env_if(node, &words, context)?),
            "setenv" => {
                let value = words.get(1).cloned().unwrap_or_default();
                block.fixed_env.push(FixedEnv::Set(first.to_owned(), value));
            }
            "unsetenv" => block
                .fixed_env
                .extend(words.into_iter().map(FixedEnv::Unset)),
            "passenv" => block
                .fixed_env
                .extend(words.into_iter().map(FixedEnv::Pass)),
            "directoryindex" if !context.is_section => {
                let names = self.file.index.get_or_insert_default();
                match words.as_slice() {
                    [_] if lower == "disabled" => names.clear(),
                    _ => names.extend(words),
                }
            }
            "fallbackresource" if first.is_empty() => {
                return error(node, "FallbackResource needs a URL or `disabled`");
            }
            "fallbackresource" if !context.is_section => {
                self.file.fallback = Some((lower != "disabled").then(|| first.to_owned()));
            }
            "directoryindex" | "fallbackresource" => {}
            "rewriteengine" | "rewritebase" | "rewriteoptions" | "rewritecond" | "rewriterule" => {
                self.rewriting(node, &words, block, context)?;
            }
            name if is_ignored(name) => {}
            name => return error(node, format!("{name} is not known")),
        }
        Ok(())
    }

    /// Denies the files of a block, because something in it cannot be evaluated.
    pub(super) fn closes(
        &mut self,
        node: &DirectiveNode,
        what: String,
        block: &mut Block,
        context: &ReadContext,
    ) {
        block.closes = true;
        self.problem(node, what, context, true);
    }

    pub(super) fn problem(
        &mut self,
        node: &DirectiveNode,
        what: String,
        context: &ReadContext,
        closes: bool,
    ) {
        self.report(Problem {
            line: node.line,
            what,
            about: context.about.clone(),
            closes,
            is_logged: false,
        });
    }

    /// Reports an effect that Surus does not provide, and denies nothing for it.
    fn lacks(&mut self, node: &DirectiveNode, what: String, context: &ReadContext) {
        self.report(Problem {
            line: node.line,
            what,
            about: context.about.clone(),
            closes: false,
            is_logged: true,
        });
    }

    pub(super) fn report(&mut self, problem: Problem) {
        if self.file.problems.len() >= MAX_PROBLEMS {
            self.more_problems += 1;
            return;
        }
        let what = shortened(problem.what);
        self.file.problems.push(Problem { what, ..problem });
    }
}

/// Cuts the middle of a text that would take much memory.
fn shortened(text: String) -> String {
    if text.len() <= MAX_PROBLEM {
        return text;
    }
    let half = MAX_PROBLEM / 2;
    let begins = |at: &usize| text.is_char_boundary(*at);
    let end = (0..=half).rev().find(begins).unwrap_or(0);
    let again = (text.len() - half..text.len()).find(begins);
    let again = again.unwrap_or(text.len());
    format!("{}…{}", &text[..end], &text[again..])
}

/// How many arguments Apache accepts, for directives that are not checked elsewhere.
fn arguments(name: &str) -> Option<(usize, usize)> {
    Some(match name {
        "order" | "satisfy" | "authmerging" | "sethandler" | "forcetype" | "rewritebase"
        | "sslverifyclient" | "mdrequirehttps" => (1, 1),
        "rewriteengine" | "removehandler" | "removetype" | "rewriteoptions" | "sslrequire"
        | "unsetenv" | "passenv" => (1, usize::MAX),
        "php_flag" | "php_value" | "php_admin_flag" | "php_admin_value" => (2, 2),
        "addhandler" | "addtype" | "allow" | "deny" => (2, usize::MAX),
        "action" => (2, 3),
        "fallbackresource" => (1, 1),
        "setenv" => (1, 2),
        "sslrequiressl" => (0, 0),
        _ => return None,
    })
}

pub(super) fn error<T>(node: &DirectiveNode, why: impl Into<String>) -> Result<T, SyntaxError> {
    Err(SyntaxError {
        line: node.line,
        why: why.into(),
    })
}
