//! Decides which clients may access a file: `Require` and its groups (mod_authz_core), `Order`,
//! `Allow`, `Deny` and `Satisfy` (mod_access_compat).
//!
//! A condition that cannot be evaluated counts such that fewer clients are admitted.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::Method;
use ipnet::IpNet;

use super::facts::{Env, Facts};

/// The methods of a `<Limit>` or `<LimitExcept>` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub methods: Arc<[&'static str]>,
    pub is_except: bool,
}

impl Limit {
    fn holds(&self, method: &Method) -> bool {
        self.methods.contains(&folded(method)) != self.is_except
    }
}

/// Apache treats HEAD as GET.
fn folded(method: &Method) -> &str {
    match method.as_str() {
        "HEAD" => "GET",
        name => name,
    }
}

/// All `<Limit>` sections around a directive.
pub type MethodLimits = Arc<[Limit]>;

fn applies(limits: &MethodLimits, method: &Method) -> bool {
    limits.iter().all(|limit| limit.holds(method))
}

/// The clients of an `Allow` or `Deny` directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientMatch {
    All,
    Network(IpNet),
    Env(String),
    NotEnv(String),
    /// `none`, which matches no host.
    NoClient,
    /// A host name, which Surus does not look up.
    Unknown,
}

impl ClientMatch {
    /// None for an invalid address; Apache answers 500 for it.
    pub fn parse(text: &str) -> Option<ClientMatch> {
        let lower = text.to_ascii_lowercase();
        Some(match lower.as_str() {
            "all" => ClientMatch::All,
            "none" => ClientMatch::NoClient,
            _ if lower.starts_with("env=!") => ClientMatch::NotEnv(text[5..].to_owned()),
            _ if lower.starts_with("env=") => ClientMatch::Env(text[4..].to_owned()),
            _ => match network(text) {
                Ok(network) => ClientMatch::Network(network),
                Err(NoNetwork::Holes) => ClientMatch::Unknown,
                Err(NoNetwork::Name) if !text.contains('/') => ClientMatch::Unknown,
                Err(_) => return None,
            },
        })
    }

    fn is(&self, facts: &Facts<'_>, env: &Env) -> Option<bool> {
        if matches!(self, ClientMatch::Env(_) | ClientMatch::NotEnv(_)) {
            facts.steps.take(env.steps());
        }
        Some(match self {
            ClientMatch::All => true,
            ClientMatch::NoClient => false,
            ClientMatch::Network(network) => contains(network, facts.client()?),
            ClientMatch::Env(name) => env.has(name)?,
            ClientMatch::NotEnv(name) => !env.has(name)?,
            ClientMatch::Unknown => return None,
        })
    }
}

/// Why a text is not a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoNetwork {
    /// It does not look like an address.
    Name,
    /// Apache rejects it, too.
    Broken,
    /// A mask with non-contiguous bits, which Apache accepts.
    Holes,
}

/// Parses `10`, `10.1.`, `10.1.2.3`, `10.0.0.0/8`, `10.0.0.0/255.0.0.0` and `2001:db8::/32`, as
/// Apache does (`apr_ipsubnet_create`). Rejects IPv4 addresses in IPv6 notation.
pub fn network(text: &str) -> Result<IpNet, NoNetwork> {
    let (address, mask) = match text.split_once('/') {
        Some((address, mask)) => (address, Some(mask)),
        None => (text, None),
    };
    let is_ipv4 = |c: char| c.is_ascii_digit() || c == '.';
    if address.is_empty() || !address.contains(':') && !address.chars().all(is_ipv4) {
        return Err(NoNetwork::Name);
    }
    let parsed = match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => None,
        Ok(address) => Some(address),
        Err(_) if mask.is_none() => return partial(address).ok_or(NoNetwork::Broken),
        Err(_) => None,
    };
    let address = parsed.ok_or(NoNetwork::Broken)?;
    let Some(mask) = mask else {
        return Ok(address.into());
    };
    if let Ok(bits) = mask.parse::<u8>() {
        let network = IpNet::new(address, bits).ok().filter(|_| bits > 0);
        return network.ok_or(NoNetwork::Broken);
    }
    match mask.parse::<Ipv4Addr>() {
        Ok(mask) if address.is_ipv4() => {
            IpNet::with_netmask(address, mask.into()).map_err(|_| NoNetwork::Holes)
        }
        _ => Err(NoNetwork::Broken),
    }
}

