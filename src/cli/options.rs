//! Options shared by several subcommands: the project, and overrides of its configuration.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tracing::{info, warn};

use super::{config_trust, engine_setup, entry_script};
use crate::config::sites;
use crate::config::{self, Config, IniValue, Loaded};
use crate::engines;
use crate::fronts::address::Address;
use crate::fronts::http::tls::acme::settings::Domain;

/// Selects the project.
#[derive(Debug, clap::Args)]
pub struct Project {
    /// Directory of the application
    #[arg(default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Configuration file [default: DIR/surus.toml if it exists]
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

    /// The configuration, for commands that run one application.
    pub fn load(&self) -> anyhow::Result<Loaded> {
        self.load_single(None)
    }

    /// The same for the engine of the command line.
    pub fn load_single(&self, engine: Option<&str>) -> anyhow::Result<Loaded> {
        single(self.load_for(engine)?)
    }

    /// The same, possibly with several sites.
    pub fn load_all(&self) -> anyhow::Result<Loaded> {
        self.load_for(None)
    }

    /// The configuration for the engine of the command line.
    fn load_for(&self, engine: Option<&str>) -> anyhow::Result<Loaded> {
        let loaded = config::load(
            &self.directory()?,
            self.config.as_deref(),
            config::env::read()?.into_iter(),
            engine,
        )?;
        self.trust(loaded, None)
    }

    /// Fails if PHP's user could have written a configuration of root, or could replace what it
    /// names. PHP may run as `used` says at the moment.
    fn trust(&self, mut loaded: Loaded, used: Option<&Config>) -> anyhow::Result<Loaded> {
        config_trust::check(&loaded, used, &self.directory()?)?;
        loaded.config.engine.is_replaceable = config_trust::replaceable(&loaded).is_some();
        Ok(loaded)
    }
}

/// Logs the configuration file that was read, and that of the project if it was not.
pub(super) fn log_files(read: Option<&Path>, unread: Option<&Path>) {
    if let Some(file) = read {
        info!(file = %file.display(), "configuration read");
    }
    if let Some(file) = unread {
        warn!(
            file = %file.display(),
            "the project's configuration is not read, because --config names another file"
        );
    }
}

/// Rejects a configuration with several sites.
fn single(loaded: Loaded) -> anyhow::Result<Loaded> {
    if !loaded.config.sites.is_empty() {
        bail!(
            "[[site]] is for `surus serve` and `surus check`, and not supported by this command, \
             which runs one application; name another configuration with --config"
        );
    }
    Ok(loaded)
}

/// Selects the application, and overrides how it runs.
#[derive(Debug, clap::Args)]
pub struct AppArgs {
    #[command(flatten)]
    pub project: Project,
    /// Engine that runs PHP; `surus engines` lists all
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    #[command(flatten)]
    php: PhpArgs,
}

/// Overrides what PHP runs, on any engine.
#[derive(Debug, clap::Args)]
pub struct PhpArgs {
    /// PHP file to boot, relative to the current directory; with `classic`, the front controller
    /// [default: index.php of the document root if it exists]
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// php.ini entry, as in `php -d`; may be repeated
    #[arg(short = 'd', value_name = "INI=VALUE")]
    ini: Vec<String>,
}

/// The same, and how it is served.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Address to listen on: 127.0.0.1:8080, [::1]:8080, 8080 or unix:/run/app.sock; may be
    /// repeated
    #[arg(long, value_name = "ADDR")]
    listen: Vec<Address>,
    /// Serve HTTPS for a host with certificates of Let's Encrypt, whose terms of service you
    /// accept; for localhost and the domain test, of this machine; may be repeated
    #[arg(long, value_name = "HOST")]
    domain: Vec<Domain>,
    /// Serve HTTPS for localhost, with a certificate of this machine; see `surus trust`
    #[arg(long)]
    https: bool,
    /// Number of PHP processes
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    #[command(flatten)]
    pub app: AppArgs,
}

impl ServeArgs {
    /// The configuration with these options applied.
    pub fn load(&self) -> anyhow::Result<Loaded> {
        let app = &self.app;
        self.complete(app.project.load_for(app.engine.as_deref())?)
    }

    /// The same for a configuration that a server has read again. It runs with `used`.
    pub fn load_again(&self, read: Loaded, used: &Config) -> anyhow::Result<Loaded> {
        self.complete(self.app.project.trust(read, Some(used))?)
    }

    fn complete(&self, loaded: Loaded) -> anyhow::Result<Loaded> {
        let app = &self.app;
        let engine = app.engine.as_deref();
        let mut loaded = app.php.complete_sites(&app.project, engine, loaded)?;
        let mut domains = self.domain.clone();
        if self.https {
            // The first certificate is also for clients that name no host.
            domains.insert(0, Domain::localhost());
        }
        loaded.serve(&self.listen, &domains);
        let config = &loaded.config;
        let (domains, setting) = match domains.is_empty() {
            true => (&config.acme.domains, "acme.domains"),
            false => (&self.domain, "--domain"),
        };
        sites::check_served(domains, setting, &config.sites)?;
        let telemetry = &mut loaded.config.telemetry;
        telemetry.complete(|name| std::env::var(name).ok())?;
        if let Some(workers) = self.workers {
            loaded.config.engine.fix_workers(workers);
            for site in &mut loaded.config.sites {
                site.config.engine.fix_workers(workers);
            }
        }
        Ok(loaded)
    }
}

impl AppArgs {
    /// The configuration with these options applied.
    pub fn load(&self) -> anyhow::Result<Loaded> {
        self.php.load(&self.project, self.engine.as_deref())
    }
}

impl PhpArgs {
    /// The configuration of a project with these options and the named engine. For commands that
    /// run one application.
    pub fn load(&self, project: &Project, engine: Option<&str>) -> anyhow::Result<Loaded> {
        let loaded = project.load_for(engine)?;
        single(self.complete_sites(project, engine, loaded)?)
    }

    /// Completes a configuration that may have several sites.
    fn complete_sites(
        &self,
        project: &Project,
        engine: Option<&str>,
        mut loaded: Loaded,
    ) -> anyhow::Result<Loaded> {
        let directory = project.directory()?;
        let mut sites = std::mem::take(&mut loaded.config.sites);
        for site in &mut sites {
            if self.script.is_some() {
                bail!("--script is for one site; set engine.script in a [[site]]");
            }
            let own = site.project.as_ref().unwrap_or(&directory);
            site.config.engine.is_replaceable = loaded.config.engine.is_replaceable;
            self.complete(own, engine, &mut site.config)?;
        }
        self.complete(&directory, engine, &mut loaded.config)?;
        loaded.config.sites = sites;
        Ok(loaded)
    }

    /// Applies the options, and looks at the application.
    fn complete(
        &self,
        project: &Path,
        engine: Option<&str>,
        config: &mut Config,
    ) -> anyhow::Result<()> {
        if let Some(engine) = engine {
            engines::find(engine).context("--engine")?;
            config.engine.name = Some(engine.into());
        }
        self.apply(config)?;
        entry_script::name_within(project, config);
        engine_setup::look_at_application(project, config);
        Ok(())
    }

    fn apply(&self, config: &mut Config) -> anyhow::Result<()> {
        if let Some(script) = &self.script {
            config.engine.script = Some(std::path::absolute(script).context("--script")?);
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
