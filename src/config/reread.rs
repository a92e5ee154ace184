//! Reads the configuration again that a server uses, compares the two, and says which changes need
//! a restart.

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use toml::{Table, Value};

use super::{Loaded, env, load_by};

/// How a configuration was read, and its settings before defaults.
#[derive(Debug, Clone, Default)]
pub struct ConfigOrigin {
    pub(super) project: PathBuf,
    /// The file of the command line.
    pub(super) named: Option<PathBuf>,
    /// The engine of the command line.
    pub(super) engine: Option<String>,
    /// The files that were read.
    pub(super) files: Vec<PathBuf>,
    /// They can be read again; a pipe cannot.
    pub(super) is_lasting: bool,
    /// The settings of files and environment.
    pub(super) table: Table,
}

/// Settings, and whole sections, that a running `surus serve` cannot change: its sockets, its
/// users, and what it starts once.
const FIXED: [&str; 24] = [
    "access_log.file",
    "admin",
    "engine.core_dumps",
    "engine.group",
    "engine.user",
    "http.buffer_memory",
    "http.h3",
    "http.landlock",
    "http.listen",
    "http.max_connections",
    "http.max_temp_size",
    "http.seccomp",
    "http.socket_mode",
    "http.temp_dir",
    "http.user",
    "log",
    "telemetry",
    "tls.client_ca",
    "tls.client_certificate",
    "tls.handshake_timeout",
    "tls.listen",
    "tls.max_handshakes",
    "tls.min_version",
    "tls.public_port",
];

/// What a `[[site]]` can change, because all of a changed site starts again.
const FREE_IN_SITES: [&str; 2] = ["engine.group", "engine.user"];

/// What the queues of `work.serve` use as well. They start once.
const OF_QUEUES: [&str; 7] = ["engine", "env", "php", "pool", "queue", "schedule", "work"];

/// Sections of other commands.
const OF_OTHERS: [&str; 7] = [
    "deploy", "lambda", "package", "queue", "schedule", "watch", "work",
];

/// What only `surus serve` uses.
const OF_SERVER: [&str; 13] = [
    "access_log",
    "acme",
    "admin",
    "compress",
    "deploy",
    "error_pages",
    "lambda",
    "package",
    "route",
    "telemetry",
    "tls",
    "watch",
    "x_sendfile",
];

/// What a failed reload leaves.
pub const KEPT: &str = "nothing was reloaded, and the old configuration stays in use";

/// Settings that an error names.
const MAX_NAMED: usize = 5;

/// The settings that differ from those in use.
#[derive(Debug)]
pub struct Changes {
    files: Vec<PathBuf>,
    settings: Vec<ChangedSetting>,
    /// Whether the server runs queues, too, before or after the change.
    has_queues: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct ChangedSetting {
    /// As in `http.h3`, without its value, which may be a secret.
    name: String,
    /// The `[[site]]` that has it.
    site: Option<String>,
}

impl Display for ChangedSetting {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.site {
            None => f.write_str(&self.name),
            Some(site) => write!(f, "{} of site {site}", self.name),
        }
    }
}

impl ChangedSetting {
    fn is_one_of(&self, names: &[&str]) -> bool {
        let is = |name: &&str| {
            let rest = self.name.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        names.iter().any(is)
    }

    /// Whether a running server cannot change it.
    fn is_fixed(&self, has_queues: bool) -> bool {
        let is_free = self.site.is_some() && self.is_one_of(&FREE_IN_SITES);
        let is_shared = has_queues && self.is_one_of(&OF_QUEUES);
        is_shared || self.is_one_of(&FIXED) && !is_free
    }
}

impl Display for Changes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&list(&self.settings.iter().collect::<Vec<_>>()))
    }
}