/// Parses the first bytes of an IPv4 address.
fn partial(text: &str) -> Option<IpNet> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() > 4 || text.len() > 15 {
        return None;
    }
    let mut bytes = [0; 4];
    for (byte, part) in bytes.iter_mut().zip(&parts) {
        *byte = part.parse().ok()?;
    }
    IpNet::new(bytes.into(), parts.len() as u8 * 8).ok()
}

fn contains(network: &IpNet, client: IpAddr) -> bool {
    network.contains(&client.to_canonical())
}

/// A directive of mod_access_compat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    pub limits: MethodLimits,
    pub what: Compat,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compat {
    Order(AllowOrder),
    Allow(ClientMatch),
    Deny(ClientMatch),
    SatisfyAny(bool),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AllowOrder {
    AllowDeny,
    #[default]
    DenyAllow,
    Mutual,
}

/// Combines the directives of a section.
fn compat(lines: &[Statement], facts: &Facts<'_>, env: &Env) -> (bool, bool) {
    let mut order = AllowOrder::default();
    let mut satisfies_any = false;
    let (mut allowed, mut denied) = (Some(false), Some(false));
    let or = |so_far: Option<bool>, more: Option<bool>| match (so_far, more) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (None, _) | (_, None) => None,
        _ => Some(false),
    };
    for line in lines {
        if !facts.steps.take(1 + line.limits.len()) {
            break;
        }
        if !applies(&line.limits, facts.method) {
            continue;
        }
        match &line.what {
            Compat::Order(is) => order = *is,
            Compat::Allow(client) => allowed = or(allowed, client.is(facts, env)),
            Compat::Deny(client) => denied = or(denied, client.is(facts, env)),
            Compat::SatisfyAny(any) => satisfies_any = *any,
        }
    }
    let (allowed, denied) = (allowed == Some(true), denied != Some(false));
    let is_in = match order {
        AllowOrder::AllowDeny | AllowOrder::Mutual => allowed && !denied,
        AllowOrder::DenyAllow => allowed || !denied,
    };
    (is_in, satisfies_any)
}

/// A `Require` directive or a group of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Require {
    pub limits: MethodLimits,
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
    /// Requires an authenticated user.
    User,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AccessVerdict {
    Granted,
    Denied,
    /// Authentication could change the verdict.
    NeedsUser,
    Neutral,
}

impl Require {
    fn judge(&self, facts: &Facts<'_>, env: &Env, is_in_all: bool, hopeful: bool) -> AccessVerdict {
        if !facts.steps.take(1 + self.limits.len()) {
            return AccessVerdict::Denied;
        }
        if !applies(&self.limits, facts.method) {
            return match is_in_all {
                true => AccessVerdict::Granted,
                false => AccessVerdict::Neutral,
            };
        }
        let hopeful = hopeful != self.is_negated;
        let granted = |is: bool| match is {
            true => AccessVerdict::Granted,
            false => AccessVerdict::Denied,
        };
        let verdict = match &self.what {
            Provider::All(all) => {
                let mut verdict = AccessVerdict::Neutral;
                for child in all {
                    match (child.judge(facts, env, true, hopeful), verdict) {
                        (AccessVerdict::Neutral, _) => {}
                        (AccessVerdict::Denied, _) => {
                            verdict = AccessVerdict::Denied;
                            break;
                        }
                        (AccessVerdict::NeedsUser, _) => verdict = AccessVerdict::NeedsUser,
                        (found, AccessVerdict::Neutral) => verdict = found,
                        _ => {}
                    }
                }
                verdict
            }
            Provider::Any(any) => judge_any(any, facts, env, hopeful),
            Provider::Granted => AccessVerdict::Granted,
            Provider::Denied => AccessVerdict::Denied,
            Provider::Networks(networks) => match facts.client() {
                Some(_) if !facts.steps.take(networks.len()) => AccessVerdict::Denied,
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
                facts.steps.take(names.len() * env.steps());
                let has = |name: &String| env.has(name).unwrap_or(!hopeful);
                granted(names.iter().any(has))
            }
            Provider::User if hopeful => AccessVerdict::NeedsUser,
            Provider::Unknown if hopeful => AccessVerdict::Denied,
            Provider::User | Provider::Unknown => AccessVerdict::Granted,
        };
        match (self.is_negated, verdict) {
            (false, verdict) => verdict,
            (true, AccessVerdict::Granted) => AccessVerdict::Denied,
            (true, AccessVerdict::Denied | AccessVerdict::NeedsUser | AccessVerdict::Neutral) => {
                AccessVerdict::Neutral
            }
        }
    }
}

