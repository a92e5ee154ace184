//! Selects the project's files for the package.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow, bail};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{Match, WalkBuilder};

use super::left_out::LeftOut;
use super::links::CheckedLinks;
use super::{OURS, PackageFiles, own_packages};
use crate::private_files::{self, Class, Purpose, Unopened};

/// Adds the project's files below the package directory `place` and returns what it left out.
/// `except` lists files that the caller writes.
pub fn add(
    project: &Path,
    except: &[PathBuf],
    place: &str,
    files: &mut PackageFiles,
) -> anyhow::Result<LeftOut> {
    let own = own_rules(project)?;
    let left_out = Arc::new(Mutex::new(LeftOut::default()));
    let except: Vec<PathBuf> = except
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    let is_excepted = move |path: &Path| {
        !except.is_empty() && path.canonicalize().is_ok_and(|path| except.contains(&path))
    };
    let root = project.to_path_buf();
    let real_root = project.canonicalize();
    let real_root = real_root.with_context(|| format!("cannot resolve {}", project.display()))?;
    let vendor = project.join(own_packages::VENDOR);
    let repositories = own_packages::path_repositories(project)?;
    let noted = left_out.clone();
    let links = Arc::new(Mutex::new(CheckedLinks::new(project, &real_root)));
    let found = links.clone();
    let walk = WalkBuilder::new(project)
        .standard_filters(false)
        .follow_links(true)
        .filter_entry(move |entry| {
            let inside = entry.path().strip_prefix(&root).unwrap_or(entry.path());
            let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
            if inside.as_os_str().is_empty() {
                return true;
            }
            // Skip an earlier package at the output path without reporting it.
            if is_excepted(entry.path()) {
                return false;
            }
            let path = entry.path();
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            let link = match entry.path_is_symlink() {
                true => found.follow(path).ok(),
                false => None,
            };
            let is_foreign = link
                .as_ref()
                .is_some_and(|link| !link.real.starts_with(&real_root) && link.is_foreign);
            let apart = link
                .as_ref()
                .map(|link| private_files::apart(&link.real, &real_root));
            let why = match own.matched(inside, is_directory) {
                Match::None if is_foreign => Some(LeftOutReason::Foreign),
                _ => {
                    let real = match &link {
                        Some(link) => Ok(link.real.clone()),
                        None => found.resolve(path),
                    };
                    let libraries = found.resolve(&vendor);
                    let is_elsewhere = match (real, libraries) {
                        (Ok(real), Ok(libraries)) => !real.starts_with(libraries),
                        _ => true,
                    };
                    let names = PathNames {
                        inside,
                        real: apart.as_deref(),
                        in_package: own_packages::inside(inside, &repositories, is_elsewhere),
                    };
                    why_left_out(&own, names, path, is_directory)
                }
            };
            let Some(why) = why else {
                if let Some(link) = link {
                    found.add(path, link.real);
                }
                return true;
            };
            let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.note(why.name(), inside, is_directory);
            if matches!(why, LeftOutReason::Class(class) if class.is_secret()) {
                noted.note_private(inside);
            }
            false
        })
        .build();
    for entry in walk {
        let entry = entry.map_err(|error| {
            anyhow!("{error}; exclude a dangling or circular link in .surusignore")
        })?;
        let Some(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            continue;
        }
        let inside = entry.path().strip_prefix(project)?;
        let name = inside
            .to_str()
            .with_context(|| format!("the name of {} is not UTF-8", entry.path().display()))?;
        // `settings.rs` writes the package's own surus.toml.
        if name == "surus.toml" {
            continue;
        }
        if name.starts_with(&format!("{OURS}/")) {
            bail!(
                "{} has a name that Surus uses in the package; rename it or exclude it in \
                 .surusignore",
                entry.path().display()
            );
        }
        if !kind.is_file() {
            bail!(
                "{} is neither a file nor a directory; exclude it in .surusignore",
                entry.path().display()
            );
        }
        let executable = entry.metadata()?.permissions().mode() & 0o111 != 0;
        let links = links.lock().unwrap_or_else(PoisonError::into_inner);
        let real = links.resolve(entry.path())?;
        files.copy_unlinked(inside_of(place, name), real, executable)?;
    }
    let mut left_out = left_out.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut *left_out))
}

/// Why a file or directory is left out.
enum LeftOutReason {
    /// A link that another user could have made to read the file.
    Foreign,
    /// The application's own rules.
    OwnRules,
    Class(&'static Class),
}

impl LeftOutReason {
    fn name(&self) -> &'static str {
        match self {
            LeftOutReason::Foreign => "links to another user's files",
            LeftOutReason::OwnRules => OWN_RULES,
            LeftOutReason::Class(class) => class.name,
        }
    }
}

/// The names that classify a file or directory.
struct PathNames<'a> {
    /// The path in the project.
    inside: &'a Path,
    /// Where a link leads.
    real: Option<&'a Path>,
    /// The path in a package in `vendor/` that holds the application's own files.
    in_package: Option<&'a Path>,
}

/// Why a file or directory is left out. The application's own rules come first.
fn why_left_out(
    own: &Gitignore,
    names: PathNames<'_>,
    path: &Path,
    is_directory: bool,
) -> Option<LeftOutReason> {
    match own.matched(names.inside, is_directory) {
        Match::Ignore(_) => return Some(LeftOutReason::OwnRules),
        Match::Whitelist(_) => return None,
        Match::None => {}
    }
    let class = |name: &Path| {
        let name = private_files::lowercase(name);
        private_files::class_of(&name, is_directory, Purpose::Packaging)
    };
    let of_real = names.real.and_then(|real| {
        let name = private_files::lowercase(real);
        private_files::class_on_the_way(&name, is_directory, Purpose::Packaging)
    });
    let is_excused =
        |class: &Class| !is_directory && class.excuses(Unopened::new(path), Purpose::Packaging);
    let of_names = [
        class(names.inside),
        of_real,
        names.in_package.and_then(class),
    ];
    let mut classes = of_names.into_iter().flatten();
    classes
        .find(|class| !is_excused(class))
        .map(LeftOutReason::Class)
}

/// The path of `name` in the package directory `place`.
pub fn inside_of(place: &str, name: &str) -> String {
    if place.is_empty() {
        name.into()
    } else {
        format!("{place}/{name}")
    }
}

/// The file with the application's own rules.
const OWN_RULES: &str = ".surusignore";

fn own_rules(project: &Path) -> anyhow::Result<Gitignore> {
    // Match paths relative to the project.
    let mut builder = GitignoreBuilder::new("");
    let own = project.join(OWN_RULES);
    match std::fs::read_to_string(&own) {
        Ok(text) => {
            for (index, line) in text.lines().enumerate() {
                builder
                    .add_line(None, line)
                    .with_context(|| format!("{}:{}", own.display(), index + 1))?;
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", own.display())),
    }
    Ok(builder.build()?)
}

#[cfg(test)]
mod tests;
