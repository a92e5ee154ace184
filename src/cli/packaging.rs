//! Collects the files of a package and writes it: for `surus lambda package` and `surus build`.

use std::fs::{File, Permissions};
use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;

use super::engine_setup::PoolConfig;
use super::options::Project;
use super::stdout::say;
use super::{engine_setup, events};
use crate::app::site::Resolution;
use crate::config::{Config, Loaded};
use crate::engines;
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::package::bootstrap::NamedProgram;
use crate::package::kind::PackageKind;
use crate::package::laravel::LaravelApplication;
use crate::package::left_out::LeftOut;
use crate::package::php::InstalledPhp;
use crate::package::{
    PackageFiles, application, bootstrap, extensions, laravel, library, php, settings, symfony,
};

/// What to package.
pub(super) struct PackageRequest<'a> {
    pub kind: PackageKind,
    pub project: &'a Path,
    pub loaded: &'a Loaded,
    /// Extensions that the user lists.
    pub extensions: Vec<String>,
    pub surus: NamedProgram<'a>,
    /// Files that the caller writes.
    pub except: Vec<PathBuf>,
}

/// The parts of a package.
pub(super) struct Gathered {
    pub files: PackageFiles,
    /// The surus for the package.
    pub surus: PathBuf,
    pub left_out: LeftOut,
    /// The application's directory in the package.
    pub place: &'static str,
}

/// The directory of an application and its configuration. From here on, only warnings are logged.
pub(super) fn begin(named: &Project) -> anyhow::Result<(PathBuf, Loaded)> {
    let project = named.directory()?;
    let loaded = named.load()?;
    log::start(&log::Settings {
        level: "warn".into(),
        ..loaded.config.log.clone()
    })?;
    Ok((project, loaded))
}

/// The extensions of the configuration and of the command line.
pub(super) fn extensions(config: &Config, named: &[String]) -> Vec<String> {
    let configured = config.package.extensions.iter();
    configured.chain(named).cloned().collect()
}

impl PackageRequest<'_> {
    /// Gathers the files of the package. Prints what is included and what is not.
    pub fn gather(&self) -> anyhow::Result<Gathered> {
        let &PackageRequest {
            kind,
            project,
            loaded,
            ..
        } = self;
        let installed = super::block_on(ask_php(project, &loaded.config))?;
        let chosen = extensions::choose(
            project,
            &installed.extension_dir,
            &self.extensions,
            &installed.loaded,
        )?;
        let mut files = PackageFiles::default();
        let placed = php::add(&installed, &chosen.load, kind, &mut files)?;
        let surus = bootstrap::find(self.surus, placed.machine)?;
        let table = match &loaded.file {
            Some(file) => toml::from_str(&std::fs::read_to_string(file)?)
                .with_context(|| format!("{}", file.display()))?,
            None => toml::Table::new(),
        };
        let script = match events::script(project, &loaded.config) {
            Ok(script) => library::add(project, &script, &mut files)?,
            // Only a handler needs this file.
            Err(error) if loaded.config.lambda.handler.is_some() => return Err(error),
            Err(_) => None,
        };
        let place = kind.place(project);
        let left_out = application::add(project, &self.except, place, &mut files)?;
        laravel::add_directories(kind, project, &mut files)?;
        let laravel = LaravelApplication::find(kind, project, &files)?;
        let env = table.get("env").and_then(toml::Value::as_table);
        let laravel_defaults = match &laravel {
            Some(laravel) => laravel.defaults(env.unwrap_or(&toml::Table::new())),
            None => Vec::new(),
        };
        files.text(
            application::inside_of(place, "surus.toml"),
            settings::compose(
                kind,
                table,
                &placed,
                script.as_deref(),
                symfony::is_there(project)?,
                laravel.as_ref(),
            )?,
        )?;

        say!("PHP {} for {}", installed.version, placed.machine.name());
        let names: Vec<_> = chosen
            .load
            .iter()
            .map(|extension| extension.name.as_str())
            .collect();
        say!("extensions: {}", names.join(", "));
        if !chosen.left_out.is_empty() {
            say!(
                "left out, although PHP loads them here: {}; list those that the application uses \
                 with --extension or in [package] extensions",
                chosen.left_out.join(", ")
            );
        }
        if !laravel_defaults.is_empty() {
            let variables: Vec<_> = laravel_defaults
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            say!(
                "defaults for Laravel, unless the function sets them: {}",
                variables.join(", ")
            );
        }
        if !left_out.is_empty() {
            say!("{left_out}");
        }
        Ok(Gathered {
            files,
            surus,
            left_out,
            place,
        })
    }
}

/// Warns if the site would send the written package to visitors, with all that is in it.
pub(super) fn warn_if_sent(project: &Path, config: &Config, output: &Path) {
    let Ok(site) = engine_setup::open_site(project, config) else {
        return;
    };
    let Ok(output) = output.canonicalize() else {
        return;
    };
    let Ok(url) = output.strip_prefix(site.root()) else {
        return;
    };
    let url = format!("/{}", url.display());
    if matches!(site.resolve_plain(&url), Resolution::File(_)) {
        say!(
            "! {} is in the document root, and the site sends it to visitors; write it elsewhere \
             (--output)",
            output.display()
        );
    }
}

/// Starts PHP with the application's configuration and asks for its version and extensions.
async fn ask_php(project: &Path, config: &Config) -> anyhow::Result<InstalledPhp> {
    let entry = engines::find("classic")?;
    let mut config = config.clone();
    config.engine.name = Some(entry.name.into());
    config.engine.fix_workers(1);
    // The user for requests does not matter here.
    if !surus_sys::process::is_root() {
        config.engine.user = None;
        config.engine.group = None;
    }
    let program = engines::surus_php::find(config.engine.surus_php.as_deref())?;
    let pool_config = PoolConfig {
        name: entry.name,
        entry,
        config,
        learned: Default::default(),
    };
    let pool = engine_setup::boot_one(&pool_config, project, &Arc::new(Metrics::default())).await?;
    let report = pool.report();
    pool.drain().await;
    let files = std::iter::once(report.get("ini_file")).chain(report.get("ini_scanned").split(','));
    let names = report.get("extensions").split(',');
    Ok(InstalledPhp {
        program,
        version: report.get("php_running").into(),
        extension_dir: report.get("extension_dir").into(),
        ini_files: files
            .filter(|file| !file.is_empty())
            .map(PathBuf::from)
            .collect(),
        loaded: names
            .filter(|name| !name.is_empty())
            .map(str::to_string)
            .collect(),
    })
}

/// Writes a package of `count` files atomically and returns its size. `fill` gets the file, and
/// what shows the progress.
pub(super) fn write(
    output: &Path,
    mode: u32,
    count: usize,
    fill: impl FnOnce(&File, &(dyn Fn(usize) + Sync)) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let cannot = || format!("cannot write {}", output.display());
    let directory = output.parent().unwrap_or(Path::new("/"));
    let fresh = tempfile::Builder::new()
        .prefix(".surus-package")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(directory)
        .with_context(cannot)?;
    let began = Instant::now();
    let terminal = std::io::stderr().is_terminal();
    fill(fresh.as_file(), &|done| {
        // Often enough to show progress.
        if terminal && (done % 50 == 0 || done == count) {
            log::print(format_args!(
                "\r{done} of {count} files, {:.0} s",
                began.elapsed().as_secs_f32()
            ));
        }
    })
    .with_context(cannot)?;
    if terminal {
        log::print("\n");
    }
    let size = fresh.as_file().metadata()?.len();
    fresh.persist(output).with_context(cannot)?;
    Ok(size)
}
