//! Options shared by several subcommands: the project, and overrides of its configuration.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::{config_trust, engine_setup};
use crate::config::{self, Config, IniValue, Loaded};
use crate::engines;
use crate::fronts::http::Address;

/// Selects the project.
#[derive(Debug, clap::Args)]
pub struct Project {
    /// Directory of the application
    #[arg(default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Configuration file (default: DIR/surus.toml if it exists)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Project {
    pub fn new(dir: PathBuf, config: Option<PathBuf>) -> Project {
        Project { dir, config }
    }

    /// The directory as given.
    pub fn named(&self) -> &Path {
        &self.dir
    }

    /// The configuration file as given.
    pub fn configuration(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// The absolute directory. Symbolic links are kept, so that a reload sees them change.
    pub fn directory(&self) -> anyhow::Result<PathBuf> {
        let directory = std::path::absolute(&self.dir)?;
        if !directory.is_dir() {
            bail!(
                "{} is not a directory; name the directory of the application",
                directory.display()
            );
        }
        Ok(directory)
    }

    pub fn load(&self) -> anyhow::Result<Loaded> {
        self.load_for(None)
    }

    /// The configuration for the engine of the command line.
    fn load_for(&self, engine: Option<&str>) -> anyhow::Result<Loaded> {
        let mut loaded = config::load(
            &self.directory()?,
            self.config.as_deref(),
            config::env::of_process()?.into_iter(),
            engine,
        )?;
        config_trust::check(&loaded, &self.directory()?)?;
        loaded.config.engine.is_replaceable = config_trust::replaceable(&loaded).is_some();
        Ok(loaded)
    }
}

/// Selects the project and overrides its configuration.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub project: Project,
    /// Address to listen on: 127.0.0.1:8080, [::1]:8080, 8080 or unix:/run/app.sock; may be
    /// repeated
    #[arg(long, value_name = "ADDR")]
    listen: Vec<Address>,
    /// Engine that runs PHP; `surus engines` lists all
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Number of PHP processes
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// PHP file to boot, relative to the current directory; with `classic`, the front controller
    /// (default: index.php of the document root if it exists)
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// php.ini entry, as in `php -d`; may be repeated
    #[arg(short = 'd', value_name = "INI=VALUE")]
    ini: Vec<String>,
}

impl Args {
    /// The configuration with these options applied.
    pub fn load(&self) -> anyhow::Result<Loaded> {
        let mut loaded = self.project.load_for(self.engine.as_deref())?;
        self.apply(&mut loaded.config)?;
        engine_setup::look_at_application(&self.project.directory()?, &mut loaded.config);
        Ok(loaded)
    }

    fn apply(&self, config: &mut Config) -> anyhow::Result<()> {
        if !self.listen.is_empty() {
            config.http.listen.clone_from(&self.listen);
        }
        if let Some(engine) = &self.engine {
            engines::find(engine).context("--engine")?;
            config.engine.name = Some(engine.clone());
        }
        if let Some(script) = &self.script {
            config.engine.script = Some(std::path::absolute(script).context("--script")?);
        }
        if self.workers.is_some() {
            config.engine.workers = self.workers;
        }
        for entry in &self.ini {
            // Like php, `-d name` means `-d name=1`.
            let (name, value) = entry.split_once('=').unwrap_or((entry, "1"));
            if name.trim().is_empty() {
                return Err(anyhow::anyhow!(
                    "expected NAME=VALUE, as in -d memory_limit=256M"
                ))
                .context(format!("-d {entry}"));
            }
            let value = IniValue::Text(value.to_string());
            IniValue::set(&mut config.php, name.trim(), value);
        }
        Ok(())
    }
}
