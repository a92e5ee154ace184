//! How Surus is to run: default < file < environment < command line.

mod env;
mod file;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::engines;
use crate::fronts::{admin, http, site};
use crate::observe::log;

/// Everything that can be set, composed of everyone's settings.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub site: site::Settings,
    pub http: http::Settings,
    pub compress: http::compress::Settings,
    pub send_file: http::send_file::Settings,
    pub engine: engines::Settings,
    /// Entries of php.ini that override the file.
    pub php: BTreeMap<String, IniValue>,
    /// Environment variables of the PHP processes.
    pub env: BTreeMap<String, String>,
    pub route: Vec<site::route::Rule>,
    pub log: log::Settings,
    pub access_log: http::access::Settings,
    pub admin: admin::Settings,
}

/// A value of php.ini as TOML writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IniValue {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
}

impl std::fmt::Display for IniValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IniValue::Bool(true) => f.write_str("1"),
            IniValue::Bool(false) => f.write_str("0"),
            IniValue::Integer(number) => write!(f, "{number}"),
            IniValue::Float(number) => write!(f, "{number}"),
            IniValue::Text(text) => f.write_str(text),
        }
    }
}

/// The configuration of a project.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// The file that was read.
    pub file: Option<PathBuf>,
}

/// Reads `file`, or `surus.toml` in the project when there is one, then the environment.
pub fn load(
    project: &Path,
    file: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
) -> anyhow::Result<Loaded> {
    let default = project.join("surus.toml");
    let file = match file {
        Some(file) => Some(file.to_path_buf()),
        None => default.is_file().then_some(default),
    };
    let mut table = match &file {
        Some(path) => file::read(path)?,
        None => toml::Table::new(),
    };
    env::apply(&mut table, environment)?;
    let config = Config::deserialize(table).context("the configuration as a whole")?;
    Ok(Loaded { config, file })
}
