//! `lab start`: starts one contestant as a run does, and leaves it running until a signal comes.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};

use crate::experiment::{Experiment, Load};
use crate::files::Places;
use crate::interrupt;
use crate::preparing::{applications, prepare};
use crate::server::Server;

/// How often it looks whether a signal has come.
const LOOK: Duration = Duration::from_millis(50);

/// Starts a contestant with the application of a load; of the first load that is for it if none is
/// named.
pub fn run(
    places: &Places,
    experiment: &Experiment,
    name: &str,
    load: Option<&str>,
) -> anyhow::Result<()> {
    let entry = experiment.contestants.iter().find(|it| it.name == name);
    let entry = entry.with_context(|| {
        let (of, known) = (&experiment.name, experiment.names().join(", "));
        format!("{of} has no contestant `{name}`; known: {known}")
    })?;
    let load = find_load(experiment, name, load)?;
    let scratch = tempfile::Builder::new().prefix("surus-lab-").tempdir()?;
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755))?;
    let mut services = Vec::new();
    let loads = std::slice::from_ref(load);
    let made = applications(places, experiment, loads, scratch.path(), &mut services)?;
    let (facts, ready) = prepare(places, entry, &made)?;
    let Some(ready) = ready else {
        bail!("{name}: {}", facts.absent.unwrap_or_default());
    };
    let words = &ready.words[experiment.application(load)];
    let words = words.as_ref().map_err(|reason| anyhow!("{reason}"))?;
    let server = Server::start(&ready.manifest, words, &scratch.path().join(name), load)?;
    for command in &server.commands {
        println!("{command}");
    }
    println!("listening on http://127.0.0.1:{}{}", server.port, load.path);
    while !interrupt::is_interrupted() {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn find_load<'a>(
    experiment: &'a Experiment,
    name: &str,
    load: Option<&str>,
) -> anyhow::Result<&'a Load> {
    let is_for = |it: &&Load| it.is_for(name) && !it.skips.contains_key(name);
    let known = || experiment.loads.iter().filter(is_for);
    let found = match load {
        None => known().next(),
        Some(load) => known().find(|it| it.name == load),
    };
    found.with_context(|| {
        let known: Vec<_> = known().map(|it| it.name.as_str()).collect();
        format!(
            "`{name}` has no load `{}` in {}; known: {}",
            load.unwrap_or_default(),
            experiment.name,
            known.join(", ")
        )
    })
}
