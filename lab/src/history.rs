//! Checks that the revisions that results name are in the history of this repository.

use std::path::Path;
use std::process::Command;

use anyhow::{bail, ensure};
use serde::Deserialize;

use crate::files::{Places, read};
use crate::results::Results;

/// The file of `lab/` with results whose revision is known to be missing.
const FILE: &str = "unknown-revisions.toml";

/// Results whose revision is not in the history.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exceptions {
    #[serde(default, rename = "result")]
    results: Vec<Exception>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    /// Of `docs/results`, such as `spdy/2026-11-27-full.json`.
    file: String,
    revision: String,
    /// Why it stays until it is measured again.
    reason: String,
}

impl Exceptions {
    /// None if there is no file.
    pub fn read(places: &Places) -> anyhow::Result<Exceptions> {
        let file = places.lab.join(FILE);
        match file.exists() {
            true => read(&file),
            false => Ok(Exceptions::default()),
        }
    }

    /// Why the revision of a result is not in the history.
    pub fn reason(&self, file: &str, revision: &str) -> Option<&str> {
        let mut all = self.results.iter();
        let found = all.find(|it| it.file == file && is_of(revision, &it.revision));
        found.map(|it| it.reason.as_str())
    }
}

/// Whether a result's revision is `revision`, or a change of it that was not committed.
fn is_of(named: &str, revision: &str) -> bool {
    named.trim_end_matches("-dirty") == revision
}

/// Refuses a result whose revision is not in the history and that is no exception, and an exception
/// that is needed no more. Without the whole history, says that this was not checked.
pub fn check(places: &Places, directory: &Path) -> anyhow::Result<()> {
    let exceptions = Exceptions::read(places)?;
    if let Some(why) = lacks_history(&places.repository) {
        eprintln!("revisions of results: not checked: {why}");
        return Ok(());
    }
    let mut needed = Vec::new();
    for name in directories(directory) {
        for file in files(&directory.join(&name)) {
            let results = Results::read(&directory.join(&name).join(&file))?;
            let file = format!("{name}/{file}");
            let revision = results.revision.trim_end_matches("-dirty");
            if is_in_history(&places.repository, revision) {
                continue;
            }
            let Some(exception) = exceptions
                .results
                .iter()
                .position(|it| it.file == file && it.revision == revision)
            else {
                bail!(
                    "{file}: its revision {revision} is not in the history of this repository, so \
                     no one can repeat it; measure it again (`{}`), or say in {} why it stays",
                    results.command,
                    places.lab.join(FILE).display()
                );
            };
            needed.push(exception);
        }
    }
    for (index, exception) in exceptions.results.iter().enumerate() {
        ensure!(
            needed.contains(&index),
            "{}: {} with revision {} needs no exception; remove it",
            places.lab.join(FILE).display(),
            exception.file,
            exception.revision
        );
    }
    Ok(())
}

/// Why the history cannot tell.
fn lacks_history(repository: &Path) -> Option<&'static str> {
    // The root, not a directory of another repository.
    if !repository.join(".git").exists() {
        return Some("this is no clone of a repository");
    }
    let output = git(repository, &["rev-parse", "--is-shallow-repository"]);
    match output.as_deref() {
        Some("false") => None,
        Some(_) => Some("this is a shallow clone; `git fetch --unshallow` gets the history"),
        None => Some("git cannot be run here"),
    }
}

/// Whether HEAD has grown from this commit.
fn is_in_history(repository: &Path, revision: &str) -> bool {
    // A name is no revision: it may move.
    let is_hash = revision.len() >= 7 && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
    let command = ["merge-base", "--is-ancestor", revision, "HEAD"];
    is_hash && git(repository, &command).is_some()
}

/// What git prints if it succeeds.
fn git(repository: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(repository).args(arguments);
    let output = command.output().ok()?;
    let text = || String::from_utf8_lossy(&output.stdout).trim().to_string();
    output.status.success().then(text)
}

fn directories(directory: &Path) -> Vec<String> {
    names(directory, |path| path.is_dir())
}

fn files(directory: &Path) -> Vec<String> {
    names(directory, |path| {
        path.extension().is_some_and(|end| end == "json")
    })
}

fn names(directory: &Path, is_wanted: impl Fn(&Path) -> bool) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let wanted = paths.filter(|path| is_wanted(path));
    let name = |path: std::path::PathBuf| Some(path.file_name()?.to_str()?.to_string());
    let mut names: Vec<_> = wanted.filter_map(name).collect();
    names.sort();
    names
}
