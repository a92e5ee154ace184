//! Finds an application's packages and their versions, as Composer notes them.

use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Deserialize)]
struct Lists {
    #[serde(default)]
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
}

#[derive(Default, Deserialize)]
struct Composer {
    #[serde(default)]
    config: ComposerConfig,
}

#[derive(Default, Deserialize)]
struct ComposerConfig {
    #[serde(rename = "vendor-dir")]
    vendor_dir: Option<String>,
}

/// The directory of the packages: `vendor`, unless composer.json names another one.
pub fn directory(project: &Path) -> PathBuf {
    let composer = super::read(&project.join("composer.json"));
    let composer: Option<Composer> = composer.and_then(|it| serde_json::from_str(&it).ok());
    let named = composer.and_then(|composer| composer.config.vendor_dir);
    let named = named.filter(|name| !name.is_empty());
    project.join(named.as_deref().unwrap_or("vendor"))
}

/// The version of a package, without the `v` of its tag.
pub fn version(project: &Path, name: &str) -> Option<String> {
    // A deployment may have only one of them.
    let files = [
        project.join("composer.lock"),
        directory(project).join("composer/installed.json"),
    ];
    files.iter().find_map(|file| {
        let lists: Lists = serde_json::from_str(&super::read(file)?).ok()?;
        let package = lists
            .packages
            .into_iter()
            .find(|package| package.name == name)?;
        Some(package.version.trim_start_matches('v').to_string())
    })
}
