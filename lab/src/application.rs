//! An application that several contestants serve, each run from a fresh copy.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;

use crate::build::{self, copy_directory};
use crate::contestant::Need;
use crate::files::{Places, read};
use crate::words::Words;

/// `lab/applications/NAME/application.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// Its directory in `lab/applications/`.
    #[serde(skip)]
    pub directory: PathBuf,
    /// A directory of the repository that is copied first.
    pub from: Option<String>,
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Commands that complete the copy (`@app@`).
    #[serde(default)]
    prepare: Vec<Vec<String>>,
    /// Requests for engines that boot (`engine.warmup`).
    #[serde(default)]
    warm_up: Vec<String>,
}

impl Application {
    pub fn read(places: &Places, name: &str) -> anyhow::Result<Application> {
        let file = places.find("applications", name, "/application.toml")?;
        let mut application: Application = read(&file)?;
        application.directory = file.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(application)
    }

    /// Makes a copy in `to` and sets the words that lead to it.
    pub fn make(&self, places: &Places, to: &Path, words: &mut Words) -> anyhow::Result<()> {
        if let Some(from) = &self.from {
            copy_directory(&places.repository.join(from), to)?;
        }
        copy_directory(&self.directory, to)?;
        words.set("app", to.display());
        words.set("root", to.join("public").display());
        words.set("script", to.join("worker.php").display());
        words.set("warmup", serde_json::to_string(&self.warm_up)?);
        for command in &self.prepare {
            build::run(&words.command(command)?, to)
                .with_context(|| format!("cannot prepare {}", self.directory.display()))?;
        }
        Ok(())
    }
}
