//! Hashes everything that numbers depend on, so that no run mixes rounds of two builds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::application::Application;
use crate::build;
use crate::experiment::Experiment;
use crate::files::Places;
use crate::results::Facts;

/// Parts of the Composer package that applications and functions use.
const PACKAGE: [&str; 3] = ["php/boot", "php/lambda", "php/src"];

/// A hash of an experiment's files and programs, with the versions of its contestants.
pub fn of(
    places: &Places,
    experiment: &Experiment,
    contestants: &BTreeMap<String, Facts>,
) -> anyhow::Result<String> {
    let hash = build::hash(&as_paths(&paths(places, experiment)?))?;
    // One that is absent has no versions.
    let version = |(name, facts): (&String, &Facts)| format!("{name} {:?}", facts.versions);
    let versions: Vec<_> = contestants.iter().map(version).collect();
    Ok(format!("{hash} {}", versions.join(" ")))
}

/// A hash of the files and programs of several experiments.
pub fn of_all(places: &Places, experiments: &[Experiment]) -> anyhow::Result<String> {
    let mut all = BTreeSet::new();
    for experiment in experiments {
        all.extend(paths(places, experiment)?);
    }
    build::hash(&as_paths(&all))
}

fn as_paths(paths: &BTreeSet<PathBuf>) -> Vec<&Path> {
    paths.iter().map(PathBuf::as_path).collect()
}

/// Files and directories that exist, each once.
fn paths(places: &Places, experiment: &Experiment) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut paths = BTreeSet::from([
        places.find("experiments", &experiment.name, ".toml")?,
        places.lab.join("applications/php.ini"),
    ]);
    for load in &experiment.loads {
        let name = experiment.application(load);
        if !name.is_empty() {
            let application = Application::read(places, name)?;
            paths.extend(
                application
                    .sources()
                    .map(|path| places.repository.join(path)),
            );
            paths.extend(application.from.map(|from| places.repository.join(from)));
            paths.insert(application.directory);
        }
    }
    let uses = experiment.contestants.iter().map(|entry| &entry.uses);
    paths.extend(uses.map(|uses| places.lab.join("contestants").join(uses)));
    paths.extend(PACKAGE.map(|part| places.repository.join(part)));
    paths.extend(programs(&places.surus));
    // Another build of the load generator measures in another way.
    paths.extend(std::env::current_exe());
    paths.retain(|path| path.exists());
    Ok(paths)
}

/// `surus`, and the engines of PHP next to it, such as `surus-php8.2`.
fn programs(surus: &Path) -> Vec<PathBuf> {
    let mut programs = vec![surus.to_path_buf()];
    let entries = surus.parent().and_then(|parent| parent.read_dir().ok());
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let version = name
            .to_str()
            .and_then(|name| name.strip_prefix("surus-php"));
        if version.is_some_and(|it| it.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit())) {
            programs.push(entry.path());
        }
    }
    programs
}
