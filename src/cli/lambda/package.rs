//! `surus lambda package`: builds a function's zip.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};

use crate::cli::engine_setup;
use crate::cli::engine_setup::PoolConfig;
use crate::cli::events;
use crate::cli::options::Project;
use crate::cli::stdout::{self, say};
use crate::config::{Config, Loaded};
use crate::deploy::dockerfile;
use crate::engines;
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::package::php::InstalledPhp;
use crate::package::sizes::{self, Sizes, mebibytes};
use crate::package::{
    self, PackageFiles, application, archive, bootstrap, extensions, library, php, settings,
    symfony,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    project: Project,
    /// Zip to write
    #[arg(short, long, value_name = "FILE", default_value = "function.zip")]
    output: PathBuf,
    /// PHP extension that the application uses but composer.json does not list; may be repeated
    #[arg(long = "extension", value_name = "NAME")]
    extensions: Vec<String>,
    /// Statically linked surus (make musl) [default: this one, or the `bootstrap` next to it]
    #[arg(long, value_name = "FILE")]
    bootstrap: Option<PathBuf>,
    /// Include OPcache's compiled files, so that no cold start compiles them; needs root or user
    /// namespaces
    #[arg(long)]
    compile: bool,
    /// Also write a Dockerfile with the same extensions next to the zip, for a container image
    #[arg(long)]
    dockerfile: bool,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let project = args.project.directory()?;
    let loaded = args.project.load()?;
    log::start(&log::Settings {
        level: "warn".into(),
        ..loaded.config.log.clone()
    })?;
    let output = std::path::absolute(&args.output)?;
    let dockerfile = args
        .dockerfile
        .then(|| Dockerfile::new(&args, &project, &loaded.config, &output))
        .transpose()?;
    let mut files = gather(&args, &project, &loaded, &output)?;
    let compiles = args.compile || loaded.config.package.compile;
    // The directory stays until the zip has been written.
    let _compiled = compiles
        .then(|| super::compile::add(&mut files, &project))
        .transpose()?;

    let sizes = Sizes::measure(&files)?;
    stdout::print(sizes.table());
    if !sizes.fits() {
        bail!(
            "Lambda accepts {} bytes, this is {}; exclude files in .surusignore, leave out \
             extensions, or deploy a container image of up to 10 GB (surus lambda template \
             dockerfile). The largest files:\n{}",
            sizes::UNZIPPED,
            sizes.total,
            sizes.largest(10)
        );
    }
    let zipped = write(&files, &output)?;
    say!("{}  zipped: {}", mebibytes(zipped), output.display());
    if zipped > sizes::UPLOADED {
        say!(
            "! Lambda accepts zips above 50 MiB only from S3: `surus lambda deploy --bucket`, \
             `sam deploy`, CDK and Serverless upload it"
        );
    }
    if let Some(dockerfile) = dockerfile {
        dockerfile.write()?;
    }
    Ok(())
}

/// The Dockerfile next to the zip.
struct Dockerfile {
    path: PathBuf,
    text: String,
}

impl Dockerfile {
    /// Refuses to replace a Dockerfile that differs from the generated one.
    fn new(args: &Args, project: &Path, config: &Config, zip: &Path) -> anyhow::Result<Dockerfile> {
        let path = zip.with_file_name("Dockerfile");
        let program = engines::surus_php::find(config.engine.surus_php.as_deref())?;
        let wanted = extensions::wanted(project, &configured_extensions(args, config))?;
        let text = dockerfile::write(&program, &wanted)?;
        match std::fs::read_to_string(&path) {
            Ok(there) if there != text => bail!(
                "--dockerfile: {} exists and differs from the generated one; move it away, or \
                 merge the output of surus lambda template dockerfile",
                path.display()
            ),
            _ => Ok(Dockerfile { path, text }),
        }
    }

    fn write(&self) -> anyhow::Result<()> {
        std::fs::write(&self.path, &self.text)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        say!("wrote {} for a container image", self.path.display());
        let ignore = self.path.with_file_name(".dockerignore");
        if ignore.exists() {
            say!("kept the existing {}", ignore.display());
            return Ok(());
        }
        std::fs::write(&ignore, dockerfile::ignore())
            .with_context(|| format!("cannot write {}", ignore.display()))?;
        say!("wrote {}, which leaves out private files", ignore.display());
        Ok(())
    }
}

/// The extensions that the user lists.
fn configured_extensions(args: &Args, config: &Config) -> Vec<String> {
    let configured = config.package.extensions.iter();
    configured.chain(&args.extensions).cloned().collect()
}

/// Collects the files of the package.
fn gather(
    args: &Args,
    project: &Path,
    loaded: &Loaded,
    output: &Path,
) -> anyhow::Result<PackageFiles> {
    let installed = crate::cli::block_on(ask_php(project, &loaded.config))?;
    let asked = configured_extensions(args, &loaded.config);
    let chosen = extensions::choose(project, &installed.extension_dir, &asked, &installed.loaded)?;
    let mut files = PackageFiles::default();
    let placed = php::add(&installed, &chosen.load, &mut files)?;
    let bootstrap = bootstrap::find(args.bootstrap.as_deref(), placed.machine)?;
    files.copy("bootstrap", &bootstrap, true)?;
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
    let place = package::place(project);
    files.text(
        application::inside_of(place, "surus.toml"),
        settings::compose(
            table,
            &placed,
            script.as_deref(),
            symfony::is_there(project)?,
        )?,
    )?;
    let mut except = vec![output.to_path_buf()];
    if args.dockerfile {
        except.push(output.with_file_name("Dockerfile"));
    }
    let left_out = application::add(project, &except, place, &mut files)?;

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
    if !left_out.is_empty() {
        say!("{left_out}");
    }
    Ok(files)
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
    let asked = PoolConfig {
        name: entry.name,
        entry,
        config,
        learned: Default::default(),
    };
    let pool = engine_setup::boot_one(&asked, project, &Arc::new(Metrics::default())).await?;
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

/// Writes the zip atomically and returns its size.
fn write(files: &PackageFiles, output: &Path) -> anyhow::Result<u64> {
    let cannot = || format!("cannot write {}", output.display());
    let directory = output.parent().unwrap_or(Path::new("/"));
    let mut fresh = tempfile::Builder::new()
        .prefix(".surus-package")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(directory)
        .with_context(cannot)?;
    let (began, count) = (Instant::now(), files.len());
    let terminal = std::io::stderr().is_terminal();
    archive::write(files, fresh.as_file_mut(), |done| {
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
