//! Reads `.rr.yaml`, RoadRunner's configuration, for the engine `roadrunner`.

mod command;
mod pipelines;
mod yaml;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use toml::{Table, Value};
use tracing::{info, warn};

use self::command::{Command, Commands};
use self::pipelines::Pipelines;
use self::yaml::Yaml;

/// What a `.rr.yaml` sets.
#[derive(Debug, Default)]
pub struct Settings {
    pub file: PathBuf,
    /// The same, open.
    pub opened: Option<std::fs::File>,
    /// In the form of `surus.toml`.
    pub table: Table,
    /// What has no counterpart.
    pub ignored: Vec<String>,
    /// Surus's time limits that apply because no file sets one. RoadRunner has none then. Known
    /// after [`Settings::merge_into`].
    pub own_limits: Vec<&'static str>,
    /// The file has `http`.
    serves_http: bool,
}

/// The names that RoadRunner and its users give the file.
const NAMES: [&str; 2] = [".rr.yaml", ".rr.yml"];

/// Reads the file of a project, if there is one.
pub fn read(project: &Path) -> Result<Option<Settings>> {
    let files = NAMES.map(|name| project.join(name));
    let Some(file) = files.into_iter().find(|file| file.is_file()) else {
        return Ok(None);
    };
    let (text, opened) = surus_sys::regular_file::open(&file)
        .and_then(super::file::text)
        .with_context(|| format!("cannot read {}", file.display()))?;
    let variable = |name: &str| std::env::var(name).ok();
    let mut settings = parse(&text, &variable).with_context(|| format!("{}", file.display()))?;
    (settings.file, settings.opened) = (file, Some(opened));
    Ok(Some(settings))
}

/// Sets what `table` does not set.
fn apply(table: &mut Table, defaults: Table) {
    for (name, value) in defaults {
        match (table.get_mut(&name), value) {
            (Some(Value::Table(own)), Value::Table(defaults)) => apply(own, defaults),
            (Some(_), _) => {}
            (None, value) => {
                table.insert(name, value);
            }
        }
    }
}

