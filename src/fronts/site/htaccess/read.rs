//! Makes typed directives of a parsed file, and notes what in it cannot be evaluated.

use super::access::{
    Compat, Limit, Limits, Merging, Order, Provider, Require, Statement, Who, network,
};
use super::condition::Condition;
use super::handler::{Switch, ending, is_php};
use super::parse::{Node, SyntaxError, parse, words};
use super::pattern::Pattern;
use super::rewrite::{Inherits, Rule};
use super::rules::{Block, File, From, Name, Problem, Redirect, SetEnvIf};

/// Directives that say nothing about who gets what, or about things that Surus does itself. They
/// are ignored.
const IGNORED: &[&str] = &[
    "options",
    "errordocument",
    "header",
    "requestheader",
    "expiresactive",
    "expiresbytype",
    "expiresdefault",
    "adddefaultcharset",
    "addcharset",
    "addencoding",
    "addlanguage",
    "addoutputfilter",
    "addoutputfilterbytype",
    "addinputfilter",
    "setoutputfilter",
    "setinputfilter",
    "removecharset",
    "removeencoding",
    "removelanguage",
    "removeoutputfilter",
    "removeinputfilter",
    "defaultlanguage",
    "defaulttype",
    "languagepriority",
    "forcelanguagepriority",
    "fileetag",
    "indexignore",
    "indexoptions",
    "indexorderdefault",
    "indexstylesheet",
    "headername",
    "readmename",
    "adddescription",
    "addicon",
    "addiconbytype",
    "addiconbyencoding",
    "addalt",
    "defaulticon",
    "setenv",
    "unsetenv",
    "passenv",
    "php_value",
    "serversignature",
    "contentdigest",
    "directoryslash",
    "directoryindexredirect",
    "acceptpathinfo",
    "allowencodedslashes",
    "limitrequestbody",
    "filterdeclare",
    "filterprovider",
    "filterchain",
    "filterprotocol",
    "brotlicompressionquality",
    "deflatecompressionlevel",
    "authname",
    "authtype",
    "authuserfile",
    "authgroupfile",
    "authbasicprovider",
    "authdigestprovider",
    "authbasicauthoritative",
    "authmerging",
    "rewriteoptions",
    "rewritebase",
    "keptbodysize",
    "enablesendfile",
    "enablemmap",
    "checkspelling",
    "checkcaseonly",
    "modpagespeed",
    "secfilterengine",
    "secfilterscanpost",
    "secruleengine",
    "secrequestbodyaccess",
    "secruleremovebyid",
    "ratelimit",
    "sslrequiressl",
    "ssloptions",
    "sslrenegbuffersize",
    "xbithack",
    "metadir",
    "metafiles",
    "metasuffix",
    "modmimeusepathinfo",
    "multiviewsmatch",
    "substitute",
    "cookietracking",
    "imapmenu",
    "imapdefault",
    "imapbase",
    "suphp_configpath",
    "php_admin_value",
    "allowoverride",
    "usecanonicalname",
    "rlimitcpu",
    "rlimitmem",
    "cacheenable",
    "cachedisable",
    "registerhttpmethod",
    "timeout",
    "keepalive",
];

/// Whether Surus stands in for a module.
fn has_module(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let name = name.trim_start_matches("mod_").trim_end_matches(".c");
    let name = name.trim_end_matches("_module");
    name.starts_with("php")
        || [
            "access_compat",
            "alias",
            "auth_basic",
            "authn_core",
            "authn_file",
            "authz_core",
            "authz_host",
            "authz_user",
            "authz_groupfile",
            "autoindex",
            "brotli",
            "deflate",
            "dir",
            "env",
            "expires",
            "filter",
            "headers",
            "mime",
            "negotiation",
            "rewrite",
            "setenvif",
            "status",
            "version",
            "so",
            "core",
        ]
        .contains(&name)
}

/// The version of Apache that `<IfVersion>` compares with.
const VERSION: [u32; 3] = [2, 4, 62];

fn has_version(rest: &str) -> Option<bool> {
    let (rest, is_negated) = match rest.trim().strip_prefix('!') {
        Some(rest) => (rest, true),
        None => (rest.trim(), false),
    };
    let at = rest.find(|c: char| c.is_ascii_digit())?;
    let mut other = [0; 3];
    for (part, text) in other.iter_mut().zip(rest[at..].split('.')) {
        *part = text.parse().ok()?;
    }
    let is = match rest[..at].trim() {
        "" | "=" | "==" => VERSION == other,
        ">" => VERSION > other,
        ">=" => VERSION >= other,
        "<" => VERSION < other,
        "<=" => VERSION <= other,
        _ => return None,
    };
    Some(is != is_negated)
}

