//! `surus check`.

use super::options::Args;

pub fn run(args: Args) -> anyhow::Result<()> {
    let _ = args.load()?;
    Ok(())
}
