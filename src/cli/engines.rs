//! `surus engines`.

use crate::engines::CATALOGUE;

pub fn run() -> anyhow::Result<()> {
    for entry in CATALOGUE {
        println!("{:<12}{}", entry.name, entry.what_happens);
        println!("{:<12}published as {}", "", entry.published_as);
        println!(
            "{:<12}application boots {}; survives between events: {}",
            "", entry.boots, entry.survives
        );
    }
    Ok(())
}
