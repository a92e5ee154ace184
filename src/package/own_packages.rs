//! Finds packages in `vendor/` that hold the application's own files: Composer's path repositories,
//! copied or linked, and other packages that are links.
//!
//! They are not published, so they may hold the secrets of the project that they come from.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;
use surus_sys::regular_file;

pub(super) const VENDOR: &str = "vendor";

/// Composer's list is at most some MiB long.
const MAX: u64 = 64 << 20;

/// What Composer notes about the packages that it has installed.
#[derive(Deserialize)]
#[serde(untagged)]
enum Installed {
    Composer1(Vec<InstalledPackage>),
    Composer2 {
        #[serde(default)]
        packages: Vec<InstalledPackage>,
    },
}

#[derive(Deserialize)]
struct InstalledPackage {
    #[serde(default)]
    name: String,
    dist: Option<Dist>,
    #[serde(rename = "install-path")]
    path: Option<String>,
}

#[derive(Deserialize)]
struct Dist {
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// The directories of path repositories, relative to the project.
pub(super) fn path_repositories(project: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let list = project.join(VENDOR).join("composer/installed.json");
    if !list.exists() {
        return Ok(Vec::new());
    }
    let says = || {
        format!(
            "cannot read {}, which says which packages are not published; run composer install",
            list.display()
        )
    };
    let bytes = regular_file::read(&list, MAX).with_context(says)?;
    let packages = match serde_json::from_slice(&bytes).with_context(says)? {
        Installed::Composer1(packages) | Installed::Composer2 { packages } => packages,
    };
    let is_path = |package: &InstalledPackage| {
        let dist = package.dist.as_ref();
        dist.is_some_and(|dist| dist.kind.as_deref() == Some("path"))
    };
    let directories = packages.into_iter().filter(is_path).filter_map(|package| {
        // Composer 1 notes no path. Packages outside of vendor/ are like all of the project.
        let path = match &package.path {
            Some(path) => path.strip_prefix("../")?,
            None => &package.name,
        };
        (!path.is_empty()).then(|| Path::new(VENDOR).join(path))
    });
    Ok(directories.collect())
}

/// The path in such a package of `inside`, a path in the project. `is_elsewhere`: its real path is
/// not below that of `vendor/`.
pub(super) fn inside<'a>(
    inside: &'a Path,
    repositories: &[PathBuf],
    is_elsewhere: bool,
) -> Option<&'a Path> {
    let below = |repository: &PathBuf| inside.strip_prefix(repository).ok();
    if let Some(rest) = repositories.iter().find_map(below) {
        return (!rest.as_os_str().is_empty()).then_some(rest);
    }
    let rest = inside.strip_prefix(VENDOR).ok().filter(|_| is_elsewhere)?;
    // Below the directories of the vendor and of the package.
    let mut names = rest.components();
    let (_, _) = (names.next()?, names.next());
    match names.as_path() {
        rest if rest.as_os_str().is_empty() => inside.file_name().map(Path::new),
        rest => Some(rest),
    }
}
