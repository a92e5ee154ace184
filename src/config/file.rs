//! Reads `surus.toml`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow};

use super::Config;
use super::type_error::explain;

/// Reads and checks the file, and returns it open. An error names the file, the line and the
/// allowed values.
pub fn read(path: &Path) -> anyhow::Result<(toml::Table, File)> {
    let mut text = String::new();
    let file = File::open(path)
        .and_then(|mut file| file.read_to_string(&mut text).map(|_| file))
        .with_context(|| format!("cannot read {}", path.display()))?;
    // Only for its error, which knows the line; the environment is merged into the table.
    toml::from_str::<Config>(&text)
        .and_then(|_| Ok((toml::from_str(&text)?, file)))
        .map_err(|error| {
            let line = error.span().map_or(1, |span| {
                1 + text[..span.start.min(text.len())].matches('\n').count()
            });
            let message = explain(error.message(), text.lines().nth(line - 1));
            anyhow!("{}:{line}: {message}", path.display())
        })
}
