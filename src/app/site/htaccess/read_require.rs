//! Reads access directives: `Require` and its groups, `Order`, `Allow`, `Deny`, and those that
//! require TLS.

use super::access::{
    AllowOrder, ClientMatch, Compat, Merging, NoNetwork, Provider, Require, Statement, network,
};
use super::known::{counts, method};
use super::parse::{DirectiveNode, SyntaxError, words};
use super::read::{HtaccessReader, Read, ReadContext, error};
use super::rules::Block;

impl HtaccessReader {
    pub(super) fn access(
        &mut self,
        node: &DirectiveNode,
        words: &[String],
        block: &mut Block,
        context: &ReadContext,
    ) -> Read {
        let first = words.first().map_or("", String::as_str);
        let lower = first.to_ascii_lowercase();
        let limits = context.limits();
        let statement = |what| Statement {
            limits: limits.clone(),
            what,
        };
        match (node.name.as_str(), lower.as_str()) {
            ("require", _) => block.require.push(self.require(node, context, false)?),
            ("order", order) => {
                let order = match order {
                    "allow,deny" => AllowOrder::AllowDeny,
                    "deny,allow" => AllowOrder::DenyAllow,
                    "mutual-failure" => AllowOrder::Mutual,
                    _ => return error(node, format!("Order {first} is not a valid order")),
                };
                block.compat.push(statement(Compat::Order(order)));
            }
            ("allow" | "deny", "from") => {
                for host in &words[1..] {
                    if host.starts_with('#') {
                        return error(node, "a comment needs a separate line");
                    }
                    let Some(parsed) = ClientMatch::parse(host) else {
                        return error(
                            node,
                            format!("{host} is not an address that Apache accepts"),
                        );
                    };
                    if parsed == ClientMatch::Unknown {
                        let what = match host.contains('/') {
                            true => format!("the mask of {host} is not evaluated"),
                            false => format!("{host} is a host name, which is not looked up"),
                        };
                        self.problem(node, what, context, true);
                    }
                    block.compat.push(statement(match node.name.as_str() {
                        "allow" => Compat::Allow(parsed),
                        _ => Compat::Deny(parsed),
                    }));
                }
            }
            ("allow" | "deny", _) => {
                return error(node, format!("{} needs `from` and a host", node.name));
            }
            ("satisfy", any @ ("any" | "all")) => {
                block
                    .compat
                    .push(statement(Compat::SatisfyAny(any == "any")));
            }
            ("authmerging", "off") => block.merging = Merging::Off,
            ("authmerging", "and") => block.merging = Merging::And,
            ("authmerging", "or") => block.merging = Merging::Or,
            ("sslrequiressl", _) => block.needs_tls = true,
            ("mdrequirehttps", "off") | ("sslverifyclient", "none") => {}
            ("mdrequirehttps", _) => block.needs_tls = true,
            ("sslverifyclient", "optional" | "optional_no_ca") => {}
            ("sslrequire" | "sslverifyclient", _) => {
                let what = format!("{} is not evaluated: all clients are denied", node.name);
                self.closes(node, what, block, context);
            }
            (name, _) => return error(node, format!("{name} {first} is not known")),
        }
        Ok(())
    }

    pub(super) fn group(
        &mut self,
        node: &DirectiveNode,
        children: &[DirectiveNode],
        context: &ReadContext,
        is_in_all: bool,
    ) -> Result<Require, SyntaxError> {
        if node.has_text_behind {
            return error(node, format!("text follows <{}>", node.name));
        }
        let is_all = node.name == "requireall";
        if node.name == "requirenone" && !is_in_all {
            return error(node, "<RequireNone> stands in <RequireAll>");
        }
        let mut group = Vec::new();
        self.requirements(children, context, is_all, &mut group)?;
        if group.is_empty() {
            return error(node, format!("<{}> has no requirements", node.name));
        }
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
        nodes: &[DirectiveNode],
        context: &ReadContext,
        is_all: bool,
        group: &mut Vec<Require>,
    ) -> Read {
        for node in nodes {
            match (node.name.as_str(), &node.children) {
                ("require", None) => group.push(self.require(node, context, is_all)?),
                ("requireall" | "requireany" | "requirenone", Some(children)) => {
                    group.push(self.group(node, children, context, is_all)?);
                }
                (_, Some(children)) => match counts(node, &self.budget) {
                    Some(Ok(true)) => self.requirements(children, context, is_all, group)?,
                    Some(Ok(false)) => {}
                    Some(Err(why)) => return error(node, why),
                    None => {
                        return error(
                            node,
                            format!("<{}> is not allowed among requirements", node.name),
                        );
                    }
                },
                _ => {
                    return error(
                        node,
                        format!("{} is not allowed among requirements", node.name),
                    );
                }
            }
        }
        Ok(())
    }

    fn require(
        &mut self,
        node: &DirectiveNode,
        context: &ReadContext,
        is_in_all: bool,
    ) -> Result<Require, SyntaxError> {
        let words = words(&node.rest);
        let (is_negated, words) = match words.split_first() {
            Some((not, rest)) if not.eq_ignore_ascii_case("not") => (true, rest),
            _ => (false, &words[..]),
        };
        let Some((kind, rest)) = words.split_first() else {
            return error(node, "Require needs an argument");
        };
        if is_negated && !is_in_all {
            return error(
                node,
                "`Require not` cannot grant access; put it into <RequireAll>",
            );
        }
        let mut problem = |what: String| self.problem(node, what, context, true);
        let what = match kind.to_ascii_lowercase().as_str() {
            "all" => match rest.concat().to_ascii_lowercase().as_str() {
                "granted" if rest.len() == 1 => Provider::Granted,
                "denied" if rest.len() == 1 => Provider::Denied,
                _ => return error(node, "Require all needs `granted` or `denied`"),
            },
            "ip" => {
                let networks: Result<Vec<_>, _> = rest.iter().map(|text| network(text)).collect();
                match networks {
                    Ok(networks) if !networks.is_empty() => Provider::Networks(networks),
                    Err(NoNetwork::Holes) => {
                        problem(format!("a mask in Require {} is not evaluated", node.rest));
                        Provider::Unknown
                    }
                    _ => return error(node, "Require ip needs addresses"),
                }
            }
            "local" => Provider::Local,
            "method" => match rest.iter().map(|name| method(name)).collect() {
                Some(methods) => Provider::Methods(methods),
                None => return error(node, format!("Require {} is not known", node.rest)),
            },
            "env" => Provider::Env(rest.to_vec()),
            "valid-user" | "user" | "group" | "ldap-user" | "ldap-group" | "dbm-group"
            | "dbd-group" | "file-owner" | "file-group" | "valid-group" => {
                problem(format!(
                    "{kind} requires a password, which Surus does not check: all clients \
                     are denied; protect it in the application or in a proxy before \
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
}