fn parse(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Settings> {
    let mut settings = Settings::default();
    // RoadRunner gives its workers all of its environment.
    settings.set(&["engine", "clear_env"], false);
    let Yaml::Map(sections) = yaml::parse(text)? else {
        bail!("expected `server:` with the command of the worker");
    };
    let mut visit = Visit {
        settings: &mut settings,
        variable,
        serves_files: false,
        limits_files: false,
        directory: None,
        trusts_proxies: false,
        networks: Vec::new(),
        pipelines: Pipelines::default(),
        commands: Commands::default(),
    };
    for (name, value) in &sections {
        visit.entry(name, value)?;
    }
    let serves_files = visit.serves_files && !visit.limits_files;
    let directory = visit.directory;
    let commands = visit.commands;
    let networks = (visit.trusts_proxies).then_some(visit.networks);
    let (mut queues, ignored) = visit.pipelines.queues();
    settings.ignored.extend(ignored);
    if let Some(why) = &commands.unsupported_jobs {
        queues.clear();
        let ignored = format!("{why} (so no pipeline is served)");
        settings.ignored.push(ignored);
    }
    commands.apply(&mut settings);
    settings.serves_http = sections.iter().any(|(name, _)| name == "http");
    if !queues.is_empty() {
        settings.table.insert("queue".into(), queues.into());
    }
    // Only that middleware reads the networks.
    if let Some(networks) = networks.filter(|networks| !networks.is_empty()) {
        settings.set(&["http", "trusted_proxies"], networks);
    }
    match (serves_files, directory) {
        (true, Some(directory)) => settings.set(&["site", "root"], directory),
        // Without a directory, RoadRunner switches the middleware off. Without it, every request is
        // the worker's.
        (true, None) | (false, _) => settings.set(&["site", "files"], false),
    }
    settings.ignored.sort();
    Ok(settings)
}

impl Settings {
    /// Sets what `table` does not set, and finds the time limits that neither sets.
    pub fn merge_into(&mut self, table: &mut Table) {
        // Queues of `table` replace those of the file.
        let has_queues = table.contains_key("queue");
        apply(table, std::mem::take(&mut self.table));
        let http = table.get("http");
        if self.serves_http && http.and_then(|http| http.get("request_timeout")).is_none() {
            self.own_limits.push("http.request_timeout");
        }
        let queues = table.get("queue").and_then(Value::as_array);
        let has_no_limit = |queue: &Value| queue.get("timeout").is_none();
        if !has_queues && queues.is_some_and(|queues| queues.iter().any(has_no_limit)) {
            self.own_limits.push("queue.timeout");
        }
    }

    /// Logs that the file was read, and what of it is ignored.
    pub fn log(&self) {
        info!(file = %self.file.display(), "configuration of RoadRunner read");
        if !self.ignored.is_empty() {
            let settings = self.ignored.join(", ");
            warn!(
                settings,
                "RoadRunner's settings without a counterpart are ignored"
            );
        }
        if !self.own_limits.is_empty() {
            let settings = self.own_limits.join(", ");
            warn!(
                settings,
                remedy = "set http.request_timeout for requests, and \
                          jobs.pool.supervisor.exec_ttl for jobs",
                "RoadRunner's configuration sets no time limit; those of Surus apply"
            );
        }
    }

    fn set(&mut self, path: &[&str], value: impl Into<Value>) {
        let Some((last, sections)) = path.split_last() else {
            return;
        };
        let mut table = &mut self.table;
        for section in sections {
            let section = table
                .entry(*section)
                .or_insert_with(|| Value::Table(Table::new()));
            let Value::Table(inner) = section else { return };
            table = inner;
        }
        table.insert((*last).to_string(), value.into());
    }
}

struct Visit<'a> {
    settings: &'a mut Settings,
    variable: &'a dyn Fn(&str) -> Option<String>,
    /// The middleware `static` is on.
    serves_files: bool,
    /// Some files of the directory are not for clients.
    limits_files: bool,
    /// The middleware `proxy_ip_parser` is on, and `http.trusted_subnets`.
    trusts_proxies: bool,
    networks: Vec<Value>,
    pipelines: Pipelines,
    commands: Commands,
    /// `http.static.dir`.
    directory: Option<String>,
}

