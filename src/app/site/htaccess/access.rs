//! Who may see a file: `Require` and its groups (mod_authz_core), `Order`, `Allow`, `Deny` and
//! `Satisfy` (mod_access_compat).
//!
//! What cannot be known is decided such that fewer are let in.

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use ipnet::IpNet;

use super::facts::{Env, Facts};

/// The methods that a `<Limit>` or `<LimitExcept>` is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub methods: Vec<&'static str>,
    pub is_except: bool,
}

impl Limit {
    fn holds(&self, method: &Method) -> bool {
        self.methods.contains(&folded(method)) != self.is_except
    }
}

/// HEAD is GET to Apache.
fn folded(method: &Method) -> &str {
    match method.as_str() {
        "HEAD" => "GET",
        name => name,
    }
}

/// All limits that a directive stands in.
pub type Limits = Arc<[Limit]>;

fn applies(limits: &Limits, method: &Method) -> bool {
    limits.iter().all(|limit| limit.holds(method))
}

/// Whom an `Allow` or a `Deny` is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    All,
    Network(IpNet),
    Env(String),
    NotEnv(String),
    /// `none`, which is no host's name.
    Nobody,
    /// A host name: nobody looks it up.
    Unknown,
}

impl Who {
    pub fn parse(text: &str) -> Who {
        if text.eq_ignore_ascii_case("all") {
            return Who::All;
        }
        if text.eq_ignore_ascii_case("none") {
            return Who::Nobody;
        }
        if let Some(("env", name)) = text
            .split_once('=')
            .map(|(key, name)| (key.to_ascii_lowercase(), name))
            .as_ref()
            .map(|(key, name)| (key.as_str(), *name))
        {
            return match name.strip_prefix('!') {
                Some(name) => Who::NotEnv(name.to_owned()),
                None => Who::Env(name.to_owned()),
            };
        }
        network(text).map_or(Who::Unknown, Who::Network)
    }

    fn is(&self, facts: &Facts<'_>, env: &Env) -> Option<bool> {
        Some(match self {
            Who::All => true,
            Who::Nobody => false,
            Who::Network(network) => contains(network, facts.client()?),
            Who::Env(name) => env.has(name)?,
            Who::NotEnv(name) => !env.has(name)?,
            Who::Unknown => return None,
        })
    }
}

/// `10`, `10.1.`, `10.1.2.3`, `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `2001:db8::/32`.
pub fn network(text: &str) -> Option<IpNet> {
    if let Some((address, mask)) = text.split_once('/') {
        let address: IpAddr =
            padded(address).map_or_else(|| address.parse().ok(), |(ip, _)| Some(ip))?;
        return match mask.parse::<u8>() {
            Ok(bits) => IpNet::new(address, bits).ok(),
            Err(_) => IpNet::with_netmask(address, mask.parse().ok()?).ok(),
        };
    }
    match text.parse::<IpAddr>() {
        Ok(address) => Some(address.into()),
        Err(_) => {
            let (address, bits) = padded(text)?;
            IpNet::new(address, bits).ok()
        }
    }
}

/// A part of an IPv4 address, and how many bits it has.
fn padded(text: &str) -> Option<(IpAddr, u8)> {
    let parts: Vec<&str> = text.trim_end_matches('.').split('.').collect();
    if parts.len() > 4 {
        return None;
    }
    let mut bytes = [0; 4];
    for (byte, part) in bytes.iter_mut().zip(&parts) {
        *byte = part.parse().ok()?;
    }
    Some((IpAddr::from(bytes), parts.len() as u8 * 8))
}

fn contains(network: &IpNet, client: IpAddr) -> bool {
    network.contains(&client.to_canonical())
}

/// A line of mod_access_compat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    pub limits: Limits,
    pub what: Compat,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compat {
    Order(Order),
    Allow(Who),
    Deny(Who),
    SatisfyAny(bool),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    AllowDeny,
    #[default]
    DenyAllow,
    Mutual,
}

/// What the lines of a section say together.
fn compat(lines: &[Statement], facts: &Facts<'_>, env: &Env) -> (bool, bool) {
    let mut order = Order::default();
    let mut satisfies_any = false;
    let (mut allowed, mut denied) = (Some(false), Some(false));
    let or = |so_far: Option<bool>, more: Option<bool>| match (so_far, more) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (None, _) | (_, None) => None,
        _ => Some(false),
    };
    for line in lines {
        if !applies(&line.limits, facts.method) {
            continue;
        }
        match &line.what {
            Compat::Order(is) => order = *is,
            Compat::Allow(who) => allowed = or(allowed, who.is(facts, env)),
            Compat::Deny(who) => denied = or(denied, who.is(facts, env)),
            Compat::SatisfyAny(any) => satisfies_any = *any,
        }
    }
    let (allowed, denied) = (allowed == Some(true), denied != Some(false));
    let is_in = match order {
        Order::AllowDeny | Order::Mutual => allowed && !denied,
        Order::DenyAllow => allowed || !denied,
    };
    (is_in, satisfies_any)
}

