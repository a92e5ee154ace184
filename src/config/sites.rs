//! The `[[site]]` tables: several sites by host name, each with its own configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toml::{Table, Value};

use super::Config;
use crate::app::by_host::ByHost;
use crate::app::host::HostPattern;
use crate::app::site;
use crate::fronts::http::tls::acme::settings::Domain;
use crate::units;

/// A site, and the configuration that it has.
#[derive(Debug, Clone, Default)]
pub struct SiteConfig {
    /// The name in logs, metrics and the status; empty without `[[site]]`.
    pub name: String,
    pub hosts: Vec<HostPattern>,
    /// Whether it is for all other hosts.
    pub is_default: bool,
    /// The directory of its application; the project's by default.
    pub project: Option<PathBuf>,
    pub config: Config,
}

impl SiteConfig {
    /// The directory of its application.
    pub fn directory<'a>(&'a self, project: &'a Path) -> &'a Path {
        self.project.as_deref().unwrap_or(project)
    }

    /// Names the site in an error; a server without `[[site]]` needs no name.
    pub fn context(&self, error: anyhow::Error) -> anyhow::Error {
        match self.name.is_empty() {
            true => error,
            false => error.context(format!("site {}", self.name)),
        }
    }
}

/// What only a `[[site]]` has. Its other keys are those of `[site]` and of [`SECTIONS`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Own {
    /// The hosts that the site is for: `example.org`, or `*.example.org` for all hosts below it.
    #[serde(deserialize_with = "units::one_or_more")]
    pub host: Vec<HostPattern>,
    /// The site is also for requests to all other hosts.
    pub default: bool,
    /// The name of the site in logs, metrics and `surus status`. The first host by default.
    pub name: Option<String>,
    /// The directory of the site's application, relative to the project, which is the default.
    pub project: Option<PathBuf>,
}

/// The keys of [`Own`].
const OWN: [&str; 4] = ["host", "default", "name", "project"];

/// The sections that a site can set differently, and of some only these keys.
const SECTIONS: [(&str, &[&str]); 11] = [
    ("access_log", ALL_KEYS),
    ("acme", &["domains"]),
    ("compress", ALL_KEYS),
    ("engine", ALL_KEYS),
    ("env", ALL_KEYS),
    ("error_pages", ALL_KEYS),
    (
        "http",
        &[
            "body_timeout",
            "max_body_size",
            "max_response_buffer",
            "redirect_to_https",
            "request_timeout",
            "slow_request",
            "stream_body",
        ],
    ),
    ("php", ALL_KEYS),
    ("pool", ALL_KEYS),
    ("tls", &["certificate", "hsts", "key"]),
    ("x_sendfile", ALL_KEYS),
];

const ALL_KEYS: &[&str] = &[];

/// What a site does not take from the top level, because it is there for all sites together.
const NOT_INHERITED: [(&str, &[&str]); 3] = [
    ("access_log", &["file"]),
    ("acme", &["domains"]),
    ("tls", &["certificate", "key"]),
];

/// Whether a site has the setting of the top level unless it sets its own.
pub fn is_inherited(setting: &str) -> bool {
    let is = |(section, keys): &(&str, &[&str])| {
        let key = setting
            .strip_prefix(section)
            .and_then(|rest| rest.strip_prefix('.'));
        key.is_some_and(|key| keys.contains(&key))
    };
    !NOT_INHERITED.iter().any(is)
}

/// Sections for all sites.
const COMMON: [&str; 10] = [
    "admin",
    "deploy",
    "lambda",
    "log",
    "package",
    "queue",
    "schedule",
    "telemetry",
    "watch",
    "work",
];

/// Deserializes `[site]`, or checks each of the `[[site]]` tables.
pub(super) fn one_or_several<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<site::Settings, D::Error> {
    struct Either;
    impl<'de> Visitor<'de> for Either {
        type Value = site::Settings;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a [site] table or [[site]] tables")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<site::Settings, A::Error> {
            site::Settings::deserialize(MapAccessDeserializer::new(map))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<site::Settings, A::Error> {
            let mut number = 0;
            while let Some(table) = seq.next_element()? {
                number += 1;
                // Here, so that an error has the name of the file.
                if let Err(error) = read(table, &Table::new()) {
                    let text = format_args!("[[site]] number {number}: {error:#}");
                    return Err(A::Error::custom(text));
                }
            }
            Ok(site::Settings::default())
        }
    }
    from.deserialize_any(Either)
}

/// Where the `[[site]]` begins that an error of [`one_or_several`] names. The error itself has the
/// place of the first one.
pub(super) fn start_of(message: &str, text: &str) -> Option<usize> {
    #[derive(Deserialize)]
    struct Tables {
        site: Vec<toml::Spanned<serde::de::IgnoredAny>>,
    }
    let number = message.strip_prefix("[[site]] number ")?;
    let number: usize = number.split(':').next()?.parse().ok()?;
    let tables: Tables = toml::from_str(text).ok()?;
    Some(tables.site.get(number - 1)?.span().start)
}

