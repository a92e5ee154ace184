//! Prepares an experiment: makes its applications and builds its contestants.

use std::collections::BTreeMap;
use std::path::Path;

use crate::application::{Application, Services};
use crate::build;
use crate::contestant::Manifest;
use crate::experiment::{Entry, Experiment, Load};
use crate::files::Places;
use crate::interrupt;
use crate::results::Facts;
use crate::words::Words;

/// A contestant that can be measured.
pub struct Ready<'a> {
    pub entry: &'a Entry,
    pub manifest: Manifest,
    /// Its words by application; the error says why an application cannot be served.
    pub words: BTreeMap<&'a str, Result<Words, String>>,
}

/// Builds a contestant. Without `Ready`, the facts say why it cannot be measured.
pub fn prepare<'a>(
    places: &Places,
    entry: &'a Entry,
    applications: &BTreeMap<&'a str, Result<Words, String>>,
) -> anyhow::Result<(Facts, Option<Ready<'a>>)> {
    let manifest = Manifest::read(places, &entry.uses)?;
    let to = places.work.join("contestants").join(&entry.uses);
    let mut words = BTreeMap::new();
    for (name, application) in applications {
        let filled = match application {
            Err(reason) => Err(reason.clone()),
            Ok(run) => {
                let mut run = run.clone();
                run.set("build", to.display());
                Ok(manifest.words(entry, &run)?)
            }
        };
        words.insert(*name, filled);
    }
    let any = words.values().find_map(|words| words.as_ref().ok());
    let (absent, versions) = match any {
        None => (
            words.values().find_map(|words| words.clone().err()),
            Vec::new(),
        ),
        Some(words) => match absent(&manifest, words, &to)? {
            Some(reason) => (Some(reason), Vec::new()),
            None => (None, versions(&manifest, words)?),
        },
    };
    let facts = describe(entry, &manifest, versions, absent);
    let ready = facts.absent.is_none().then_some(Ready {
        entry,
        manifest,
        words,
    });
    Ok((facts, ready))
}

fn words(places: &Places) -> Words {
    let mut words = Words::default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    words.set("surus", places.surus.display());
    words.set("repository", places.repository.display());
    words.set("cpus", cpus);
    words.set("php", php_version());
    words.set("extensions", php_config("--extension-dir"));
    words
}

/// The version of the PHP that Surus was built for, such as 8.2: Debian's programs have it in their
/// names.
fn php_version() -> String {
    let version = php_config("--version");
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

fn php_config(option: &str) -> String {
    let program = std::env::var("PHP_CONFIG").unwrap_or_else(|_| "php-config".into());
    build::first_line(&[program, option.into()])
}

/// Makes each application that a load names. Its words lead to it; the error says what it lacks.
pub fn applications<'a>(
    places: &Places,
    experiment: &'a Experiment,
    loads: &'a [Load],
    scratch: &Path,
    services: &mut Vec<Services>,
) -> anyhow::Result<BTreeMap<&'a str, Result<Words, String>>> {
    let mut made = BTreeMap::new();
    for load in loads {
        let name = experiment.application(load);
        if made.contains_key(name) {
            continue;
        }
        interrupt::check()?;
        let mut words = words(places);
        let lacks = match name {
            "" => None,
            name => match make(places, name, &scratch.join(name), &mut words)? {
                Ok(running) => {
                    services.push(running);
                    None
                }
                Err(reason) => Some(reason),
            },
        };
        if let Some(reason) = &lacks {
            eprintln!("  application {name}: {reason}");
        }
        made.insert(name, lacks.map_or(Ok(words), Err));
    }
    Ok(made)
}

/// Makes an application; the inner error says what it lacks.
fn make(
    places: &Places,
    name: &str,
    to: &Path,
    words: &mut Words,
) -> anyhow::Result<Result<Services, String>> {
    let application = Application::read(places, name)?;
    if let Some(reason) = build::missing(&application.needs, words)? {
        return Ok(Err(reason));
    }
    eprintln!("  preparing {name}");
    let made = application.make(places, to, words);
    interrupt::check()?;
    Ok(made.map_err(|error| format!("{error:#}")))
}

/// Why a contestant cannot be measured; `None` once it is built.
fn absent(manifest: &Manifest, words: &Words, to: &Path) -> anyhow::Result<Option<String>> {
    if let Some(reason) = build::missing(&manifest.needs, words)? {
        return Ok(Some(reason));
    }
    let built = build::build(manifest, words, to);
    interrupt::check()?;
    Ok(built
        .err()
        .map(|error| format!("cannot be built: {error:#}")))
}

fn versions(manifest: &Manifest, words: &Words) -> anyhow::Result<Vec<String>> {
    let version = |command: &Vec<String>| Ok(build::first_line(&words.command(command)?));
    manifest.version.iter().map(version).collect()
}

fn describe(
    entry: &Entry,
    manifest: &Manifest,
    versions: Vec<String>,
    absent: Option<String>,
) -> Facts {
    Facts {
        title: entry.title.clone(),
        licence: manifest.licence.clone(),
        home: manifest.home.clone(),
        versions,
        commands: Vec::new(),
        absent,
    }
}
