//! `surus engines`: lists the engines.

use crate::cli::stdout::say;
use crate::engines::CATALOGUE;

pub fn run() -> anyhow::Result<()> {
    for entry in CATALOGUE {
        say!("{:<12}{}", entry.name, entry.what_happens);
        say!(
            "{:<12}application boots {}; survives between requests: {}",
            "",
            entry.boots,
            entry.survives
        );
    }
    Ok(())
}