impl Visit<'_> {
    /// Reads the value at a path such as `http.pool.num_workers`.
    fn entry(&mut self, path: &str, value: &Yaml) -> Result<()> {
        self.value(path, value).with_context(|| path.to_string())
    }

    fn value(&mut self, path: &str, value: &Yaml) -> Result<()> {
        match path {
            "version" => {}
            "server.command" => self.commands.server = Command::read(&self.words(value))?,
            "http.pool.command" => self.commands.http = Command::read(&self.words(value))?,
            "jobs.pool.command" => match Command::read(&self.words(value)) {
                Ok(command) => self.commands.jobs = command,
                // Pages need no jobs.
                Err(error) => self.commands.unsupported_jobs = Some(format!("{path}: {error:#}")),
            },
            "server.env" => self.env(value),
            "server.user" => self.text(&["engine", "user"], value),
            "server.group" => self.text(&["engine", "group"], value),
            // Surus chooses the address.
            "server.relay" => {
                let relay = self.scalar(value).unwrap_or_default();
                let kind = relay.split(':').next().unwrap_or_default();
                if ["unix", "tcp"].contains(&kind) {
                    self.settings.set(&["engine", "relay"], kind);
                }
            }
            "server.relay_timeout" => self.time(&["engine", "boot_timeout"], value)?,
            "http.address" => {
                if let Some(address) = self.scalar(value) {
                    let listen = Value::Array(vec![address_of(&address).into()]);
                    self.settings.set(&["http", "listen"], listen);
                }
            }
            "http.raw_body" => {
                let text = self.scalar(value).unwrap_or_default();
                let is_raw = text.eq_ignore_ascii_case("true");
                self.settings
                    .set(&["engine", "roadrunner_raw_body"], is_raw);
            }
            "http.uploads.forbid" => self.extensions("roadrunner_uploads_forbid", value),
            "http.uploads.allow" => self.extensions("roadrunner_uploads_allow", value),
            "http.max_request_size" => self.size(&["http", "max_body_size"], value)?,
            "http.trusted_subnets" => {
                let networks = self.words(value).into_iter().map(Value::from);
                self.networks = networks.collect();
            }
            "http.middleware" => {
                for name in self.words(value) {
                    match name.as_str() {
                        "static" => self.serves_files = true,
                        "gzip" => self.settings.set(&["compress", "enabled"], true),
                        "proxy_ip_parser" => self.trusts_proxies = true,
                        "sendfile" | "http_metrics" => {}
                        other => self.ignore(&format!("{path}: {other}")),
                    }
                }
            }
            // Surus sends no such file in any case. Other lists have no counterpart, and files that
            // RoadRunner would not send must not be sent.
            "http.static.forbid" | "http.static.allow" => {
                let words = self.words(value);
                let is_kept = |word: &String| [".php", ".htaccess"].contains(&word.as_str());
                if path.ends_with("allow") || !words.iter().all(is_kept) {
                    self.limits_files = true;
                    self.ignore(&format!("{path} (so no file is sent)"));
                }
            }
            "http.static.dir" => self.directory = self.scalar(value),
            "http.pool.num_workers" => self.number(&["engine", "workers"], value)?,
            "http.pool.max_jobs" => self.number(&["engine", "max_requests"], value)?,
            "http.pool.max_queue_size" => self.number(&["engine", "max_queue"], value)?,
            "http.pool.allocate_timeout" => self.time(&["engine", "boot_timeout"], value)?,
            "http.pool.supervisor.exec_ttl" => {
                self.time(&["http", "request_timeout"], value)?;
            }
            "http.pool.supervisor.max_worker_memory" => {
                self.size(&["engine", "max_memory"], value)?;
            }
            "amqp.addr" => self.pipelines.amqp = self.scalar(value),
            "jobs.consume" => self.pipelines.consumed = Some(self.words(value)),
            "jobs.pool.num_workers" => self.number(&["pool", "work", "workers"], value)?,
            "jobs.pool.supervisor.exec_ttl" => {
                let text = self.scalar(value).unwrap_or_default();
                self.pipelines.timeout = duration(&text)?;
            }
            "jobs.pipelines" => {
                let variable = self.variable;
                let Yaml::Map(pipelines) = value else {
                    return Ok(());
                };
                for (name, pipeline) in pipelines {
                    let scalar = |value: &Yaml| scalar(value, variable);
                    self.pipelines.add(name, pipeline, scalar);
                }
            }
            "server"
            | "http"
            | "http.pool"
            | "http.pool.supervisor"
            | "http.static"
            | "http.uploads"
            | "jobs"
            | "jobs.pool"
            | "jobs.pool.supervisor"
            | "amqp" => {
                if let Yaml::Map(entries) = value {
                    for (name, value) in entries {
                        self.entry(&format!("{path}.{name}"), value)?;
                    }
                }
            }
            _ => self.ignore(path),
        }
        Ok(())
    }

    fn ignore(&mut self, path: &str) {
        self.settings.ignored.push(path.to_string());
    }

    /// A scalar with its environment variables.
    fn scalar(&self, value: &Yaml) -> Option<String> {
        scalar(value, self.variable)
    }

    /// The items of a list, or the words of a text.
    fn words(&self, value: &Yaml) -> Vec<String> {
        match value {
            Yaml::List(items) => items.iter().filter_map(|item| self.scalar(item)).collect(),
            value => {
                let text = self.scalar(value).unwrap_or_default();
                text.split_whitespace().map(str::to_string).collect()
            }
        }
    }

    /// Extensions of uploaded files.
    fn extensions(&mut self, setting: &str, value: &Yaml) {
        if *value != Yaml::Null {
            let words = self.words(value).into_iter().map(Value::from);
            let words: Vec<_> = words.collect();
            self.settings.set(&["engine", setting], words);
        }
    }

    /// A map of variables, or a list of such maps.
    fn env(&mut self, value: &Yaml) {
        match value {
            Yaml::Map(entries) => {
                for (name, value) in entries {
                    let value = self.scalar(value).unwrap_or_default();
                    self.settings.set(&["env", name], value);
                }
            }
            Yaml::List(items) => items.iter().for_each(|item| self.env(item)),
            Yaml::Null | Yaml::Scalar(_) => {}
        }
    }

    fn text(&mut self, path: &[&str], value: &Yaml) {
        if let Some(text) = self.scalar(value).filter(|text| !text.is_empty()) {
            self.settings.set(path, text);
        }
    }

    /// A number; 0 stands for the default.
    fn number(&mut self, path: &[&str], value: &Yaml) -> Result<()> {
        let number = self.positive(value)?;
        if number > 0 {
            self.settings.set(path, number);
        }
        Ok(())
    }

    /// Megabytes; 0 stands for the default.
    fn size(&mut self, path: &[&str], value: &Yaml) -> Result<()> {
        let megabytes = self.positive(value)?;
        if megabytes > 0 {
            self.settings.set(path, format!("{megabytes}M"));
        }
        Ok(())
    }

    fn positive(&self, value: &Yaml) -> Result<i64> {
        let text = self.scalar(value).unwrap_or_default();
        if text.is_empty() {
            return Ok(0);
        }
        let number = text.parse::<i64>().ok().filter(|number| *number >= 0);
        number.with_context(|| format!("`{text}` is not a number"))
    }

    /// A duration of Go, `60s` or `1m30s`; 0 stands for the default.
    fn time(&mut self, path: &[&str], value: &Yaml) -> Result<()> {
        let text = self.scalar(value).unwrap_or_default();
        if let Some(time) = duration(&text)? {
            self.settings.set(path, time);
        }
        Ok(())
    }
}

