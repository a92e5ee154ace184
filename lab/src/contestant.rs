//! A contestant's manifest: how it is built, started and stopped, and under which licence it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::experiment::Entry;
use crate::files::{Places, read};
use crate::words::Words;

/// `lab/contestants/NAME/manifest.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Its directory.
    #[serde(skip)]
    pub directory: PathBuf,
    pub licence: String,
    /// Its home page.
    pub home: String,
    /// Programs that must be there. They may name words.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// File that pins all versions of what a registry delivers.
    pub lock: Option<String>,
    /// Commands that build it in a copy of its directory (`@build@`).
    #[serde(default)]
    pub build: Vec<Vec<String>>,
    /// Values for its words, and their defaults. An experiment may change them.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
    /// Files and directories that are filled in and put into `@dir@` at each start.
    #[serde(default)]
    pub files: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Its servers, which stay in the foreground.
    pub start: Vec<Vec<String>>,
    /// A path that answers with 2xx once it is ready. Without one: the first load's.
    pub ready: Option<String>,
    /// Commands that run once it is ready. It is measured after they have ended.
    #[serde(default)]
    pub once_ready: Vec<Vec<String>>,
    #[serde(default)]
    pub stop: Stop,
    /// Commands whose first line of output is a version.
    pub version: Vec<Vec<String>>,
}

/// A program that a contestant needs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// Its name on `PATH`, or a path.
    pub program: String,
    /// What to do if it is missing.
    pub install: String,
}

/// The signal that ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Stop {
    #[default]
    #[serde(rename = "SIGTERM")]
    Terminate,
    #[serde(rename = "SIGKILL")]
    Kill,
}

impl Manifest {
    pub fn read(places: &Places, name: &str) -> anyhow::Result<Manifest> {
        let file = places.find("contestants", name, "/manifest.toml")?;
        let mut manifest: Manifest = read(&file)?;
        manifest.directory = file.parent().map(Path::to_path_buf).unwrap_or_default();
        manifest
            .check()
            .map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
        Ok(manifest)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.start.is_empty(),
            "start = []; name at least one command"
        );
        for (key, commands) in [
            ("start", &self.start),
            ("build", &self.build),
            ("once_ready", &self.once_ready),
            ("version", &self.version),
        ] {
            let is_whole = commands.iter().all(|command| !command.is_empty());
            ensure!(
                is_whole,
                "{key} has an empty command; write [[\"program\", \"argument\"]]"
            );
        }
        for name in self.files.iter().chain(&self.lock) {
            let path = self.directory.join(name);
            ensure!(
                path.exists(),
                "there is no {}; correct `files` or `lock`",
                path.display()
            );
        }
        Ok(())
    }

    /// Checks that every word of every command has a value.
    pub fn check_words(&self, words: &Words) -> anyhow::Result<()> {
        let commands = self.start.iter().chain(&self.build).chain(&self.once_ready);
        let texts = commands.chain(&self.version).flatten();
        let texts = texts.chain(self.env.values());
        let needs = self
            .needs
            .iter()
            .flat_map(|need| [&need.program, &need.install]);
        for text in texts.chain(needs) {
            let file = self.directory.join("manifest.toml");
            words
                .fill(text)
                .with_context(|| file.display().to_string())?;
        }
        Ok(())
    }

    /// The words of an experiment's entry: those of the run, the defaults of this manifest, and
    /// what the entry changes.
    pub fn words(&self, entry: &Entry, run: &Words) -> anyhow::Result<Words> {
        let mut words = run.clone();
        for (word, default) in &self.values {
            ensure!(
                !run.has(word),
                "{}: values.{word} would hide a word of every run; give it another name",
                self.directory.join("manifest.toml").display()
            );
            words.set(word, entry.values.get(word).unwrap_or(default));
        }
        for word in entry.values.keys() {
            let known: Vec<_> = self.values.keys().map(String::as_str).collect();
            ensure!(
                self.values.contains_key(word),
                "contestant `{}`: values.{word} is unknown to {}; known: {}",
                entry.name,
                self.directory.join("manifest.toml").display(),
                known.join(", ")
            );
        }
        Ok(words)
    }
}