/// A `Require`, or a group of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Require {
    pub limits: Limits,
    pub is_negated: bool,
    pub what: Provider,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provider {
    All(Vec<Require>),
    Any(Vec<Require>),
    Granted,
    Denied,
    Networks(Vec<IpNet>),
    Local,
    Methods(Vec<&'static str>),
    Env(Vec<String>),
    /// A user, who would have to give a password.
    User,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Granted,
    Denied,
    /// A password could change it.
    NeedsUser,
    Neutral,
}

impl Require {
    fn judge(&self, facts: &Facts<'_>, env: &Env, is_in_all: bool, hopeful: bool) -> Verdict {
        if !applies(&self.limits, facts.method) {
            return match is_in_all {
                true => Verdict::Granted,
                false => Verdict::Neutral,
            };
        }
        let hopeful = hopeful != self.is_negated;
        let granted = |is: bool| match is {
            true => Verdict::Granted,
            false => Verdict::Denied,
        };
        let verdict = match &self.what {
            Provider::All(all) => {
                let mut verdict = Verdict::Neutral;
                for child in all {
                    match (child.judge(facts, env, true, hopeful), verdict) {
                        (Verdict::Neutral, _) => {}
                        (Verdict::Denied, _) => {
                            verdict = Verdict::Denied;
                            break;
                        }
                        (Verdict::NeedsUser, _) => verdict = Verdict::NeedsUser,
                        (found, Verdict::Neutral) => verdict = found,
                        _ => {}
                    }
                }
                verdict
            }
            Provider::Any(any) => judge_any(any, facts, env, hopeful),
            Provider::Granted => Verdict::Granted,
            Provider::Denied => Verdict::Denied,
            Provider::Networks(networks) => match facts.client() {
                Some(client) => granted(networks.iter().any(|network| contains(network, client))),
                None => granted(!hopeful),
            },
            Provider::Local => match facts.client() {
                Some(client) => {
                    let client = client.to_canonical();
                    granted(client.is_loopback() || facts.server() == Some(client))
                }
                None => granted(!hopeful),
            },
            Provider::Methods(methods) => granted(methods.contains(&folded(facts.method))),
            Provider::Env(names) => {
                let has = |name: &String| env.has(name).unwrap_or(!hopeful);
                granted(names.iter().any(has))
            }
            Provider::User if hopeful => Verdict::NeedsUser,
            Provider::Unknown if hopeful => Verdict::Denied,
            Provider::User | Provider::Unknown => Verdict::Granted,
        };
        match (self.is_negated, verdict) {
            (false, verdict) => verdict,
            (true, Verdict::Granted) => Verdict::Denied,
            (true, Verdict::Denied | Verdict::NeedsUser | Verdict::Neutral) => Verdict::Neutral,
        }
    }
}

/// The verdict where one of them is enough.
fn judge_any(any: &[Require], facts: &Facts<'_>, env: &Env, hopeful: bool) -> Verdict {
    let mut verdict = Verdict::Neutral;
    for child in any {
        match (child.judge(facts, env, false, hopeful), verdict) {
            (Verdict::Neutral, _) => {}
            (Verdict::Granted, _) => return Verdict::Granted,
            (Verdict::NeedsUser, Verdict::Denied) => verdict = Verdict::NeedsUser,
            (found, Verdict::Neutral) => verdict = found,
            _ => {}
        }
    }
    verdict
}

/// How the requirements of a section go together with those of the sections before (`AuthMerging`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Merging {
    #[default]
    Off,
    And,
    Or,
}

/// What applies to one file, of all sections.
#[derive(Debug, Default, Clone)]
pub struct Access<'a> {
    compat: &'a [Statement],
    required: Vec<(Merging, &'a [Require])>,
}

/// Why nobody gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    Denied,
    NeedsUser,
}

impl<'a> Access<'a> {
    /// A later section: what it says replaces what was said before.
    pub fn merge(&mut self, compat: &'a [Statement], require: &'a [Require], merging: Merging) {
        if !compat.is_empty() {
            self.compat = compat;
        }
        if !require.is_empty() {
            if merging == Merging::Off {
                self.required.clear();
            }
            self.required.push((merging, require));
        }
    }

    pub fn check(&self, facts: &Facts<'_>, env: &Env) -> Result<(), Closed> {
        if self.compat.is_empty() && self.required.is_empty() {
            return Ok(());
        }
        let (is_in, satisfies_any) = compat(self.compat, facts, env);
        let mut verdict = None;
        for (merging, requirements) in &self.required {
            // What is about other methods only, says nothing of this one.
            if requirements
                .iter()
                .all(|one| !applies(&one.limits, facts.method))
            {
                continue;
            }
            let found = judge_any(requirements, facts, env, true);
            verdict = Some(match (verdict, merging) {
                (Some(Verdict::Granted), Merging::Or) => Verdict::Granted,
                (Some(Verdict::Granted), Merging::And) => found,
                (Some(before), Merging::And) => before,
                _ => found,
            });
        }
        let required = match verdict {
            None | Some(Verdict::Granted) => Ok(()),
            Some(Verdict::NeedsUser) => Err(Closed::NeedsUser),
            Some(Verdict::Denied | Verdict::Neutral) => Err(Closed::Denied),
        };
        match (is_in, required) {
            (true, Ok(())) => Ok(()),
            (true, Err(_)) | (false, Ok(())) if satisfies_any => Ok(()),
            (true, Err(closed)) => Err(closed),
            (false, _) => Err(Closed::Denied),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_written_in_many_ways() {
        for (text, inside, outside) in [
            ("10", "10.1.2.3", "11.1.2.3"),
            ("10.1.", "10.1.2.3", "10.2.2.3"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("10.0.0.0/8", "10.9.9.9", "12.0.0.1"),
            ("10.1/16", "10.1.9.9", "10.2.0.1"),
            ("10.0.0.0/255.0.0.0", "10.9.9.9", "12.0.0.1"),
            ("2001:db8::/32", "2001:db8::1", "2001:db9::1"),
            ("10", "::ffff:10.1.2.3", "::1"),
        ] {
            let network = network(text).unwrap();
            assert!(contains(&network, inside.parse().unwrap()), "{text}");
            assert!(!contains(&network, outside.parse().unwrap()), "{text}");
        }
        for text in ["example.org", "10.1.2.3.4", "300", "", "10/x"] {
            assert_eq!(network(text), None, "{text}");
        }
    }
}
