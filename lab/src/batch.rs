//! Records what a command over several experiments has finished, so that the same command, repeated
//! after an interruption, does not measure it again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::experiment::Experiment;
use crate::files::Places;
use crate::fingerprint;
use crate::length::Size;

/// The experiments of one command.
pub struct Batch {
    file: PathBuf,
    finished: Finished,
}

#[derive(Debug, Serialize, Deserialize)]
struct Finished {
    /// The command, and a hash of everything that its numbers depend on.
    command: String,
    /// How many seconds each finished experiment took.
    seconds: BTreeMap<String, f64>,
}

impl Batch {
    /// What an interrupted command has finished; nothing if it was another one or `is_fresh`.
    pub fn begin(
        places: &Places,
        experiments: &[Experiment],
        size: Size,
        is_fresh: bool,
    ) -> anyhow::Result<Batch> {
        let names: Vec<_> = experiments.iter().map(|one| one.name.as_str()).collect();
        let hash = fingerprint::of_all(places, experiments)?;
        let command = format!("{size} {} {hash}", names.join(" "));
        let file = places.work.join(format!("finished-{size}.json"));
        let found = std::fs::read_to_string(&file).ok();
        let found = found.and_then(|text| serde_json::from_str::<Finished>(&text).ok());
        let finished = found
            .filter(|found| found.command == command && !is_fresh)
            .unwrap_or(Finished {
                command,
                seconds: BTreeMap::new(),
            });
        Ok(Batch { file, finished })
    }

    pub fn has(&self, experiment: &Experiment) -> bool {
        self.finished.seconds.contains_key(&experiment.name)
    }

    pub fn add(&mut self, experiment: &Experiment, seconds: f64) -> anyhow::Result<()> {
        self.finished
            .seconds
            .insert(experiment.name.clone(), seconds);
        let text = serde_json::to_string(&self.finished)?;
        std::fs::write(&self.file, text)
            .with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// All are finished: the next command begins again. Returns how many seconds each took.
    pub fn end(self) -> BTreeMap<String, f64> {
        let _ = std::fs::remove_file(&self.file);
        self.finished.seconds
    }
}