/// The first settings.
fn list(settings: &[&ChangedSetting]) -> String {
    let named: Vec<_> = settings.iter().map(ToString::to_string).collect();
    match named.get(MAX_NAMED..) {
        None | Some([]) => named.join(", "),
        Some(rest) => format!("{} and {} more", named[..MAX_NAMED].join(", "), rest.len()),
    }
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty()
    }

    /// An error that names these settings, unless there are none.
    fn reject(&self, is_rejected: impl Fn(&ChangedSetting) -> bool) -> anyhow::Result<()> {
        let rejected: Vec<_> = self.settings.iter().filter(|it| is_rejected(it)).collect();
        if rejected.is_empty() {
            return Ok(());
        }
        let files: Vec<_> = self
            .files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        bail!(
            "{KEPT}: {} has changed what only a restart of Surus applies ({}); `surus check` says \
             whether it is valid",
            files.join(" or "),
            list(&rejected)
        );
    }
}

impl ConfigOrigin {
    /// Reads the configuration again. None if that cannot be done.
    pub fn read_again(&self) -> anyhow::Result<Option<Loaded>> {
        if !self.is_lasting {
            return Ok(None);
        }
        let read = load_by(
            // In a keeper, nothing may wait.
            surus_sys::regular_file::open,
            &self.project,
            self.named.as_deref(),
            env::read()?.into_iter(),
            self.engine.as_deref(),
        );
        let invalid = || format!("{KEPT}: the new one is not valid, and a restart would fail");
        read.with_context(invalid).map(Some)
    }

    /// The configuration, and what has changed in it for `surus serve`. None if nothing has. An
    /// error if only a restart applies a change.
    pub fn read_changed(&self) -> anyhow::Result<Option<(Loaded, Changes)>> {
        let Some(read) = self.read_again()? else {
            return Ok(None);
        };
        let changes = self.changes_of_server(&read.origin)?;
        Ok((!changes.is_empty()).then_some((read, changes)))
    }

    /// What has changed since for `surus serve`. An error if only a restart applies a change.
    fn changes_of_server(&self, now: &ConfigOrigin) -> anyhow::Result<Changes> {
        let mut changes = self.changes(now);
        let has_queues = changes.has_queues;
        let is_used = |it: &ChangedSetting| has_queues || !it.is_one_of(&OF_OTHERS);
        changes.settings.retain(is_used);
        changes.reject(|it| it.is_fixed(has_queues))?;
        Ok(changes)
    }

    /// An error if the configuration has changed since for `surus work`, or is invalid by now.
    pub fn check_for_work(&self) -> anyhow::Result<()> {
        match self.read_again()? {
            Some(now) => {
                let changes = self.changes(&now.origin);
                changes.reject(|it| !it.is_one_of(&OF_SERVER))
            }
            None => Ok(()),
        }
    }

    fn changes(&self, now: &ConfigOrigin) -> Changes {
        let files = match now.files.is_empty() {
            true => &self.files,
            false => &now.files,
        };
        let (old, new) = (&self.table, &now.table);
        Changes {
            files: files.clone(),
            settings: changed(old, new),
            has_queues: runs_queues(old) || runs_queues(new),
        }
    }
}

fn runs_queues(table: &Table) -> bool {
    let serve = table.get("work").and_then(|work| work.get("serve"));
    // The environment has it as text.
    serve.is_some_and(|serve| *serve != Value::Boolean(false))
}

/// The settings that differ, in all sites.
fn changed(old: &Table, new: &Table) -> Vec<ChangedSetting> {
    let (old_sites, new_sites) = (sites(old), sites(new));
    let is_reordered = old.get("site") != new.get("site");
    let common = |table: &Table, sites: &Table| {
        let mut table = table.clone();
        if !sites.is_empty() {
            table.remove("site");
        }
        table
    };
    let of = |site: Option<&String>, names: Vec<String>| {
        let site = site.cloned();
        let named = move |name| ChangedSetting {
            name,
            site: site.clone(),
        };
        names.into_iter().map(named).collect::<Vec<_>>()
    };
    let (old, new) = (common(old, &old_sites), common(new, &new_sites));
    let mut all = of(None, differences(&old, &new));
    let added = new_sites
        .keys()
        .filter(|site| !old_sites.contains_key(*site));
    for site in old_sites.keys().chain(added) {
        let (old, new) = (own(&old_sites, site), own(&new_sites, site));
        let mut names = differences(&old, &new);
        let has_moved = names.iter().any(|name| name == "project");
        let is_named = |name: &String| name == LOG_FILE;
        if has_moved && has_relative_log(&new) && !names.iter().any(is_named) {
            names.push(LOG_FILE.into());
        }
        all.extend(of(Some(site), names));
    }
    if all.is_empty() && is_reordered {
        all.extend(of(None, vec!["site".into()]));
    }
    all
}