/// Takes the `[[site]]` tables out of a configuration, and lays each over the rest of it.
pub(super) fn take(table: &mut Table) -> anyhow::Result<Vec<SiteConfig>> {
    let tables = match table.remove("site") {
        Some(Value::Array(tables)) => tables,
        Some(single) => {
            table.insert("site".into(), single);
            return Ok(Vec::new());
        }
        None => return Ok(Vec::new()),
    };
    ensure!(
        !tables.is_empty(),
        "`site` is an empty list; write [[site]] tables, or leave it out"
    );
    let mut sites = Vec::new();
    for (number, own) in (1..).zip(tables) {
        let cannot = || format!("[[site]] number {number}");
        let own = own.as_table().cloned().with_context(cannot)?;
        sites.push(read(own, table).with_context(cannot)?);
    }
    check_conflicts(&sites)?;
    check_domains(&sites)?;
    Ok(sites)
}

/// One site, over what is configured for all.
fn read(mut table: Table, common: &Table) -> anyhow::Result<SiteConfig> {
    let own = OWN.iter().filter_map(|key| table.remove_entry(*key));
    let own = Own::deserialize(Value::Table(own.collect()))?;
    ensure!(
        !own.host.is_empty() || own.default,
        "it has no `host`; name the hosts that it is for, or set `default = true` to serve all \
         hosts that no other site has"
    );
    if let Some(section) = COMMON.iter().find(|section| table.contains_key(**section)) {
        bail!(
            "`{section}` is for all sites and not supported in one; write [{section}] at the top \
             level"
        );
    }
    let mut whole = common.clone();
    whole.retain(|section, _| section != "site");
    for (section, keys) in NOT_INHERITED {
        if let Some(Value::Table(values)) = whole.get_mut(section) {
            values.retain(|key, _| !keys.contains(&key));
        }
    }
    for (section, keys) in SECTIONS {
        let Some(values) = table.remove(section) else {
            continue;
        };
        check_keys(section, keys, &values)?;
        if section == "engine" {
            free_of_workers(&mut whole, &values);
        }
        merge(&mut whole, section.into(), values);
    }
    if let Some(routes) = table.remove("route") {
        let Value::Array(mut routes) = routes else {
            bail!("`route` is not a list; write [[site.route]], once for each rule");
        };
        // The site's rules come first.
        if let Some(Value::Array(common)) = whole.remove("route") {
            routes.extend(common);
        }
        whole.insert("route".into(), routes.into());
    }
    let rest = Value::Table(table);
    if let Err(error) = site::Settings::deserialize(rest.clone())
        && let Some(text) = with_all_keys(error.message())
    {
        bail!(text);
    }
    whole.insert("site".into(), rest);
    let name = match own.name {
        Some(name) => name,
        None => (own.host.first()).map_or("default".into(), HostPattern::to_string),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-*[]:".contains(c);
    ensure!(
        !name.is_empty() && name.chars().all(is_plain),
        "`name` is {name:?}; it may have ASCII letters, digits, `.`, `_` and `-`"
    );
    Ok(SiteConfig {
        name,
        hosts: own.host,
        is_default: own.default,
        project: own.project,
        config: Config::deserialize(Value::Table(whole))?,
    })
}

/// The error of a key that no site has. serde lists the keys of `[site]` only.
fn with_all_keys(message: &str) -> Option<String> {
    let unknown = message.strip_prefix("unknown field `")?;
    let (key, of_site) = unknown.split_once("`, expected ")?;
    let of_site = of_site.split('`').skip(1).step_by(2);
    let sections = SECTIONS.iter().map(|(section, _)| *section);
    let all = OWN.into_iter().chain(of_site).chain(sections);
    let all: Vec<_> = all.chain(["route"]).map(|key| format!("`{key}`")).collect();
    Some(format!(
        "unknown field `{key}`, expected one of {}",
        all.join(", ")
    ))
}

/// Whether any section has this key, whatever its value.
fn is_known(section: &str, key: &str) -> bool {
    let value = Table::from_iter([(key.to_owned(), Value::Boolean(true))]);
    let table = Table::from_iter([(section.to_owned(), Value::Table(value))]);
    let read = Config::deserialize(Value::Table(table));
    read.err()
        .is_none_or(|error| !error.message().starts_with("unknown field"))
}

/// An error if a site sets more of a section than it can.
fn check_keys(section: &str, allowed: &[&str], values: &Value) -> anyhow::Result<()> {
    let mut keys = values.as_table().into_iter().flat_map(Table::keys);
    let rejected = keys.find(|key| !allowed.contains(&key.as_str()));
    match rejected.filter(|_| !allowed.is_empty()) {
        None => Ok(()),
        Some(key) => {
            let allowed: Vec<_> = allowed
                .iter()
                .map(|key| format!("{section}.{key}"))
                .collect();
            let why = match is_known(section, key) {
                true => "is for all sites and not supported in one; write it at the top level",
                false => "is not a setting",
            };
            bail!(
                "`{section}.{key}` {why}. A site can set {}",
                allowed.join(", ")
            )
        }
    }
}

/// The number of workers, or its bounds, replaces what all sites have of both.
fn free_of_workers(whole: &mut Table, values: &Value) {
    let workers = ["workers", "min_workers", "max_workers"];
    let sets = |key: &&str| values.get(key).is_some();
    if workers.iter().any(sets)
        && let Some(Value::Table(engine)) = whole.get_mut("engine")
    {
        engine.retain(|key, _| !workers.contains(&key));
    }
}

/// Lays a value over the one that is there: tables by key, and anything else as a whole.
fn merge(into: &mut Table, key: String, value: Value) {
    match (into.get_mut(&key), value) {
        (Some(Value::Table(into)), Value::Table(values)) => {
            for (key, value) in values {
                merge(into, key, value);
            }
        }
        (_, value) => drop(into.insert(key, value)),
    }
}

/// The names of the sites by host. Without `[[site]]`, no host selects one.
pub fn by_host(sites: &[SiteConfig]) -> ByHost<String> {
    let names = sites
        .iter()
        .map(|site| (site.hosts.clone(), site.name.clone()));
    ByHost::new(names, sites.iter().position(|site| site.is_default))
}

/// The domains of `[acme]` and of the sites, each once.
pub(super) fn all_domains(common: &[Domain], sites: &[SiteConfig]) -> Vec<Domain> {
    let mut all: Vec<Domain> = Vec::new();
    let own = sites.iter().flat_map(|site| &site.config.acme.domains);
    for domain in common.iter().chain(own) {
        if !all.contains(domain) {
            all.push(domain.clone());
        }
    }
    all
}

/// Leaves each site those of these domains that it serves.
pub(super) fn give_domains(sites: &mut [SiteConfig], all: &[Domain]) {
    let by_host = by_host(sites);
    for (number, site) in sites.iter_mut().enumerate() {
        let is_own = |domain: &&Domain| by_host.select(Some(domain.as_str())) == Some(number);
        site.config.acme.domains = all.iter().filter(is_own).cloned().collect();
    }
}

/// An error if no site has one of these domains: it would get a certificate, and status 421.
/// `setting` is what names them.
pub fn check_served(domains: &[Domain], setting: &str, sites: &[SiteConfig]) -> anyhow::Result<()> {
    let by_host = by_host(sites);
    let is_served = |domain: &Domain| by_host.select(Some(domain.as_str())).is_some();
    match domains.iter().find(|domain| !is_served(domain)) {
        Some(domain) if !sites.is_empty() => bail!(
            "no [[site]] has the host {domain} ({setting}); add it to `host` of the site that \
             serves it"
        ),
        _ => Ok(()),
    }
}

/// An error if a site asks for the certificate of a host that it does not serve.
fn check_domains(sites: &[SiteConfig]) -> anyhow::Result<()> {
    let by_host = by_host(sites);
    for (number, site) in sites.iter().enumerate() {
        for domain in &site.config.acme.domains {
            let named = number + 1;
            match by_host.select(Some(domain.as_str())) {
                Some(other) if other == number => {}
                Some(other) => bail!(
                    "[[site]] number {named} has {domain} in acme.domains, which is a host of \
                     number {}; name it there",
                    other + 1
                ),
                None => bail!(
                    "[[site]] number {named} has {domain} in acme.domains, which is not one of its \
                     hosts; add it to `host`"
                ),
            }
        }
    }
    Ok(())
}

/// An error that names two sites with the same host, the same name, or both the default.
fn check_conflicts(sites: &[SiteConfig]) -> anyhow::Result<()> {
    let mut names = BTreeMap::new();
    let mut hosts = BTreeMap::new();
    let mut default = None;
    for (number, site) in (1..).zip(sites) {
        if let Some(other) = names.insert(&site.name, number) {
            bail!(
                "[[site]] number {other} and number {number} both have the name {}; set another \
                 `name`",
                site.name
            );
        }
        for host in &site.hosts {
            match hosts.insert(host, number) {
                Some(other) if other == number => {
                    bail!("[[site]] number {number} has the host {host} twice")
                }
                Some(other) => bail!(
                    "[[site]] number {other} and number {number} both have the host {host}; \
                     remove it from one of them"
                ),
                None => {}
            }
        }
        if site.is_default
            && let Some(other) = default.replace(number)
        {
            bail!(
                "[[site]] number {other} and number {number} both are the default; only one can be"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
