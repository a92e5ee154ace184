//! `surus new`: writes a small PHP project that runs.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cli::stdout::say;

/// The files of a project.
const FILES: [(&str, &str); 6] = [
    (
        "public/index.php",
        include_str!("new/project/public/index.php"),
    ),
    (
        "public/style.css",
        include_str!("new/project/public/style.css"),
    ),
    ("src/app.php", include_str!("new/project/src/app.php")),
    ("tests/app.php", include_str!("new/project/tests/app.php")),
    ("surus.toml", include_str!("new/project/surus.toml")),
    ("README.md", include_str!("new/project/README.md.in")),
];

#[derive(Debug, clap::Args)]
pub struct New {
    /// Directory of the project, which is new or empty
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub fn run(New { dir }: New) -> anyhow::Result<()> {
    fs::create_dir_all(&dir)
        .with_context(|| format!("cannot create the directory {}", dir.display()))?;
    check_empty(&dir)?;
    for (name, text) in FILES {
        let path = dir.join(name);
        write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        say!("written: {}", path.display());
    }
    let named = shell_word(&dir.display().to_string());
    // `--watch` is for the user who edits the application.
    let watch = match surus_sys::process::is_root() {
        true => "",
        false => "--watch ",
    };
    say!(
        "\nNext:\n  surus serve {watch}{named}\n      serves it at http://127.0.0.1:8080\n  php \
         {named}/tests/app.php\n      runs its tests\n  surus check {named}\n      shows what \
         would run, and what is misconfigured"
    );
    Ok(())
}

/// The text as one word of a shell's command, and not as an option.
fn shell_word(text: &str) -> String {
    let prefix = if text.starts_with('-') { "./" } else { "" };
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=~".contains(c);
    match text.chars().all(is_plain) && !text.starts_with('~') {
        true => format!("{prefix}{text}"),
        false => format!("'{prefix}{}'", text.replace('\'', r"'\''")),
    }
}

fn check_empty(dir: &Path) -> anyhow::Result<()> {
    let mut entries = fs::read_dir(dir)
        .with_context(|| format!("cannot read the directory {}", dir.display()))?;
    match entries.next() {
        None => Ok(()),
        Some(entry) => bail!(
            "{} is not empty: it has {}. `surus new` overwrites nothing; name a directory that is \
             new or empty, or run `surus init` for an application that exists",
            dir.display(),
            entry?.file_name().display()
        ),
    }
}

/// Writes a file that must not exist.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        match fs::create_dir(parent) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn configuration_is_valid_and_so_is_what_it_shows() {
        let (_, text) = FILES
            .iter()
            .find(|(name, _)| *name == "surus.toml")
            .unwrap();
        toml::from_str::<Config>(text).unwrap();
        let shown: Vec<_> = (text.lines())
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')))
            .zip(text.lines())
            .map(|(shown, line)| shown.unwrap_or(line))
            .collect();
        let config: Config = toml::from_str(&shown.join("\n")).unwrap();
        assert_eq!(config.engine.workers, Some(4));
    }
}
