//! `surus lambda package`: builds a function's zip.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cli::options::Project;
use crate::cli::packaging::{self, Gathered, PackageRequest};
use crate::cli::stdout::{self, say};
use crate::config::Config;
use crate::deploy::dockerfile;
use crate::deploy::dockerignore::{self, Dockerignore};
use crate::engines;
use crate::package::bootstrap::NamedProgram;
use crate::package::kind::PackageKind;
use crate::package::left_out::LeftOut;
use crate::package::sizes::{self, Sizes, mebibytes};
use crate::package::{PackageFiles, archive, extensions};

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
    /// Statically linked surus (make musl) [default: this one, the `bootstrap` next to it, or that
    /// of the Debian package]
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
    let (project, loaded) = packaging::begin(&args.project)?;
    let output = std::path::absolute(&args.output)?;
    let dockerfile = args
        .dockerfile
        .then(|| Dockerfile::new(&args, &project, &loaded.config, &output))
        .transpose()?;
    let mut except = vec![output.clone()];
    if args.dockerfile {
        except.push(output.with_file_name("Dockerfile"));
    }
    let request = PackageRequest {
        kind: PackageKind::Function,
        project: &project,
        loaded: &loaded,
        extensions: packaging::extensions(&loaded.config, &args.extensions),
        surus: NamedProgram {
            path: args.bootstrap.as_deref(),
            option: "--bootstrap",
            may_be_dynamic: false,
        },
        except,
    };
    let Gathered {
        mut files,
        surus,
        left_out,
        place,
    } = request.gather()?;
    let ignored = dockerfile
        .is_some()
        .then(|| Ignored::new(&project, &output, place, &files, &left_out));
    files.copy("bootstrap", surus, true)?;
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
    let zipped = packaging::write(&output, 0o644, files.len(), |file, progress| {
        archive::write(&files, file, progress)
    })?;
    say!("{}  zipped: {}", mebibytes(zipped), output.display());
    if zipped > sizes::UPLOADED {
        say!(
            "! Lambda accepts zips above 50 MiB only from S3: `surus lambda deploy --bucket`, \
             `sam deploy`, CDK and Serverless upload it"
        );
    }
    packaging::warn_if_sent(&project, &loaded.config, &output);
    if let (Some(dockerfile), Some(ignored)) = (dockerfile, ignored) {
        dockerfile.write(&ignored)?;
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
        let wanted = extensions::wanted(project, &packaging::extensions(config, &args.extensions))?;
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

    fn write(&self, ignored: &Ignored) -> anyhow::Result<()> {
        std::fs::write(&self.path, &self.text)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        say!("wrote {} for a container image", self.path.display());
        let ignore = self.path.with_file_name(".dockerignore");
        match std::fs::read_to_string(&ignore) {
            Ok(text) => {
                say!("kept the existing {}", ignore.display());
                ignored.say_let_in(&text, &ignore);
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", ignore.display()));
            }
        }
        let packaged = ignored.packaged.iter().map(String::as_str);
        let text = dockerignore::write(ignored.private.iter().map(PathBuf::as_path), packaged);
        std::fs::write(&ignore, text)
            .with_context(|| format!("cannot write {}", ignore.display()))?;
        say!("wrote {}, which leaves out private files", ignore.display());
        Ok(())
    }
}

/// How many private files are named that `.dockerignore` lets into the image.
const NAMED: usize = 10;

/// The files for `.dockerignore`, relative to the project.
struct Ignored {
    private: BTreeSet<PathBuf>,
    packaged: Vec<String>,
}

impl Ignored {
    fn new(
        project: &Path,
        zip: &Path,
        place: &str,
        files: &PackageFiles,
        left_out: &LeftOut,
    ) -> Ignored {
        let mut private = left_out.private().clone();
        // Docker reads both and needs them.
        private.retain(|path| {
            !["Dockerfile", ".dockerignore"]
                .map(Path::new)
                .contains(&&**path)
        });
        // The package itself, whatever its name.
        private.extend(zip.strip_prefix(project).map(Path::to_path_buf));
        let of_project = files.iter().filter_map(|(name, _)| {
            let name = match place {
                "" => name,
                place => name.strip_prefix(place)?.strip_prefix('/')?,
            };
            project.join(name).is_file().then(|| name.to_owned())
        });
        Ignored {
            packaged: of_project.collect(),
            private,
        }
    }

    fn say_let_in(&self, text: &str, ignore: &Path) {
        let ignore_rules = Dockerignore::parse(text);
        let let_in: Vec<_> = self
            .private
            .iter()
            .filter(|path| !ignore_rules.excludes(path))
            .map(|path| path.display().to_string())
            .collect();
        if let_in.is_empty() {
            return;
        }
        let more = match let_in.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        say!(
            "! {} seems to let private files into the image: {}{more}; add them, or move it away \
             for another one",
            ignore.display(),
            let_in[..let_in.len().min(NAMED)].join(", ")
        );
    }
}
