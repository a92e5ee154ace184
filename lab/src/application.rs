//! An application that several contestants serve, each run from a fresh copy.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

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
    /// What the application needs while it is served, such as a database. Its CPU time is not
    /// counted.
    #[serde(default)]
    serve: Vec<Vec<String>>,
    /// Commands that run once `serve` has been started.
    #[serde(default)]
    complete: Vec<Vec<String>>,
    /// Requests for engines that boot (`engine.warmup`).
    #[serde(default)]
    warm_up: Vec<String>,
}

impl Application {
    /// Files and directories of the repository that its commands name (`@repository@/…`).
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        let commands = self.prepare.iter().chain(&self.serve).chain(&self.complete);
        commands
            .flatten()
            .filter_map(|part| part.strip_prefix("@repository@/"))
    }

    pub fn read(places: &Places, name: &str) -> anyhow::Result<Application> {
        let file = places.find("applications", name, "/application.toml")?;
        let mut application: Application = read(&file)?;
        application.directory = file.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(application)
    }

    /// Checks that every word of every command has a value.
    pub fn check_words(&self, words: &Words) -> anyhow::Result<()> {
        let commands = self.prepare.iter().chain(&self.serve).chain(&self.complete);
        for part in commands.flatten() {
            words
                .fill(part)
                .with_context(|| self.directory.display().to_string())?;
        }
        Ok(())
    }

    /// Makes a copy in `to` and sets the words that lead to it. To be called from the main thread:
    /// what it starts ends with the thread that starts it.
    pub fn make(&self, places: &Places, to: &Path, words: &mut Words) -> anyhow::Result<Services> {
        if let Some(from) = &self.from {
            copy_directory(&places.repository.join(from), to)?;
        }
        copy_directory(&self.directory, to)?;
        // All contestants that run PHP have the same settings.
        let ini = places.lab.join("applications/php.ini");
        if ini.exists() {
            std::fs::copy(&ini, to.join("php.ini"))?;
        }
        words.set("app", to.display());
        words.set("root", to.join("public").display());
        let script = to.join("worker.php");
        words.set("script", script.display());
        let boot = format!("script = \"{}\"", script.display());
        words.set("boot", if script.exists() { boot } else { String::new() });
        words.set("warmup", serde_json::to_string(&self.warm_up)?);
        let context = || format!("cannot prepare {}", self.directory.display());
        for command in &self.prepare {
            build::run(&words.command(command)?, to).with_context(context)?;
        }
        let mut services = Services(Vec::new());
        for command in &self.serve {
            let mut command = build::program(&words.command(command)?);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            services.0.push(command.spawn().with_context(context)?);
        }
        for command in &self.complete {
            build::run(&words.command(command)?, to).with_context(context)?;
        }
        Ok(services)
    }
}

/// Running processes of an application.
#[derive(Debug)]
pub struct Services(Vec<Child>);

impl Drop for Services {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Their data is thrown away, so they need not finish.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
