//! Reads `surus.toml`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, anyhow};

use super::Config;
use super::type_error::explain;

/// Reads and checks the file, and returns it open. An error names the file, the line and the
/// allowed values.
pub fn read(path: &Path) -> anyhow::Result<(toml::Table, File)> {
    // It may be a pipe: `--config <(...)`.
    let (text, file) = File::open(path)
        .and_then(text)
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

/// The longest file that is read. Its owner is checked only afterwards, and may be another user.
const MAX_LEN: u64 = 1 << 20;

/// The text of a configuration file.
pub(super) fn text(mut file: File) -> io::Result<(String, File)> {
    let mut text = String::new();
    (&mut file).take(MAX_LEN + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_LEN {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    Ok((text, file))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn configuration_of_any_length_is_not_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("surus.toml");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let error = read(&path).unwrap_err();
        assert!(format!("{error:#}").contains("longer than 1 MiB"));
    }
}