/// Reads a file.
pub fn read(text: &str) -> File {
    let mut reader = Reader::default();
    let outcome = parse(text)
        .and_then(|nodes| reader.section(&nodes, &mut Block::default(), &Context::default()));
    let mut file = reader.file;
    file.blocks.insert(0, reader.outside);
    if let Err(error) = outcome {
        file.is_broken = true;
        file.problems.push(Problem {
            line: error.line,
            what: format!("{}; Apache answers 500", error.why),
            names: None,
            closes: true,
        });
    }
    file.problems.sort_by_key(|problem| problem.line);
    file
}

#[derive(Debug, Clone, Default)]
struct Context {
    limits: Vec<Limit>,
    /// Inside of `<Files>` or `<If>`.
    is_section: bool,
    /// For problems.
    names: Option<String>,
}

impl Context {
    fn limits(&self) -> Limits {
        self.limits.as_slice().into()
    }
}

#[derive(Default)]
struct Reader {
    file: File,
    outside: Block,
    conditions: Vec<Condition>,
}

type Read = Result<(), SyntaxError>;

impl Reader {
    /// Reads lines into a block, which is that of the whole file where the context is in no
    /// section.
    fn section(&mut self, nodes: &[Node], block: &mut Block, context: &Context) -> Read {
        self.lines(nodes, block, context)?;
        if !context.is_section {
            self.outside = std::mem::take(block);
        }
        Ok(())
    }

    fn lines(&mut self, nodes: &[Node], block: &mut Block, context: &Context) -> Read {
        for node in nodes {
            match &node.children {
                Some(children) => self.container(node, children, block, context)?,
                None => self.directive(node, block, context)?,
            }
        }
        Ok(())
    }

    fn container(
        &mut self,
        node: &Node,
        children: &[Node],
        block: &mut Block,
        context: &Context,
    ) -> Read {
        let argument = words(&node.rest).into_iter().next().unwrap_or_default();
        let negatable = |has: &dyn Fn(&str) -> bool| match argument.strip_prefix('!') {
            Some(name) => !has(name),
            None => has(&argument),
        };
        match node.name.as_str() {
            "ifmodule" if negatable(&has_module) => self.lines(children, block, context),
            "ifdefine" if negatable(&|_| false) => self.lines(children, block, context),
            "ifmodule" | "ifdefine" => Ok(()),
            "ifversion" => match has_version(&node.rest) {
                Some(true) => self.lines(children, block, context),
                Some(false) => Ok(()),
                None => self.uncertain(node, children, block, context),
            },
            "limit" | "limitexcept" => {
                let mut context = context.clone();
                context.limits.push(Limit {
                    methods: words(&node.rest)
                        .iter()
                        .map(|name| name.to_uppercase())
                        .collect(),
                    is_except: node.name == "limitexcept",
                });
                self.lines(children, block, &context)
            }
            "files" | "filesmatch" => self.files(node, children, block, context),
            "if" | "elseif" | "else" | "iffile" | "ifdirective" | "ifsection" => {
                self.uncertain(node, children, block, context)
            }
            "requireall" | "requireany" | "requirenone" => {
                let group = self.group(node, children, context)?;
                block.require.push(group);
                Ok(())
            }
            name => error(node, format!("<{name}> is not allowed in .htaccess files")),
        }
    }

