//! Loads the configuration: default < file < environment < command line.

pub mod env;
mod file;
pub mod reread;
pub mod roadrunner;
pub mod sites;
mod type_error;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use self::reread::ConfigOrigin;
use self::sites::SiteConfig;
use crate::app::detect::DetectedApplication;
use crate::app::site;
use crate::deploy;
use crate::engines;
use crate::fronts::address::Address;
use crate::fronts::http::tls::acme::settings::Domain;
use crate::fronts::{admin, http, lambda, queue};
use crate::observe::{log, traces};
use crate::package;

/// All settings, composed of each module's `Settings`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    #[serde(deserialize_with = "sites::one_or_several")]
    pub site: site::Settings,
    /// The `[[site]]` tables. Each has a configuration of its own.
    #[serde(skip)]
    pub sites: Vec<SiteConfig>,
    pub http: http::Settings,
    pub tls: http::tls::Settings,
    pub acme: http::tls::acme::Settings,
    pub compress: crate::app::compression::Settings,
    pub x_sendfile: crate::app::x_sendfile::Settings,
    pub error_pages: crate::app::error_pages::Settings,
    pub engine: engines::Settings,
    /// More pools of PHP processes, by name, for the requests of a `[[route]]`.
    #[serde(deserialize_with = "pools")]
    pub pool: BTreeMap<String, PoolSettings>,
    /// php.ini entries that override the file.
    pub php: BTreeMap<String, IniValue>,
    /// Environment variables of the PHP processes.
    #[serde(deserialize_with = "variables")]
    pub env: BTreeMap<String, String>,
    pub route: Vec<site::routes::RouteRule>,
    pub log: log::Settings,
    pub access_log: http::request::access_log::Settings,
    pub admin: admin::Settings,
    pub telemetry: traces::Settings,
    pub lambda: lambda::Settings,
    /// What the application is, for the choice of a boot script.
    #[serde(skip)]
    pub application: DetectedApplication,
    pub work: queue::Settings,
    /// The queues of `surus work`.
    pub queue: Vec<queue::Queue>,
    /// What `surus work` runs at certain times.
    pub schedule: Vec<queue::Schedule>,
    pub package: package::Settings,
    pub watch: crate::app::watch::Settings,
    /// The function that `surus lambda deploy` creates.
    pub deploy: deploy::settings::Settings,
}

/// What a pool sets differently from `[engine]`, `[php]` and `[env]`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolSettings {
    /// The name of an engine.
    #[serde(deserialize_with = "engines::known")]
    pub engine: Option<String>,
    /// PHP processes.
    #[serde(deserialize_with = "engines::workers_of")]
    pub workers: Option<usize>,
    /// In place of `workers`: the least and the most PHP processes.
    #[serde(deserialize_with = "engines::min_workers_of")]
    pub min_workers: Option<usize>,
    #[serde(deserialize_with = "engines::workers_of")]
    pub max_workers: Option<usize>,
    /// The PHP file to boot.
    pub script: Option<PathBuf>,
    /// On `roadrunner`: the arguments of the worker script.
    pub script_args: Option<Vec<String>>,
    /// php.ini entries in addition to `[php]`.
    pub php: BTreeMap<String, IniValue>,
    /// Environment variables in addition to `[env]`.
    #[serde(deserialize_with = "variables")]
    pub env: BTreeMap<String, String>,
}

/// Checks the names of pools. With `[[site]]`, the site's name and a slash come before them.
fn pools<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, PoolSettings>, D::Error> {
    let pools = BTreeMap::<String, PoolSettings>::deserialize(from)?;
    for (name, pool) in &pools {
        if name.contains('/') {
            return Err(D::Error::custom(format_args!(
                "{name:?} cannot be the name of a pool: names have no `/`"
            )));
        }
        if let Some(other) = pool.engine.as_ref().filter(|engine| *engine != name)
            && engines::find(name).is_ok()
        {
            return Err(D::Error::custom(format_args!(
                "the pool {name:?} cannot have the engine {other:?}: its name is that of an engine"
            )));
        }
    }
    Ok(pools)
}

/// Checks that a process's environment can hold these variables. Errors do not repeat values, which
/// may be secrets.
fn variables<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let variables = BTreeMap::<String, String>::deserialize(from)?;
    for (name, value) in &variables {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(D::Error::custom(format_args!(
                "{name:?} cannot be the name of an environment variable: \
                 names have neither `=` nor NUL bytes"
            )));
        }
        if value.contains('\0') {
            return Err(D::Error::custom(format_args!(
                "the environment variable {name} has a NUL byte in its value, which is not allowed"
            )));
        }
    }
    Ok(variables)
}

/// A php.ini value as TOML writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a string, number, true, false or a list of them; a name with dots needs \
                 quotes, as in \"opcache.enable\" = 1"
)]
pub enum IniValue {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    /// The values of an entry that occurs more than once, such as `extension`.
    List(Vec<IniValue>),
}

