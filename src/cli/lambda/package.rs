//! `surus lambda package`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};

use crate::cli::boot::{self, Asked};
use crate::cli::options::Project;
use crate::cli::stdout::{self, say};
use crate::config::{Config, Loaded};
use crate::deploy::dockerfile;
use crate::engines;
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::package::php::Php;
use crate::package::sizes::{self, Sizes, mebibytes};
use crate::package::{
    self, Files, application, archive, bootstrap, extensions, library, php, settings, symfony,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    project: Project,
    /// The zip to write
    #[arg(short, long, value_name = "FILE", default_value = "function.zip")]
    output: PathBuf,
    /// PHP extension that the application uses and composer.json does not name; may be repeated
    #[arg(long = "extension", value_name = "NAME")]
    extensions: Vec<String>,
    /// A surus that needs no library (make musl); this one, or `bootstrap` beside it, when not given
    #[arg(long, value_name = "FILE")]
    bootstrap: Option<PathBuf>,
    /// Bring along what OPcache makes of the PHP files, so that no cold start has to compile them; needs root or user namespaces
    #[arg(long)]
    compile: bool,
    /// Write a Dockerfile with the same extensions beside the zip, too, for a container image
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
    // Until the zip has been written.
    let _compiled = compiles
        .then(|| super::compile::add(&mut files, &project))
        .transpose()?;

    let sizes = Sizes::of(&files)?;
    stdout::print(sizes.table());
    if !sizes.fits() {
        bail!(
            "Lambda takes {} bytes, and this is {}; exclude files in .surusignore or leave out extensions, or deploy a container \
             image (surus lambda template dockerfile), which may have 10 GB. The largest files:\n{}",
            sizes::UNZIPPED,
            sizes.total,
            sizes.largest(10)
        );
    }
    let zipped = write(&files, &output)?;
    say!("{}  zipped: {}", mebibytes(zipped), output.display());
    if zipped > sizes::UPLOADED {
        say!(
            "! above 50 MiB Lambda takes a zip from S3 only: aws s3 cp it, and name bucket and key; `sam deploy`, CDK and \
             Serverless do that by themselves"
        );
    }
    if let Some(dockerfile) = dockerfile {
        dockerfile.write()?;
    }
    Ok(())
}

/// The Dockerfile beside the zip.
struct Dockerfile {
    path: PathBuf,
    text: String,
}

impl Dockerfile {
    /// Refuses to replace one that somebody has changed, or that is not ours.
    fn new(args: &Args, project: &Path, config: &Config, zip: &Path) -> anyhow::Result<Dockerfile> {
        let path = zip.with_file_name("Dockerfile");
        let program = engines::find_program(config.engine.php.as_deref())?;
        let wanted = extensions::wanted(project, &asked(args, config))?;
        let text = dockerfile::of(&program, &wanted)?;
        match std::fs::read_to_string(&path) {
            Ok(there) if there != text => bail!(
                "--dockerfile: {} is there already, and differs from what would be written; move it away, or take over the \
                 difference: surus lambda template dockerfile",
                path.display()
            ),
            _ => Ok(Dockerfile { path, text }),
        }
    }

    fn write(&self) -> anyhow::Result<()> {
        std::fs::write(&self.path, &self.text)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        say!("for a container image: {}", self.path.display());
        let ignore = self.path.with_file_name(".dockerignore");
        if ignore.exists() {
            say!("{} stays as it is", ignore.display());
            return Ok(());
        }
        std::fs::write(&ignore, dockerfile::ignore())
            .with_context(|| format!("cannot write {}", ignore.display()))?;
        say!("private files stay out of it: {}", ignore.display());
        Ok(())
    }
}

/// The extensions that somebody has named.
fn asked(args: &Args, config: &Config) -> Vec<String> {
    let configured = config.package.extensions.iter();
    configured.chain(&args.extensions).cloned().collect()
}

/// Everything that belongs into the package.
fn gather(args: &Args, project: &Path, loaded: &Loaded, output: &Path) -> anyhow::Result<Files> {
    let installed = super::super::block_on(ask_php(project, &loaded.config))?;
    let asked = asked(args, &loaded.config);
    let chosen = extensions::choose(project, &installed.extension_dir, &asked, &installed.loaded)?;
    let mut files = Files::default();
    let placed = php::add(&installed, &chosen.load, &mut files)?;
    let bootstrap = bootstrap::find(args.bootstrap.as_deref(), placed.machine)?;
    files.copy("bootstrap", &bootstrap, true)?;
    let table = match &loaded.file {
        Some(file) => toml::from_str(&std::fs::read_to_string(file)?)
            .with_context(|| format!("{}", file.display()))?,
        None => toml::Table::new(),
    };
    let script = match super::runtime::events_script(project, &loaded.config) {
        Ok(script) => library::add(project, &script, &mut files)?,
        // Needed for events that are not HTTP alone.
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
            "left out, though PHP loads them here: {}; name what the application uses with --extension, or in [package] \
             extensions",
            chosen.left_out.join(", ")
        );
    }
    if !left_out.is_empty() {
        say!("{left_out}");
    }
    Ok(files)
}

/// Starts PHP as the application would have it, and asks it what it is.
async fn ask_php(project: &Path, config: &Config) -> anyhow::Result<Php> {
    let entry = engines::find("classic")?;
    let mut config = config.clone();
    config.engine.name = Some(entry.name.into());
    config.engine.workers = Some(1);
    // It is asked, and nothing more: who runs it elsewhere does not matter.
    if !surus_sys::process::is_root() {
        config.engine.user = None;
        config.engine.group = None;
    }
    let program = engines::find_program(config.engine.php.as_deref())?;
    let asked = Asked {
        name: entry.name,
        entry,
        config,
    };
    let pool = boot::boot_one(&asked, project, &Arc::new(Metrics::default())).await?;
    let report = pool.report();
    pool.drain().await;
    let files = std::iter::once(report.get("ini_file")).chain(report.get("ini_scanned").split(','));
    let names = report.get("extensions").split(',');
    Ok(Php {
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

/// Writes the zip, complete or not at all; returns its size.
fn write(files: &Files, output: &Path) -> anyhow::Result<u64> {
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
        // Enough to see that it goes on.
        if terminal && (done % 50 == 0 || done == count) {
            log::tell(format_args!(
                "\r{done} of {count} files, {:.0} s",
                began.elapsed().as_secs_f32()
            ));
        }
    })
    .with_context(cannot)?;
    if terminal {
        log::tell("\n");
    }
    let size = fresh.as_file().metadata()?.len();
    fresh.persist(output).with_context(cannot)?;
    Ok(size)
}