    fn files(&mut self, node: &Node, children: &[Node], block: &Block, context: &Context) -> Read {
        let mut arguments = words(&node.rest);
        let is_pattern =
            node.name == "filesmatch" || arguments.first().is_some_and(|word| word == "~");
        if node.name == "files" && is_pattern {
            arguments.remove(0);
        }
        let Some(text) = arguments.into_iter().next() else {
            return error(node, format!("<{}> names no files", node.name));
        };
        let pattern = match is_pattern {
            true => Some(text.clone()),
            false => text.contains(['*', '?']).then(|| of_wildcards(&text)),
        };
        let name = match &pattern {
            None => Name::Is(text.clone()),
            Some(pattern) => match Pattern::new(pattern, false) {
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
        let mut names = vec![name];
        // Sections in sections: the outer names have been compiled, and are few.
        for outer in &block.names {
            names.push(match outer {
                Name::Is(text) => Name::Is(text.clone()),
                Name::Matches(_) | Name::Unknown => Name::Unknown,
            });
        }
        let inside = Context {
            is_section: true,
            names: Some(pattern.unwrap_or_else(|| format!("^{}$", regex::escape(&text)))),
            ..context.clone()
        };
        self.inner(
            children,
            Block {
                names,
                is_uncertain: block.is_uncertain,
                merging: Merging::Off,
                ..Block::default()
            },
            &inside,
        )
    }

    fn uncertain(
        &mut self,
        node: &Node,
        children: &[Node],
        block: &Block,
        context: &Context,
    ) -> Read {
        let says = format!(
            "<{} {}> is not evaluated: what it denies is denied, and what it allows is not allowed for that",
            node.name, node.rest
        );
        let mut names = Vec::new();
        if block.is_about_names() {
            names.push(Name::Unknown);
        }
        let inside = Context {
            is_section: true,
            ..context.clone()
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
        if self.file.blocks.len() > before {
            self.problem(node, says, context, true);
        }
        Ok(())
    }

    fn inner(&mut self, children: &[Node], mut block: Block, context: &Context) -> Read {
        let conditions = std::mem::take(&mut self.conditions);
        self.lines(children, &mut block, context)?;
        self.conditions = conditions;
        if !block.is_empty() {
            self.file.blocks.push(block);
        }
        Ok(())
    }

    fn directive(&mut self, node: &Node, block: &mut Block, context: &Context) -> Read {
        let words = words(&node.rest);
        let first = words.first().map_or("", String::as_str);
        let lower = first.to_ascii_lowercase();
        let rest = || words.iter().skip(1);
        let endings = || rest().map(|word| ending(word)).collect::<Vec<_>>();
        let limits = context.limits();
        let statement = |what| Statement {
            limits: limits.clone(),
            what,
        };
        match node.name.as_str() {
            "require" => block.require.push(self.require(node, context, false)?),
            "order" => {
                let order = match node
                    .rest
                    .to_ascii_lowercase()
                    .replace(char::is_whitespace, "")
                    .as_str()
                {
                    "allow,deny" => Order::AllowDeny,
                    "deny,allow" => Order::DenyAllow,
                    "mutual-failure" => Order::Mutual,
                    _ => return error(node, format!("Order {} is no order", node.rest)),
                };
                block.compat.push(statement(Compat::Order(order)));
            }
            "allow" | "deny" => {
                if lower != "from" || words.len() < 2 {
                    return error(
                        node,
                        format!("{} is followed by `from` and a host", node.name),
                    );
                }
                for who in rest() {
                    let parsed = Who::parse(who);
                    if parsed == Who::Unknown {
                        self.problem(
                            node,
                            format!("{who} is a name, which is not looked up"),
                            context,
                            true,
                        );
                    }
                    block.compat.push(statement(match node.name.as_str() {
                        "allow" => Compat::Allow(parsed),
                        _ => Compat::Deny(parsed),
                    }));
                }
            }
            "satisfy" => block
                .compat
                .push(statement(Compat::SatisfyAny(lower == "any"))),
            "authmerging" => {
                block.merging = match lower.as_str() {
                    "and" => Merging::And,
                    "or" => Merging::Or,
                    _ => Merging::Off,
                }
            }
            "php_flag" | "php_admin_flag" | "php_value" if lower == "engine" => {
                let value = words
                    .get(1)
                    .map_or(String::new(), |word| word.to_ascii_lowercase());
                let on = ["on", "1", "yes", "true"].contains(&value.as_str());
                block.handlers.push(Switch::Engine(on));
            }
            "php_flag" | "php_admin_flag" => {}
            "sethandler" => block.handlers.push(Switch::Set(is_php(first))),
            "forcetype" => block.handlers.push(Switch::Type(match lower.as_str() {
                "none" => None,
                _ => Some(is_php(first)),
            })),
            "addhandler" => block.handlers.push(Switch::AddHandler {
                is_php: is_php(first),
                endings: endings(),
            }),
            "addtype" => block.handlers.push(Switch::AddType {
                is_php: is_php(first),
                endings: endings(),
            }),
            "removehandler" => block
                .handlers
                .push(Switch::RemoveHandler(all_endings(&words))),
            "removetype" => block.handlers.push(Switch::RemoveType(all_endings(&words))),
            "redirect" | "redirectmatch" | "redirectpermanent" | "redirecttemp" => {
                let redirect = self.redirect(node, &words, context)?;
                block.redirects.push(redirect);
            }
            "setenvif" | "setenvifnocase" | "browsermatch" | "browsermatchnocase" => {
                if let Some(set) = self.set_env_if(node, &words, context)? {
                    block.env.push(set);
                }
            }
            "directoryindex" if !context.is_section => {
                let names = self.file.index.get_or_insert_default();
                for name in words {
                    match name.as_str() {
                        "disabled" => names.clear(),
                        _ => names.push(name),
                    }
                }
            }
            "fallbackresource" if !context.is_section => {
                self.file.fallback = Some((lower != "disabled").then(|| first.to_owned()));
            }
            "rewriteengine" | "rewritebase" | "rewriteoptions" | "rewritecond" | "rewriterule" => {
                self.rewriting(node, &words, block, context)?;
            }
            name if name.starts_with("rewrite") => {
                return error(node, format!("{name} is not allowed in .htaccess files"));
            }
            "setenvifexpr" => {
                self.problem(node, "expressions are not evaluated".into(), context, false)
            }
            name if IGNORED.contains(&name) || name.starts_with("expires") => {}
            name => {
                let what = format!("{name} is not known and is ignored");
                self.problem(node, what, context, false);
            }
        }
        Ok(())
    }

    fn rewriting(
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
                    block.closes |= rule.denies();
                    closes = rule.denies();
                    problems.push(
                        "rules in sections are not evaluated; what they deny is denied".into(),
                    );
                } else {
                    self.file
                        .rewriting
                        .get_or_insert_default()
                        .rules
                        .push(rule.into());
                }
            }
            _ if context.is_section => {}
            "rewriteengine" => {
                let on = words
                    .first()
                    .is_some_and(|word| word.eq_ignore_ascii_case("on"));
                self.file.rewriting.get_or_insert_default().engine = Some(on);
            }
            "rewritebase" => {
                let Some(base) = words.first().filter(|base| base.starts_with('/')) else {
                    return error(node, "RewriteBase begins with a slash");
                };
                self.file.rewriting.get_or_insert_default().base = Some(base.clone());
            }
            _ => {
                let rewriting = self.file.rewriting.get_or_insert_default();
                for word in words {
                    match word.to_ascii_lowercase().as_str() {
                        "inherit" => rewriting.inherits = Inherits::Behind,
                        "inheritbefore" => rewriting.inherits = Inherits::Before,
                        "mergebase" => rewriting.merges_base = true,
                        "allownoslash" | "inheritdown" | "inheritdownbefore" => {
                            closes = false;
                            problems.push(format!("RewriteOptions {word} is ignored"));
                        }
                        _ => {}
                    }
                }
            }
        }
        for what in problems {
            self.problem(node, what, context, closes);
        }
        Ok(())
    }