impl IniValue {
    /// The values as php.ini writes them, one for each entry.
    pub fn entries(&self) -> Vec<String> {
        match self {
            IniValue::Bool(on) => vec![if *on { "1" } else { "0" }.to_string()],
            IniValue::Integer(number) => vec![number.to_string()],
            IniValue::Float(number) => vec![number.to_string()],
            IniValue::Text(text) => vec![text.clone()],
            IniValue::List(values) => values.iter().flat_map(IniValue::entries).collect(),
        }
    }

    /// Sets `name`. Extensions add up; any other entry replaces the one before, as with `php -d`.
    pub fn set(php: &mut BTreeMap<String, IniValue>, name: &str, value: IniValue) {
        match php.get_mut(name) {
            Some(before) if matches!(name, "extension" | "zend_extension") => {
                let first = std::mem::replace(before, IniValue::List(Vec::new()));
                *before = IniValue::List(vec![first, value]);
            }
            _ => {
                php.insert(name.to_string(), value);
            }
        }
    }
}

/// The pool of jobs, and that of a Laravel application's schedule, which does not wait for jobs. No
/// route leads to them.
pub const WORK_POOL: &str = "work";
pub const SCHEDULE_POOL: &str = "schedule";

impl Config {
    /// The configuration as this pool sees it; `None` if there is no such pool.
    pub fn for_pool(&self, name: &str) -> Option<Config> {
        let pool = self.pool.get(name)?.clone();
        let mut config = self.clone();
        let engine = &mut config.engine;
        let named = engines::find(name).ok().map(|_| name.to_string());
        engine.name = pool.engine.or(named).or(engine.name.take());
        // The number or the bounds, whichever the pool sets.
        if let Some(count) = pool.workers {
            engine.fix_workers(count);
        }
        if pool.min_workers.is_some() || pool.max_workers.is_some() {
            engine.workers = pool.workers;
            engine.min_workers = pool.min_workers.or(engine.min_workers);
            engine.max_workers = pool.max_workers.or(engine.max_workers);
        }
        if pool.script.is_some() {
            config.application = DetectedApplication::Own;
        }
        engine.script = pool.script.or(engine.script.take());
        if let Some(arguments) = pool.script_args {
            engine.script_args = arguments;
        }
        config.php.extend(pool.php);
        config.env.extend(pool.env);
        Some(config)
    }

    /// Makes the domains of `[acme]` reachable: at ports 80 and 443, unless the configuration names
    /// others, and by redirects.
    fn listen_for_domains(&mut self, has_listen: bool) {
        if self.acme.domains.is_empty() {
            return;
        }
        for site in &mut self.sites {
            // The hosts of other sites may have no certificate.
            if !site.config.acme.domains.is_empty() {
                site.config.http.redirect_to_https.get_or_insert(true);
            }
        }
        if self.acme.domains.iter().all(Domain::is_local) {
            return self.listen_locally(has_listen);
        }
        // A socket of IPv6 takes both kinds of connections, unless the system says otherwise.
        let only_v6 = std::fs::read("/proc/sys/net/ipv6/bindv6only").ok();
        let any = |port| {
            let v6 = only_v6.iter().map(|_| ([0_u16; 8], port).into());
            let v4 = (only_v6.as_deref() != Some(b"0\n")).then(|| ([0; 4], port).into());
            v6.chain(v4).map(Address::Tcp).collect()
        };
        if !has_listen {
            self.http.listen = any(80);
        }
        if self.tls.listen.is_empty() {
            self.tls.listen = any(443);
        }
        self.http.redirect_to_https.get_or_insert(true);
    }

    /// Redirects all requests without TLS if clients need a certificate, unless the configuration
    /// says otherwise.
    fn redirect_for_client_certificates(&mut self) {
        if self.tls.listen.is_empty() || !self.tls.requires_client_certificate() {
            return;
        }
        let sites = self.sites.iter_mut().map(|site| &mut site.config.http);
        for http in sites.chain([&mut self.http]) {
            http.redirect_to_https.get_or_insert(true);
        }
    }

    /// Listens for names of this machine: at ports of the web if this process may open them.
    fn listen_locally(&mut self, has_listen: bool) {
        let least = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        let least: Option<u16> = least.ok().and_then(|text| text.trim().parse().ok());
        let (http, https) = match surus_sys::process::is_root() || least.is_some_and(|it| it <= 80)
        {
            true => (80, 443),
            false => (8080, 8443),
        };
        let loopback = |port| {
            let addresses = std::fs::read_to_string("/proc/net/if_inet6");
            let v6 = addresses.is_ok_and(|addresses| has_v6_loopback(&addresses));
            let v6 = v6.then(|| (std::net::Ipv6Addr::LOCALHOST, port).into());
            let v4 = (std::net::Ipv4Addr::LOCALHOST, port).into();
            v6.into_iter().chain([v4]).map(Address::Tcp).collect()
        };
        if !has_listen {
            self.http.listen = loopback(http);
        }
        if self.tls.listen.is_empty() {
            self.tls.listen = loopback(https);
        }
        self.http.redirect_to_https.get_or_insert(true);
    }
}

