//! Compares the configuration with the one that a server has read at its start.

use std::path::PathBuf;

use anyhow::{Context, bail};
use toml::{Table, Value};

use super::{env, load_by};

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

/// Settings that an error names.
const MAX_NAMED: usize = 5;

impl ConfigOrigin {
    /// An error if the configuration has changed since, or is invalid by now.
    pub fn check(&self) -> anyhow::Result<()> {
        if !self.is_lasting {
            return Ok(());
        }
        let read = load_by(
            // In a keeper, nothing may wait.
            surus_sys::regular_file::open,
            &self.project,
            self.named.as_deref(),
            env::read()?.into_iter(),
            self.engine.as_deref(),
        );
        let now = read.context(
            "nothing was reloaded, and the old configuration stays in use: the new one is not \
             valid, and a restart would fail",
        )?;
        let changed = differences(&self.table, &now.origin.table);
        if changed.is_empty() {
            return Ok(());
        }
        let files = match now.origin.files.is_empty() {
            true => &self.files,
            false => &now.origin.files,
        };
        let files: Vec<_> = files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        let rest = changed.len().saturating_sub(MAX_NAMED);
        let more = match rest {
            0 => String::new(),
            rest => format!(" and {rest} more"),
        };
        let named = &changed[..changed.len() - rest];
        bail!(
            "nothing was reloaded, and the old configuration stays in use: {} has changed since \
             the start ({}{more}), which only a restart of Surus applies; `surus check` says \
             whether it is valid",
            files.join(" or "),
            named.join(", ")
        );
    }
}

/// The names of the settings that differ.
fn differences(old: &Table, new: &Table) -> Vec<String> {
    let added = new.keys().filter(|key| !old.contains_key(*key));
    let mut found = Vec::new();
    for key in old.keys().chain(added) {
        match (old.get(key), new.get(key)) {
            (old, new) if old == new => {}
            (Some(Value::Table(old)), Some(Value::Table(new))) => {
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
    use super::ConfigOrigin;

    fn read(project: &std::path::Path, file: Option<&std::path::Path>) -> ConfigOrigin {
        let environment = env::read().unwrap().into_iter();
        load(project, file, environment, None).unwrap().origin
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
            let checked = started.check();
            checked
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
            error.contains("surus.toml has changed since the start"),
            "{error}"
        );
        assert!(
            error.contains("(engine.workers, env.SECRET, http)"),
            "{error}"
        );
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
        assert!(
            error.contains("surus.toml has changed") && error.contains("env"),
            "{error}"
        );
    }

    #[test]
    fn new_configuration_file_is_noticed_and_a_pipe_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let load = |file| read(dir.path(), file);
        let started = load(None);
        assert!(started.check().is_ok());
        std::fs::write(dir.path().join("surus.toml"), "engine.workers = 2").unwrap();
        assert!(started.check().is_err());
        let pipe = load(Some(std::path::Path::new("/dev/null")));
        assert!(pipe.check().is_ok());
    }
}
