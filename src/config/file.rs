//! Reads `surus.toml`.

use std::path::Path;

use anyhow::{Context, anyhow};

use super::Config;

/// Reads and checks the file. An error names the file, the line and the allowed values.
pub fn read(path: &Path) -> anyhow::Result<toml::Table> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    // Only for its error, which knows the line; the environment is merged into the table.
    toml::from_str::<Config>(&text)
        .and_then(|_| toml::from_str(&text))
        .map_err(|error| {
            let line = error.span().map_or(1, |span| {
                1 + text[..span.start.min(text.len())].matches('\n').count()
            });
            anyhow!("{}:{line}: {}", path.display(), error.message())
        })
}