/// The file of a site's access log, which is relative to its project.
const LOG_FILE: &str = "access_log.file";

fn has_relative_log(site: &Table) -> bool {
    let file = site.get("access_log").and_then(|log| log.get("file"));
    let file = file.and_then(Value::as_str);
    file.is_some_and(|file| Path::new(file).is_relative())
}

fn own(sites: &Table, site: &str) -> Table {
    let own = sites.get(site).and_then(Value::as_table);
    own.cloned().unwrap_or_default()
}

/// The `[[site]]` tables by name.
fn sites(table: &Table) -> Table {
    let tables = table.get("site").and_then(Value::as_array);
    let mut by_name = Table::new();
    for site in tables.into_iter().flatten() {
        let first = |hosts: &Value| match hosts {
            Value::Array(hosts) => hosts.first().cloned(),
            host => Some(host.clone()),
        };
        let name = site.get("name").cloned();
        let name = name.or_else(|| first(site.get("host")?));
        let name = name.as_ref().and_then(Value::as_str).unwrap_or("default");
        by_name.insert(name.to_owned(), site.clone());
    }
    by_name
}

/// The names of the settings that differ.
fn differences(old: &Table, new: &Table) -> Vec<String> {
    let added = new.keys().filter(|key| !old.contains_key(*key));
    let mut found = Vec::new();
    for key in old.keys().chain(added) {
        let none = Value::Table(Table::new());
        let (old, new) = (old.get(key), new.get(key));
        if old == new {
            continue;
        }
        // A section that is new or gone differs in its settings.
        match (old.unwrap_or(&none), new.unwrap_or(&none)) {
            (Value::Table(old), Value::Table(new)) => {
                let inner = differences(old, new);
                found.extend(inner.into_iter().map(|inner| format!("{key}.{inner}")));
            }
            _ => found.push(key.clone()),
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{env, load};
    use super::{Changes, ConfigOrigin};

    fn read(project: &std::path::Path, file: Option<&std::path::Path>) -> ConfigOrigin {
        let environment = env::read().unwrap().into_iter();
        load(project, file, environment, None).unwrap().origin
    }

    fn changes(started: &ConfigOrigin) -> anyhow::Result<Changes> {
        let now = started.read_again()?.unwrap();
        started.changes_of_server(&now.origin)
    }

    #[test]
    fn changed_settings_are_named_and_changed_text_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("surus.toml");
        let origin = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read(dir.path(), None)
        };
        let started = origin("engine.workers = 2\n[env]\nSECRET = 'one'\n");
        let check = |text: Option<&str>| {
            match text {
                Some(text) => std::fs::write(&file, text).unwrap(),
                None => std::fs::remove_file(&file).unwrap(),
            }
            let checked = changes(&started);
            checked
                .and_then(|changes| changes.reject(|_| true))
                .err()
                .map(|error| format!("{error:#}"))
                .unwrap_or_default()
        };
        let same = "# A comment\n[engine]\nworkers = 2\n[env]\nSECRET = \"one\"\n";
        assert_eq!(check(Some(same)), "");
        let error = check(Some(
            "engine.workers = 3\nenv.SECRET = 'two'\nhttp.h3 = false",
        ));
        assert!(
            error.contains("surus.toml has changed what only a restart"),
            "{error}"
        );
        assert!(error.contains("(http.h3)"), "{error}");
        assert!(
            !error.contains("two") && error.contains("restart"),
            "{error}"
        );
        let error = check(Some("engine.workers = 2\nengine.wrong = 1\n"));
        assert!(
            error.contains("surus.toml:2: unknown field `wrong`"),
            "{error}"
        );
        let error = check(None);
        assert!(error.contains("(engine.workers, env.SECRET)"), "{error}");
    }

    #[test]
    fn new_configuration_file_is_noticed_and_a_pipe_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let load = |file| read(dir.path(), file);
        let started = load(None);
        assert!(changes(&started).unwrap().is_empty());
        std::fs::write(dir.path().join("surus.toml"), "engine.workers = 2").unwrap();
        assert!(!changes(&started).unwrap().is_empty());
        assert!(started.check_for_work().is_err());
        let pipe = load(Some(std::path::Path::new("/dev/null")));
        assert!(pipe.read_again().unwrap().is_none());
        assert!(pipe.check_for_work().is_ok());
    }

    /// What a reload says about this change: the settings that it applies, or an error.
    fn reloaded(old: &str, new: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("surus.toml");
        std::fs::write(&file, old).unwrap();
        let started = read(dir.path(), None);
        std::fs::write(&file, new).unwrap();
        let changes = changes(&started).map_err(|error| format!("{error:#}"))?;
        Ok(changes.to_string())
    }

    #[test]
    fn settings_that_need_a_restart_are_told_from_those_that_a_reload_applies() {
        for (old, new, applied) in [
            ("", "engine.workers = 2", "engine.workers"),
            ("http.max_uri = '1K'", "", "http.max_uri"),
            ("", "tls.hsts = 'max-age=1'", "tls.hsts"),
            ("", "acme.email = 'a@b.test'", "acme.email"),
            ("[[route]]\nprefix = '/'\ndeny = true", "", "route"),
            ("", "package.extensions = ['x']\n[lambda]\n", ""),
            (
                "[[site]]\nhost = 'a.test'",
                "[[site]]\nhost = 'a.test'\nengine.workers = 2\n\
                 [[site]]\nhost = 'b.test'\nengine.user = 'b'",
                "engine.workers of site a.test, engine.user of site b.test, host of site b.test",
            ),
            (
                "[[site]]\nhost = 'a.test'\n[[site]]\nhost = 'b.test'",
                "[[site]]\nhost = 'b.test'\n[[site]]\nhost = 'a.test'",
                "site",
            ),
            (
                "[[site]]\nhost = 'a.test'\nproject = 'a'\naccess_log.file = '/x'",
                "[[site]]\nhost = 'a.test'\nproject = 'b'\naccess_log.file = '/x'",
                "project of site a.test",
            ),
        ] {
            assert_eq!(reloaded(old, new).as_deref(), Ok(applied), "{old} -> {new}");
        }
        for (old, new, named) in [
            (
                "",
                "http.listen = '8081'\nengine.workers = 2",
                "(http.listen)",
            ),
            ("", "engine.user = 'x'", "(engine.user)"),
            ("", "tls.min_version = '1.3'", "(tls.min_version)"),
            ("", "tls.public_port = 443", "(tls.public_port)"),
            (
                "",
                "admin.listen = '9000'\n[log]\nlevel = 'debug'",
                "(admin.listen, log.level)",
            ),
            (
                "[[site]]\nhost = 'a.test'",
                "[[site]]\nhost = 'a.test'\naccess_log.file = 'x'",
                "(access_log.file of site a.test)",
            ),
            (
                "[[site]]\nhost = 'a.test'\nproject = 'a'\naccess_log.file = 'x'",
                "[[site]]\nhost = 'a.test'\nproject = 'b'\naccess_log.file = 'x'",
                "(access_log.file of site a.test)",
            ),
            (
                "work.serve = true",
                "work.serve = true\nengine.workers = 2",
                "(engine.workers)",
            ),
            ("", "work.serve = true", "(work.serve)"),
        ] {
            let error = reloaded(old, new).unwrap_err();
            assert!(error.contains(named), "{old} -> {new}: {error}");
        }
    }

    #[test]
    fn only_what_jobs_use_keeps_surus_work_from_a_reload() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("surus.toml");
        let started = read(dir.path(), None);
        std::fs::write(
            &file,
            "compress.enabled = false\n[[route]]\nprefix = '/'\ndeny = true",
        )
        .unwrap();
        assert!(started.check_for_work().is_ok());
        std::fs::write(&file, "env.A = 'b'").unwrap();
        let error = started.check_for_work().unwrap_err().to_string();
        assert!(error.contains("(env.A)"), "{error}");
    }
}
