//! The `[[site]]` tables: several sites by host name, each with its own configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toml::{Table, Value};

use super::Config;
use crate::app::host::HostPattern;
use crate::app::site;
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

/// The sections that a site can set differently.
const SECTIONS: [&str; 8] = [
    "compress",
    "engine",
    "env",
    "error_pages",
    "http",
    "php",
    "pool",
    "x_sendfile",
];

/// What a site can set of `[http]`.
const HTTP: [&str; 4] = [
    "body_timeout",
    "max_body_size",
    "request_timeout",
    "stream_body",
];

/// Sections for all sites.
const COMMON: [&str; 13] = [
    "access_log",
    "acme",
    "admin",
    "deploy",
    "lambda",
    "log",
    "package",
    "queue",
    "schedule",
    "telemetry",
    "tls",
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
    for section in SECTIONS {
        let Some(values) = table.remove(section) else {
            continue;
        };
        match section {
            "http" => check_http(&values)?,
            "engine" => free_of_workers(&mut whole, &values),
            _ => {}
        }
        merge(&mut whole, section.into(), values);
    }
    if let Some(Value::Array(mut routes)) = table.remove("route") {
        // The site's rules come first.
        if let Some(Value::Array(common)) = whole.remove("route") {
            routes.extend(common);
        }
        whole.insert("route".into(), routes.into());
    }
    whole.insert("site".into(), Value::Table(table));
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

fn check_http(values: &Value) -> anyhow::Result<()> {
    let mut keys = values.as_table().into_iter().flat_map(Table::keys);
    match keys.find(|key| !HTTP.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => bail!(
            "`http.{key}` is for all sites and not supported in one; write it at the top level. A \
             site can set http.{}",
            HTTP.join(", http.")
        ),
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
mod tests {
    use super::*;

    fn sites(text: &str) -> anyhow::Result<Vec<SiteConfig>> {
        take(&mut toml::from_str(text).unwrap())
    }

    #[test]
    fn site_lays_its_settings_over_those_of_all() {
        let all = sites(
            "engine.workers = 4\nphp.memory_limit = '64M'\nhttp.max_body_size = '1M'\n\
             http.max_headers = 50\nenv.A = 'all'\n\
             [pool.debug]\nworkers = 3\n\
             [[route]]\nprefix = '/all'\ndeny = true\n\
             [[site]]\nhost = ['Shop.example', '*.shop.example']\nproject = 'shop'\n\
             root = 'web'\nhtaccess = false\nengine.name = 'classic'\nengine.max_workers = 9\n\
             engine.min_workers = 2\nphp.precision = 3\nhttp.max_body_size = '2M'\n\
             pool.debug.engine = 'cgi'\n\
             [[site.route]]\nprefix = '/own'\ndeny = true\n\
             [[site]]\ndefault = true\n",
        )
        .unwrap();
        let [shop, other] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!(shop.name, "shop.example");
        assert_eq!(shop.hosts.len(), 2);
        assert_eq!(shop.project.as_deref(), Some("shop".as_ref()));
        let config = &shop.config;
        assert_eq!(config.site.root.as_deref(), Some("web".as_ref()));
        assert!(!config.site.htaccess);
        assert_eq!(config.engine.name.as_deref(), Some("classic"));
        assert_eq!(config.engine.workers, None);
        assert_eq!(config.engine.max_workers, Some(9));
        assert_eq!(config.php.len(), 2);
        assert_eq!(config.http.max_body_size.0, 2 << 20);
        assert_eq!(config.http.max_headers, 50);
        assert_eq!(config.env["A"], "all");
        let debug = &config.pool["debug"];
        assert_eq!(
            (debug.workers, debug.engine.as_deref()),
            (Some(3), Some("cgi"))
        );
        let routes: Vec<_> = config.route.iter().map(|rule| &rule.prefix).collect();
        assert_eq!(routes, [&Some("/own".to_owned()), &Some("/all".to_owned())]);

        assert!(other.is_default && other.hosts.is_empty());
        assert_eq!(other.name, "default");
        assert_eq!(other.config.engine.workers, Some(4));
        assert!(other.config.site.htaccess && other.config.route.len() == 1);
    }

    #[test]
    fn single_site_stays_in_the_configuration() {
        let mut table = toml::from_str("[site]\nroot = 'web'").unwrap();
        assert!(take(&mut table).unwrap().is_empty());
        let config = Config::deserialize(Value::Table(table)).unwrap();
        assert_eq!(config.site.root.as_deref(), Some("web".as_ref()));
    }

    #[test]
    fn invalid_site_is_rejected_with_the_remedy() {
        for (text, says) in [
            ("root = 'a'", "no `host`"),
            ("host = 'a.example:80'", "without scheme, port"),
            (
                "host = 'a'\ntls.certificate = 'a.pem'",
                "`tls` is for all sites",
            ),
            ("host = 'a'\ntelemetry.sampler = 'x'", "write [telemetry]"),
            ("host = 'a'\nwatch.poll = true", "write [watch]"),
            (
                "host = 'a'\naccess_log.format = 'off'",
                "write [access_log]",
            ),
            (
                "host = 'a'\nhttp.listen = ':80'",
                "`http.listen` is for all sites",
            ),
            ("host = 'a'\nrot = 'a'", "unknown field `rot`"),
            ("host = 'a'\nengine.name = 'rewinde'", "rewind"),
            ("host = 'a'\nname = 'a b'", "`name` is \"a b\""),
            (
                "host = ['a', 'b']\n[[site]]\nname = 'c'\nhost = 'B'",
                "number 1 and number 2 both have the host b",
            ),
            ("host = ['a', 'A']", "has the host a twice"),
            (
                "host = 'a'\n[[site]]\nname = 'a'\nhost = 'b'",
                "both have the name a",
            ),
            (
                "default = true\n[[site]]\nhost = 'a'\ndefault = true",
                "both are the default",
            ),
        ] {
            let error = sites(&format!("[[site]]\n{text}")).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(says), "{says}: {error}");
            assert!(error.contains("[[site]] number"), "{error}");
        }
        assert!(sites("site = []").is_err());
    }

    #[test]
    fn error_of_a_file_names_the_line_of_its_site() {
        let line = |text: &str| {
            let error = toml::from_str::<Config>(text).unwrap_err();
            let start = start_of(error.message(), text).unwrap();
            text[..start].matches('\n').count() + 1
        };
        let first = "[log]\n\n[[site]]\nhost = 'a'\n[[site.route]]\nprefix = '/a'\n";
        assert_eq!(
            line(&format!("{first}\n[[site]]\nrot = 'x'\nhost = 'b'\n")),
            8
        );
        assert_eq!(
            line(&format!(
                "{first}[[site]]\nhost = 'b'\nengine.workers = 'x'\n"
            )),
            7
        );
        assert_eq!(line("[[site]]\nrot = 'x'\n[[site]]\nhost = 'a'\n"), 1);
        let inline = "site = [\n  { host = 'a' },\n  { host = 'b', rot = 'x' },\n]";
        assert_eq!(line(inline), 3);
        assert_eq!(start_of("unknown field `rot`", first), None);
    }

    #[test]
    fn error_of_a_file_names_the_site() {
        let dir = tempfile::tempdir().unwrap();
        let load = |text: &str| {
            std::fs::write(dir.path().join("surus.toml"), text).unwrap();
            let none = std::iter::empty();
            super::super::load(dir.path(), None, none, None).map(|loaded| loaded.config)
        };
        let error = load("\n[[site]]\nhost = 'a'\n\n[[site]]\nhost = 'b'\ntls.key = 'k'\n");
        let error = format!("{:#}", error.unwrap_err());
        assert!(
            error.contains("[[site]] number 2: `tls` is") && error.contains("surus.toml:5:"),
            "{error}"
        );
        let config = load("[[site]]\nhost = 'a'\nproject = 'b'\n").unwrap();
        assert_eq!(config.sites[0].project, Some(dir.path().join("b")));
        let variable = [("SURUS_SITE_ROOT".to_owned(), "x".to_owned())].into_iter();
        let error = super::super::load(dir.path(), None, variable, None).unwrap_err();
        assert!(format!("{error:#}").contains("[[site]]"), "{error:#}");
    }
}
