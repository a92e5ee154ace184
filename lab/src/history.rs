//! Reads the history of this repository: checks that it has the revisions that results name.

use std::path::Path;
use std::process::Command;

use anyhow::{bail, ensure};
use serde::Deserialize;

use crate::files::{Places, read};
use crate::generators::{self, Generators};
use crate::results::Results;
use crate::small_form::{self, SmallForm};

/// The file of `lab/` with results whose revision is known to be missing.
const FILE: &str = "unknown-revisions.toml";
/// The end of a revision whose files had changes that were not committed.
const DIRTY: &str = "-dirty";

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
        let found = all.find(|it| it.file == file && it.revision == revision);
        found.map(|it| it.reason.as_str())
    }
}

/// Refuses a result that no one can repeat, unless it is an exception: its revision is not in the
/// history, or files had changes that were not committed. Also refuses an exception that is needed
/// no more. Without the whole history, says that this was not checked.
pub fn check(places: &Places, directory: &Path) -> anyhow::Result<()> {
    let exceptions = Exceptions::read(places)?;
    if let Some(why) = lacks_history(&places.repository) {
        eprintln!("revisions of results: not checked: {why}");
        return Ok(());
    }
    let mut needed = Vec::new();
    for (file, revision, command) in revisions(directory)? {
        let Some(why) = why_unknown(&places.repository, &revision) else {
            continue;
        };
        let mut all = exceptions.results.iter();
        let Some(exception) = all.position(|it| it.file == file && it.revision == revision) else {
            bail!(
                "{file}: its revision {revision} {why}, so no one can repeat it; measure it again \
                 (`{command}`), or say in {} why it stays",
                places.lab.join(FILE).display()
            );
        };
        needed.push(exception);
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

/// The files of published results, with their revisions and the commands that repeat them.
fn revisions(directory: &Path) -> anyhow::Result<Vec<(String, String, String)>> {
    let mut all = Vec::new();
    for name in directories(directory) {
        for file in files(&directory.join(&name)) {
            let results = Results::read(&directory.join(&name).join(&file))?;
            all.push((format!("{name}/{file}"), results.revision, results.command));
        }
    }
    if let Some(small) = SmallForm::read(directory)? {
        all.push((small_form::FILE.into(), small.revision, "make lab".into()));
    }
    if let Some(generators) = Generators::read(directory)? {
        let command = "make check-generators".into();
        all.push((generators::FILE.into(), generators.revision, command));
    }
    Ok(all)
}

/// The text of a file of the repository at a run's revision; the error says why it is unknown.
pub fn text_at(places: &Places, file: &Path, revision: &str) -> Result<String, String> {
    if let Some(why) = lacks_history(&places.repository) {
        return Err(why.into());
    }
    if let Some(why) = why_unknown(&places.repository, revision) {
        return Err(format!("revision {revision} {why}"));
    }
    let path = file.strip_prefix(&places.repository).unwrap_or(file);
    let object = format!("{revision}:./{}", path.display());
    git(&places.repository, &["show", &object])
        .ok_or_else(|| format!("revision {revision} has no {}", path.display()))
}

/// Why the history cannot tell.
pub fn lacks_history(repository: &Path) -> Option<&'static str> {
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

/// Why no one can check out a revision; `None` if HEAD has grown from this commit.
fn why_unknown(repository: &Path, revision: &str) -> Option<&'static str> {
    if revision.ends_with(DIRTY) {
        return Some("had changes that were not committed");
    }
    // A name is no revision: it may move.
    let is_hash = revision.len() >= 7 && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
    let command = ["merge-base", "--is-ancestor", revision, "HEAD"];
    let is_known = is_hash && git(repository, &command).is_some();
    (!is_known).then_some("is not in the history of this repository")
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
