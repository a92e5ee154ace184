//! Reads TOML and JSON files of the lab. The error for a wrong one names mistake, place and remedy.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::de::DeserializeOwned;

/// Where everything is.
#[derive(Debug, Clone)]
pub struct Places {
    /// `lab/`: experiments, contestants, applications, published numbers.
    pub lab: PathBuf,
    /// `target/lab/`: builds, and the state of runs.
    pub work: PathBuf,
    /// The repository.
    pub repository: PathBuf,
    /// The program to measure.
    pub surus: PathBuf,
}

impl Places {
    /// The file of `lab/` with this name, such as `experiments/spdy.toml`. An unknown name is
    /// reported with those that exist.
    pub fn find(&self, kind: &str, name: &str, rest: &str) -> anyhow::Result<PathBuf> {
        let file = self.lab.join(kind).join(format!("{name}{rest}"));
        if !file.is_file() {
            let known = self.names(kind)?.join(", ");
            bail!("there is no {}; known: {known}", file.display());
        }
        Ok(file)
    }

    /// Names of the TOML files or directories of a kind.
    pub fn names(&self, kind: &str) -> anyhow::Result<Vec<String>> {
        let directory = self.lab.join(kind);
        if !directory.exists() {
            return Ok(Vec::new());
        }
        let entries = std::fs::read_dir(&directory)
            .with_context(|| format!("cannot read {}", directory.display()))?;
        let mut names = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let is_toml = path.extension().is_some_and(|end| end == "toml");
            if let Some(stem) = path.file_stem().filter(|_| is_toml || path.is_dir()) {
                names.push(stem.to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }
}

/// Reads a JSON file of `writer`'s. `None` if there is none.
pub fn read_json<T: DeserializeOwned>(file: &Path, writer: &str) -> anyhow::Result<Option<T>> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| format!("cannot read {}", file.display()))?,
    };
    let found = serde_json::from_str(&text);
    found.with_context(|| format!("{} is not what {writer} writes", file.display()))
}

/// Reads a TOML file. Its first line must be a comment: it tells readers whose rules the file
/// follows.
pub fn read<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    ensure!(
        text.starts_with("# "),
        "{}:1: the first line must be a comment that says whose table or program this is and \
         whose rules it follows, as in `# Spdy (NickStarlight/php-spdy-benchmarks): …`",
        file.display()
    );
    toml::from_str(&text).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))
}