/// The verdict if one of the requirements suffices.
fn judge_any(any: &[Require], facts: &Facts<'_>, env: &Env, hopeful: bool) -> AccessVerdict {
    let mut verdict = AccessVerdict::Neutral;
    for child in any {
        match (child.judge(facts, env, false, hopeful), verdict) {
            (AccessVerdict::Neutral, _) => {}
            (AccessVerdict::Granted, _) => return AccessVerdict::Granted,
            (AccessVerdict::NeedsUser, AccessVerdict::Denied) => verdict = AccessVerdict::NeedsUser,
            (found, AccessVerdict::Neutral) => verdict = found,
            _ => {}
        }
    }
    verdict
}

/// How the requirements of a section combine with those of earlier sections (`AuthMerging`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Merging {
    #[default]
    Off,
    And,
    Or,
}

/// The merged access rules of one file.
#[derive(Debug, Default, Clone)]
pub struct FileAccess<'a> {
    compat: &'a [Statement],
    required: Vec<(Merging, &'a [Require])>,
}

/// Why access is denied to all clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDenied {
    Denied,
    NeedsUser,
}

impl<'a> FileAccess<'a> {
    /// Merges a later section, which replaces what earlier ones set.
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

    pub fn check(&self, facts: &Facts<'_>, env: &Env) -> Result<(), AccessDenied> {
        if self.compat.is_empty() && self.required.is_empty() {
            return Ok(());
        }
        let (is_in, satisfies_any) = compat(self.compat, facts, env);
        let mut verdict = None;
        for (merging, requirements) in &self.required {
            // Requirements for other methods only do not apply.
            if requirements
                .iter()
                .all(|one| !applies(&one.limits, facts.method))
            {
                continue;
            }
            let found = judge_any(requirements, facts, env, true);
            verdict = Some(match (verdict, merging) {
                (Some(AccessVerdict::Granted), Merging::Or) => AccessVerdict::Granted,
                (Some(AccessVerdict::Granted), Merging::And) => found,
                (Some(before), Merging::And) => before,
                _ => found,
            });
        }
        let required = match verdict {
            None | Some(AccessVerdict::Granted) => Ok(()),
            Some(AccessVerdict::NeedsUser) => Err(AccessDenied::NeedsUser),
            Some(AccessVerdict::Denied | AccessVerdict::Neutral) => Err(AccessDenied::Denied),
        };
        match (is_in, required) {
            (true, Ok(())) => Ok(()),
            (true, Err(_)) | (false, Ok(())) if satisfies_any => Ok(()),
            (true, Err(closed)) => Err(closed),
            (false, _) => Err(AccessDenied::Denied),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn network_in_every_notation_of_apache_is_parsed() {
        for (text, inside, outside) in [
            ("10", "10.1.2.3", "11.1.2.3"),
            ("10.1.", "10.1.2.3", "10.2.2.3"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("10.0.0.0/8", "10.9.9.9", "12.0.0.1"),
            ("10.0.0.0/255.0.0.0", "10.9.9.9", "12.0.0.1"),
            ("2001:db8::/32", "2001:db8::1", "2001:db9::1"),
            ("10", "::ffff:10.1.2.3", "::1"),
        ] {
            let network = network(text).unwrap();
            assert!(contains(&network, inside.parse().unwrap()), "{text}");
            assert!(!contains(&network, outside.parse().unwrap()), "{text}");
        }
        for (text, why) in [
            ("example.org", NoNetwork::Name),
            ("", NoNetwork::Name),
            ("10.1.2.3.4", NoNetwork::Broken),
            ("300", NoNetwork::Broken),
            ("10/x", NoNetwork::Broken),
            ("10.1/16", NoNetwork::Broken),
            ("10.0.0.0/0", NoNetwork::Broken),
            ("::ffff:10.0.0.1", NoNetwork::Broken),
            ("::ffff:0:0/96", NoNetwork::Broken),
            ("2001:db8::/255.0.0.0", NoNetwork::Broken),
            ("10.0.0.1/255.0.0.255", NoNetwork::Holes),
        ] {
            assert_eq!(network(text), Err(why), "{text}");
        }
    }
}