/// A scalar with its environment variables.
fn scalar(value: &Yaml, variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    match value {
        Yaml::Scalar(text) => Some(expand(text, variable)),
        Yaml::Null | Yaml::List(_) | Yaml::Map(_) => None,
    }
}

/// A duration of Go as `surus.toml` has it. None for 0, which stands for the default.
fn duration(text: &str) -> Result<Option<String>> {
    let ms = milliseconds(text).with_context(|| format!("`{text}` is not a duration"))?;
    Ok((ms > 0).then(|| format!("{ms}ms")))
}

/// Go's durations: numbers with units, one after another.
fn milliseconds(text: &str) -> Option<u64> {
    let mut sum = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() || rest == "0" {
        return Some(0);
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        sum += number
            * match &rest[..unit] {
                "ms" => 1.0,
                "s" => 1000.0,
                "m" => 60_000.0,
                "h" => 3_600_000.0,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    Some(sum as u64)
}

/// An address as `listen` takes it: RoadRunner's may lack the host, or name it.
fn address_of(address: &str) -> String {
    let address = address.trim_start_matches("tcp://");
    if let Some(path) = address.strip_prefix("unix://") {
        return format!("unix:{path}");
    }
    match address.split_once(':') {
        Some(("", port)) => format!("0.0.0.0:{port}"),
        Some(("localhost", port)) => format!("127.0.0.1:{port}"),
        _ => address.to_string(),
    }
}

/// Replaces `${NAME}`, `${NAME:-default}` and `$NAME`.
fn expand(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded += before;
        if let Some((inner, after)) = after
            .strip_prefix('{')
            .and_then(|after| after.split_once('}'))
        {
            let (name, default) = inner.split_once(":-").unwrap_or((inner, ""));
            let value = variable(name).filter(|value| !value.is_empty());
            expanded += &value.unwrap_or_else(|| default.to_string());
            rest = after;
            continue;
        }
        let end = after
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(after.len());
        match end {
            0 => expanded.push('$'),
            end => expanded += &variable(&after[..end]).unwrap_or_default(),
        }
        rest = &after[end..];
    }
    expanded + rest
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
