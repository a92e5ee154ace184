//! `surus build`: makes one executable of an application, its PHP and Surus.

use std::path::PathBuf;

use anyhow::{Context, bail};

use super::options::Project;
use super::packaging::{self, Gathered, PackageRequest};
use super::stdout::{self, say};
use crate::package::bootstrap::NamedProgram;
use crate::package::executable::write;
use crate::package::kind::PackageKind;
use crate::package::sizes::{Sizes, mebibytes};

#[derive(Debug, clap::Args)]
pub struct Build {
    #[command(flatten)]
    project: Project,
    /// Executable to write [default: the name of the application's directory]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// PHP extension that the application uses but composer.json does not list; may be repeated
    #[arg(long = "extension", value_name = "NAME")]
    extensions: Vec<String>,
    /// Statically linked surus (make musl) [default: this one, the `bootstrap` next to it, or that
    /// of the Debian package]
    #[arg(long, value_name = "FILE")]
    surus: Option<PathBuf>,
    /// Accept a surus that needs shared libraries: the executable runs only where they are
    #[arg(long)]
    dynamic: bool,
}

pub fn run(args: Build) -> anyhow::Result<()> {
    let (project, loaded) = packaging::begin(&args.project)?;
    let output = match args.output {
        Some(output) => output,
        None => {
            let real = project.canonicalize()?;
            let name = real.file_name();
            name.context("the application's directory has no name; name the executable (--output)")?
                .into()
        }
    };
    let output = std::path::absolute(output)?;
    if output.is_dir() {
        bail!(
            "{} is a directory; name the executable to write (--output)",
            output.display()
        );
    }
    let request = PackageRequest {
        kind: PackageKind::Executable,
        project: &project,
        loaded: &loaded,
        extensions: packaging::extensions(&loaded.config, &args.extensions),
        surus: NamedProgram {
            path: args.surus.as_deref(),
            option: "--surus",
            may_be_dynamic: args.dynamic,
        },
        except: vec![output.clone()],
    };
    let Gathered { files, surus, .. } = request.gather()?;
    let sizes = Sizes::measure(&files)?;
    stdout::print(sizes.directories());
    say!("{}  unpacked", mebibytes(sizes.total));
    let size = packaging::write(&output, 0o755, files.len(), |file, progress| {
        write::write(&surus, &files, file, progress)
    })?;
    say!("{}  written: {}", mebibytes(size), output.display());
    packaging::warn_if_sent(&project, &loaded.config, &output);
    Ok(())
}