/// Whether `::1` is among the addresses of `/proc/net/if_inet6`. Many containers have IPv6 without
/// it, and there a listener at it would stop the start.
fn has_v6_loopback(addresses: &str) -> bool {
    let loopback = format!("{:032x} ", u128::from(std::net::Ipv6Addr::LOCALHOST));
    addresses.lines().any(|line| line.starts_with(&loopback))
}

/// The configuration of a project.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// The configuration file, if one was read.
    pub file: Option<PathBuf>,
    /// The same, open.
    pub opened: Option<File>,
    /// The project's `surus.toml`, if another file was read in its place.
    pub unread: Option<PathBuf>,
    /// RoadRunner's configuration, if it was read.
    pub roadrunner: Option<roadrunner::Settings>,
    /// How all of that was read.
    pub origin: ConfigOrigin,
    /// A setting of the configuration file whose value may be a secret.
    pub secret: Option<&'static str>,
    /// Whether `http.listen` is set.
    has_listen: bool,
}

impl Loaded {
    /// Sets what the command line sets. It replaces addresses and domains of the configuration.
    pub fn serve(&mut self, listen: &[Address], domains: &[Domain]) {
        let config = &mut self.config;
        if !listen.is_empty() {
            config.http.listen = listen.to_vec();
        }
        if !domains.is_empty() {
            config.acme.domains = domains.to_vec();
            sites::give_domains(&mut config.sites, domains);
        }
        config.listen_for_domains(self.has_listen || !listen.is_empty());
        config.redirect_for_client_certificates();
    }
}

/// Reads `file`, or `surus.toml` in the project if it exists, then the environment. `engine` is the
/// name on the command line. With `roadrunner`, `.rr.yaml` sets what these do not set.
pub fn load(
    project: &Path,
    file: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
    engine: Option<&str>,
) -> anyhow::Result<Loaded> {
    // The file may be a pipe: `--config <(...)`.
    load_by(|path| File::open(path), project, file, environment, engine)
}

/// The same, with the file that `open` opens.
fn load_by(
    open: impl FnOnce(&Path) -> io::Result<File>,
    project: &Path,
    file: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
    engine: Option<&str>,
) -> anyhow::Result<Loaded> {
    let mut origin = ConfigOrigin {
        project: project.to_path_buf(),
        named: file.map(std::path::absolute).transpose()?,
        engine: engine.map(str::to_owned),
        ..ConfigOrigin::default()
    };
    let default = Some(project.join("surus.toml")).filter(|default| default.is_file());
    let (file, unread) = match file {
        Some(file) => {
            let unread = default.filter(|default| !is_same_file(file, default));
            (Some(file.to_path_buf()), unread)
        }
        None => (default, None),
    };
    let (mut table, opened) = match &file {
        Some(path) => file::read(path, open).map(|(table, opened)| (table, Some(opened)))?,
        None => Default::default(),
    };
    let secret = file::secret_in(&table);
    env::apply(&mut table, environment)?;
    let named = table.get("engine").and_then(|engine| engine.get("name"));
    let engine = engine.or(named.and_then(toml::Value::as_str));
    let mut roadrunner = match engine {
        Some("roadrunner") => roadrunner::read(project)?,
        _ => None,
    };
    if let Some(settings) = &mut roadrunner {
        settings.merge_into(&mut table);
    }
    origin.table = table.clone();
    let of_roadrunner = roadrunner.as_ref().map(|settings| &settings.file);
    origin.files = file.iter().chain(of_roadrunner).cloned().collect();
    let is_regular = |file: &File| file.metadata().is_ok_and(|found| found.is_file());
    origin.is_lasting = opened.as_ref().is_none_or(is_regular);
    let http = table.get("http");
    let has_listen = http.is_some_and(|http| http.get("listen").is_some());
    let mut sites = sites::take(&mut table)?;
    let mut config = Config::deserialize(table).context("the configuration as a whole")?;
    config.acme.domains = sites::all_domains(&config.acme.domains, &sites);
    sites::give_domains(&mut sites, &config.acme.domains);
    for site in &mut sites {
        site.project = site.project.take().map(|directory| project.join(directory));
    }
    let logs = [&config.access_log.file, &config.log.file];
    let logs = logs.into_iter().flatten().map(|log| project.join(log));
    let of_sites = sites.iter().filter_map(|site| {
        let log = site.config.access_log.file.as_ref()?;
        Some(site.directory(project).join(log))
    });
    let logs: Vec<_> = logs.chain(of_sites).collect();
    let configs = sites.iter_mut().map(|site| &mut site.config);
    for config in configs.chain([&mut config]) {
        config.site.configuration.clone_from(&file);
        config.site.logs.clone_from(&logs);
    }
    config.sites = sites;
    Ok(Loaded {
        config,
        file,
        opened,
        unread,
        roadrunner,
        origin,
        secret,
        has_listen,
    })
}

/// Whether two paths lead to one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let found = |path: &Path| {
        let file = path.metadata().ok()?;
        Some((file.dev(), file.ino()))
    };
    found(one).is_some_and(|one| Some(one) == found(other))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
