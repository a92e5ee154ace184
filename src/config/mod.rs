//! Loads the configuration: default < file < environment < command line.

pub mod env;
mod file;
pub mod roadrunner;
mod type_error;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::app::detect::Application;
use crate::app::site;
use crate::engines;
use crate::fronts::{admin, http, lambda, queue};
use crate::observe::log;
use crate::package;

/// All settings, composed of each module's `Settings`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub site: site::Settings,
    pub http: http::Settings,
    pub tls: http::tls::Settings,
    pub compress: crate::app::compression::Settings,
    pub x_sendfile: crate::app::x_sendfile::Settings,
    pub engine: engines::Settings,
    /// More pools of PHP processes, by name, for the requests of a `[[route]]`.
    pub pool: BTreeMap<String, Pool>,
    /// php.ini entries that override the file.
    pub php: BTreeMap<String, IniValue>,
    /// Environment variables of the PHP processes.
    #[serde(deserialize_with = "variables")]
    pub env: BTreeMap<String, String>,
    pub route: Vec<site::routes::Rule>,
    pub log: log::Settings,
    pub access_log: http::request::access_log::Settings,
    pub admin: admin::Settings,
    pub lambda: lambda::Settings,
    /// What the application is, for the choice of a boot script.
    #[serde(skip)]
    pub application: Application,
    pub work: queue::Settings,
    /// The queues of `surus work`.
    pub queue: Vec<queue::Queue>,
    pub package: package::Settings,
}

/// What a pool sets differently from `[engine]`, `[php]` and `[env]`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// The name of an engine.
    #[serde(deserialize_with = "engines::known")]
    pub engine: Option<String>,
    /// PHP processes.
    #[serde(deserialize_with = "engines::workers_of")]
    pub workers: Option<usize>,
    /// The PHP file to boot.
    pub script: Option<PathBuf>,
    /// php.ini entries in addition to `[php]`.
    pub php: BTreeMap<String, IniValue>,
    /// Environment variables in addition to `[env]`.
    #[serde(deserialize_with = "variables")]
    pub env: BTreeMap<String, String>,
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
#[serde(untagged)]
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

impl Config {
    /// The configuration as this pool sees it; `None` if there is no such pool.
    pub fn of_pool(&self, name: &str) -> Option<Config> {
        let pool = self.pool.get(name)?.clone();
        let mut config = self.clone();
        let engine = &mut config.engine;
        engine.name = pool.engine.or(engine.name.take());
        engine.workers = pool.workers.or(engine.workers);
        if pool.script.is_some() {
            config.application = Application::Own;
        }
        engine.script = pool.script.or(engine.script.take());
        config.php.extend(pool.php);
        config.env.extend(pool.env);
        Some(config)
    }
}

/// The configuration of a project.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// The configuration file, if one was read.
    pub file: Option<PathBuf>,
    /// The same, open.
    pub opened: Option<std::fs::File>,
    /// RoadRunner's configuration, if it was read.
    pub roadrunner: Option<roadrunner::Settings>,
}

/// Reads `file`, or `surus.toml` in the project if it exists, then the environment. `engine` is the
/// name on the command line. With `roadrunner`, `.rr.yaml` sets what these do not set.
pub fn load(
    project: &Path,
    file: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
    engine: Option<&str>,
) -> anyhow::Result<Loaded> {
    let default = project.join("surus.toml");
    let file = match file {
        Some(file) => Some(file.to_path_buf()),
        None => default.is_file().then_some(default),
    };
    let (mut table, opened) = match &file {
        Some(path) => file::read(path).map(|(table, opened)| (table, Some(opened)))?,
        None => Default::default(),
    };
    env::apply(&mut table, environment)?;
    let named = table.get("engine").and_then(|engine| engine.get("name"));
    let engine = engine.or(named.and_then(toml::Value::as_str));
    let mut roadrunner = match engine {
        Some("roadrunner") => roadrunner::read(project)?,
        _ => None,
    };
    if let Some(settings) = &mut roadrunner {
        roadrunner::apply(&mut table, std::mem::take(&mut settings.table));
    }
    let mut config = Config::deserialize(table).context("the configuration as a whole")?;
    config.site.configuration.clone_from(&file);
    Ok(Loaded {
        config,
        file,
        opened,
        roadrunner,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn repeated_extensions_add_up_and_other_entries_are_replaced() {
        let mut php = BTreeMap::new();
        for (name, value) in [
            ("extension", "a"),
            ("precision", "3"),
            ("extension", "b"),
            ("precision", "4"),
            ("extension", "c"),
        ] {
            IniValue::set(&mut php, name, IniValue::Text(value.into()));
        }
        assert_eq!(php["extension"].entries(), ["a", "b", "c"]);
        assert_eq!(php["precision"].entries(), ["4"]);
        let list: Config = toml::from_str("[php]\nextension = ['a', 'b']").unwrap();
        assert_eq!(list.php["extension"].entries(), ["a", "b"]);
    }
}
