//! Reads the commands of `.rr.yaml` that start workers.

use anyhow::{Result, bail};
use toml::{Table, Value};

use super::Settings;

/// The commands of the server and of its pools.
#[derive(Default)]
pub struct Commands {
    /// `server.command`, for pools without a command.
    pub server: Option<Command>,
    /// `http.pool.command`.
    pub http: Option<Command>,
    /// `jobs.pool.command`.
    pub jobs: Option<Command>,
    /// Why `jobs.pool.command` cannot be run.
    pub unsupported_jobs: Option<String>,
}

/// `php`, its options, the script and its arguments.
#[derive(Clone, PartialEq)]
pub struct Command {
    /// The path of php, if the command has one.
    php: Option<String>,
    script: String,
    arguments: Vec<Value>,
    /// The entries of `-d`.
    ini: Table,
}

impl Commands {
    /// Sets the workers of requests, and those of jobs if they differ.
    pub fn apply(self, settings: &mut Settings) {
        let of_jobs = match self.jobs {
            Some(_) => "jobs.pool.command",
            None => "server.command",
        };
        let http = self.http.or_else(|| self.server.clone());
        let jobs = self.jobs.or(self.server);
        let jobs = jobs.filter(|jobs| Some(jobs) != http.as_ref());
        if let (Some(http), Some(jobs)) = (&http, &jobs) {
            // All pools have the same php.
            if jobs.php != http.php {
                let php = jobs.php.as_deref().unwrap_or("php");
                settings.ignored.push(format!("{of_jobs}: {php}"));
            }
            // The entries of [pool.work] are additions to those of requests.
            let added = http.ini.keys().filter(|name| !jobs.ini.contains_key(*name));
            let added = added.map(|name| format!("{of_jobs} without -d {name}"));
            settings.ignored.extend(added);
        }
        let first = http.as_ref().or(jobs.as_ref());
        if let Some(php) = first.and_then(|first| first.php.clone()) {
            settings.set(&["engine", "php_cli"], php);
        }
        if let Some(http) = http {
            settings.set(&["engine", "script"], http.script);
            settings.set(&["engine", "script_args"], http.arguments);
            for (name, value) in http.ini {
                settings.set(&["php", &name], value);
            }
        }
        if let Some(jobs) = jobs {
            settings.set(&["pool", "work", "script"], jobs.script);
            settings.set(&["pool", "work", "script_args"], jobs.arguments);
            if !jobs.ini.is_empty() {
                settings.set(&["pool", "work", "php"], Value::Table(jobs.ini));
            }
        }
    }
}

impl Command {
    /// Reads the words of a command. None if there are none.
    pub fn read(words: &[String]) -> Result<Option<Command>> {
        let mut words = words.iter().map(|word| word.trim_matches(['"', '\'']));
        let Some(program) = words.next() else {
            return Ok(None);
        };
        let name = program.rsplit('/').next().unwrap_or_default();
        if !name.starts_with("php") {
            bail!("`{program}` is not supported; Surus starts `php SCRIPT` only");
        }
        let mut script = None;
        let mut arguments = Vec::new();
        let mut ini = Table::new();
        let mut set = |entry: &str| {
            let (name, value) = entry.split_once('=').unwrap_or((entry, "1"));
            ini.insert(name.into(), value.into());
        };
        while let Some(word) = words.next() {
            match (script, word) {
                (Some(_), word) => arguments.push(Value::from(word)),
                (None, "-d") => set(words.next().unwrap_or_default()),
                (None, "-f" | "--") => {}
                (None, word) if word.starts_with("-d") => set(&word[2..]),
                (None, word) if word.starts_with('-') => {
                    bail!("the option `{word}` of php is not supported; only `-d` is")
                }
                (None, word) => script = Some(word),
            }
        }
        let Some(script) = script else {
            bail!("the command names no script");
        };
        Ok(Some(Command {
            php: program.contains('/').then(|| program.into()),
            script: script.into(),
            arguments,
            ini,
        }))
    }
}
