//! `surus new`: writes a small, runnable PHP project.

mod package;

use std::borrow::Cow;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;

use crate::cli::stdout::say;

/// Where a project with an API has its copy of the Composer package.
const PACKAGE: &str = "packages/surus";

/// The files of a project of plain PHP.
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
#[command(allow_missing_positional = true)]
pub struct New {
    /// What the project is: `api` for a JSON API with `Surus\Api`; plain PHP if it is left out
    #[arg(value_name = "KIND", hide_possible_values = true)]
    kind: Option<ProjectKind>,
    /// Directory of the project, which is new or empty
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ProjectKind {
    Api,
}

/// A file of a project: its path in it, and its text.
type ProjectFile = (Cow<'static, str>, Cow<'static, str>);

pub fn run(New { kind, dir }: New) -> anyhow::Result<()> {
    if let (None, Some(name)) = (kind, dir.to_str())
        && ProjectKind::from_str(name, false).is_ok()
    {
        bail!(
            "`{name}` is a kind of project, and the directory is missing: `surus new {name} DIR`; \
             a directory of this name is `surus new ./{name}`"
        );
    }
    fs::create_dir_all(&dir)
        .with_context(|| format!("cannot create the directory {}", dir.display()))?;
    check_empty(&dir)?;
    let (files, tests): (Vec<ProjectFile>, _) = match kind {
        None => (
            FILES
                .map(|(name, text)| (name.into(), text.into()))
                .to_vec(),
            "app",
        ),
        Some(ProjectKind::Api) => (api(&dir), "run"),
    };
    for (name, text) in &files {
        let path = dir.join(&**name);
        write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        if !name.starts_with(PACKAGE) {
            say!("written: {}", path.display());
        }
    }
    if files.iter().any(|(name, _)| name.starts_with(PACKAGE)) {
        say!("written: {}, the library", dir.join(PACKAGE).display());
    }
    let named = shell_word(&dir.display().to_string());
    // `--watch` is for the user who edits the application.
    let watch = match surus_sys::process::is_root() {
        true => "",
        false => "--watch ",
    };
    say!(
        "\nNext:\n  surus serve {watch}{named}\n      serves it at http://127.0.0.1:8080\n  php \
         {named}/tests/{tests}.php\n      runs its tests\n  surus check {named}\n      shows what \
         would run, and what is misconfigured"
    );
    Ok(())
}

/// The files of a project with an API: the skeleton and the package, as in `Surus\Api\Project`.
fn api(dir: &Path) -> Vec<ProjectFile> {
    let name = api_name(dir);
    let mut files = Vec::new();
    for &(path, text) in package::FILES {
        files.push((format!("{PACKAGE}/{path}").into(), text.into()));
        if let Some(path) = path.strip_prefix("skeleton/") {
            let path = match path {
                "gitignore" => ".gitignore",
                "autoload.php" => "vendor/autoload.php",
                path => path,
            };
            files.push((path.into(), text.replace("NAME", &name).into()));
        }
    }
    files
}

/// The name of an API, from its directory's.
fn api_name(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    match words.is_empty() {
        true => "api".into(),
        false => words.join("-").to_ascii_lowercase(),
    }
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
        fs::create_dir_all(parent)?;
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
