//! `surus top`: shows what a running surus does, again every second.

mod plain;
mod screen;
mod snapshots;
mod view;

use std::io::IsTerminal;

use anyhow::bail;

use self::snapshots::Snapshots;
use super::options::Project;
use crate::cli::stdout::{self, say};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    project: Project,
    /// Print the state once and exit
    #[arg(long)]
    once: bool,
    /// Print JSON, one object a second; with --once, a single one
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    if !args.once && !args.json && !std::io::stdout().is_terminal() {
        bail!("stdout is not a terminal; print the state with --once, or --json for programs");
    }
    super::block_on(async {
        let mut snapshots = Snapshots::open(&args.project).await?;
        match (args.once, args.json) {
            (false, false) => screen::run(snapshots).await,
            (false, true) => loop {
                say!("{}", serde_json::to_string(&snapshots.next().await?)?);
                if stdout::has_failed() {
                    return Ok(());
                }
            },
            (true, is_json) => {
                // The first one may have no rates yet.
                let mut snapshot = snapshots.next().await?;
                if snapshot.requests_per_second.is_none() {
                    snapshot = snapshots.next().await?;
                }
                match is_json {
                    true => say!("{}", serde_json::to_string(&snapshot)?),
                    false => stdout::print(plain::text(&snapshot)),
                }
                Ok(())
            }
        }
    })
}