    fn redirect(
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
                    self.problem(node, what, context, status >= 400);
                    None
                }
            }),
            _ => From::Prefix(from.clone()),
        };
        Ok(Redirect { from, status, to })
    }

    fn set_env_if(
        &mut self,
        node: &Node,
        words: &[String],
        context: &Context,
    ) -> Result<Option<SetEnvIf>, SyntaxError> {
        let (attribute, rest) = match node.name.starts_with("browser") {
            true => ("user-agent".to_owned(), words),
            false => match words.split_first() {
                Some((attribute, rest)) => (attribute.to_ascii_lowercase(), rest),
                None => return error(node, format!("{} takes three words", node.name)),
            },
        };
        let [pattern, sets @ ..] = rest else {
            return error(node, format!("{} takes a pattern", node.name));
        };
        let set = |text: &String| match (text.strip_prefix('!'), text.split_once('=')) {
            (Some(name), _) => (name.to_owned(), None),
            (None, Some((name, value))) => (name.to_owned(), Some(value.to_owned())),
            (None, None) => (text.clone(), Some("1".to_owned())),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let pattern = match attribute.chars().all(is_name) {
            true => Pattern::new(pattern, node.name.ends_with("nocase")),
            false => Err(format!("{attribute} names several headers")),
        };
        let pattern = match pattern {
            Ok(pattern) => Some(pattern),
            Err(why) => {
                self.problem(
                    node,
                    format!("it cannot be evaluated: {why}"),
                    context,
                    true,
                );
                None
            }
        };
        Ok(Some(SetEnvIf {
            attribute,
            pattern,
            sets: sets.iter().map(set).collect(),
        }))
    }

    fn group(
        &mut self,
        node: &Node,
        children: &[Node],
        context: &Context,
    ) -> Result<Require, SyntaxError> {
        let is_all = node.name == "requireall";
        let mut group = Vec::new();
        self.requirements(children, context, is_all, &mut group)?;
        Ok(Require {
            limits: context.limits(),
            is_negated: node.name == "requirenone",
            what: match is_all {
                true => Provider::All(group),
                false => Provider::Any(group),
            },
        })
    }

    fn requirements(
        &mut self,
        nodes: &[Node],
        context: &Context,
        is_all: bool,
        group: &mut Vec<Require>,
    ) -> Read {
        for node in nodes {
            match (node.name.as_str(), &node.children) {
                ("require", None) => group.push(self.require(node, context, is_all)?),
                ("requireall" | "requireany" | "requirenone", Some(children)) => {
                    group.push(self.group(node, children, context)?);
                }
                ("ifmodule", Some(children)) => {
                    let name = words(&node.rest).into_iter().next().unwrap_or_default();
                    let holds = match name.strip_prefix('!') {
                        Some(name) => !has_module(name),
                        None => has_module(&name),
                    };
                    if holds {
                        self.requirements(children, context, is_all, group)?;
                    }
                }
                ("ifversion", Some(children)) => {
                    if has_version(&node.rest) == Some(true) {
                        self.requirements(children, context, is_all, group)?;
                    }
                }
                _ => return error(node, format!("{} stands among requirements", node.name)),
            }
        }
        Ok(())
    }

    fn require(
        &mut self,
        node: &Node,
        context: &Context,
        is_in_all: bool,
    ) -> Result<Require, SyntaxError> {
        let words = words(&node.rest);
        let (is_negated, words) = match words.split_first() {
            Some((not, rest)) if not.eq_ignore_ascii_case("not") => (true, rest),
            _ => (false, &words[..]),
        };
        let Some((kind, rest)) = words.split_first() else {
            return error(node, "Require takes who is let in");
        };
        if is_negated && !is_in_all {
            return error(
                node,
                "`Require not` lets nobody in by itself; it stands in <RequireAll>",
            );
        }
        let mut problem = |what: String| self.problem(node, what, context, true);
        let what = match kind.to_ascii_lowercase().as_str() {
            "all" => match rest
                .first()
                .map(|word| word.to_ascii_lowercase())
                .as_deref()
            {
                Some("granted") => Provider::Granted,
                Some("denied") => Provider::Denied,
                _ => return error(node, "Require all is followed by `granted` or `denied`"),
            },
            "ip" => {
                let networks: Option<Vec<_>> = rest.iter().map(|text| network(text)).collect();
                match networks {
                    Some(networks) if !networks.is_empty() => Provider::Networks(networks),
                    _ => return error(node, "Require ip takes addresses"),
                }
            }
            "local" => Provider::Local,
            "method" => Provider::Methods(rest.iter().map(|name| name.to_uppercase()).collect()),
            "env" => Provider::Env(rest.to_vec()),
            "valid-user" | "user" | "group" | "ldap-user" | "ldap-group" | "dbm-group"
            | "dbd-group" | "file-owner" | "file-group" | "valid-group" => {
                problem(format!(
                    "{kind} asks for a password, which Surus does not: all are denied; protect it in the application or in a proxy before \
                     Surus, and open it here"
                ));
                Provider::User
            }
            _ => {
                problem(format!("Require {kind} is not evaluated"));
                Provider::Unknown
            }
        };
        Ok(Require {
            limits: context.limits(),
            is_negated,
            what,
        })
    }

    fn problem(&mut self, node: &Node, what: String, context: &Context, closes: bool) {
        self.file.problems.push(Problem {
            line: node.line,
            what,
            names: context.names.clone(),
            closes,
        });
    }
}

fn all_endings(words: &[String]) -> Vec<String> {
    words.iter().map(|word| ending(word)).collect()
}

fn error<T>(node: &Node, why: impl Into<String>) -> Result<T, SyntaxError> {
    Err(SyntaxError {
        line: node.line,
        why: why.into(),
    })
}

/// `*.sql` as a regular expression.
fn of_wildcards(text: &str) -> String {
    let mut regex = String::from("^");
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '[' => {
                regex.push('[');
                if chars.next_if(|c| *c == '!').is_some() {
                    regex.push('^');
                }
                for c in chars.by_ref() {
                    regex.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            '\\' => regex.push_str(&regex::escape(&chars.next().unwrap_or('\\').to_string())),
            c => regex.push_str(&regex::escape(&c.to_string())),
        }
    }
    regex.push('$');
    regex
}
