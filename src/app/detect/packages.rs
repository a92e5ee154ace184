//! Reads the versions of an application's packages, as Composer notes them.

use std::path::Path;

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

/// The version of a package, without the `v` of its tag.
pub fn version(project: &Path, name: &str) -> Option<String> {
    // A deployment may have only one of them.
    let files = ["composer.lock", "vendor/composer/installed.json"];
    files.iter().find_map(|file| {
        let lists: Lists = serde_json::from_str(&super::read(&project.join(file))?).ok()?;
        let package = lists
            .packages
            .into_iter()
            .find(|package| package.name == name)?;
        Some(package.version.trim_start_matches('v').to_string())
    })
}
