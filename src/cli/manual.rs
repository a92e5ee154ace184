//! `surus completions` and `surus manual`: what shells and `man` know of the command line.

use std::path::PathBuf;

use anyhow::Context;
use clap_complete::Shell;

use super::stdout;

#[derive(clap::Args)]
pub(super) struct Completions {
    /// The shell: bash, elvish, fish, powershell or zsh
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(clap::Args)]
pub(super) struct Manual {
    /// Existing directory for the pages
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Prints the script.
pub(super) fn completions(args: &Completions) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "surus", &mut script);
    stdout::print(String::from_utf8(script)?);
    Ok(())
}

/// Writes a page for each subcommand.
pub(super) fn manual(args: &Manual) -> anyhow::Result<()> {
    let written = clap_mangen::generate_to(super::command(), &args.dir);
    written.with_context(|| format!("cannot write to {}", args.dir.display()))
}
