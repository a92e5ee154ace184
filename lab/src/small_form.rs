//! Records how long `make lab` takes: the small form of all experiments in one command.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use surus_measure::{Machine, Measured, Unit};

use crate::experiment::Experiment;
use crate::files;

/// The file of a directory of results.
pub const FILE: &str = "small-form.json";

#[derive(Debug, Serialize, Deserialize)]
pub struct SmallForm {
    pub date: String,
    pub revision: String,
    machine: Machine,
    /// By experiment. Interrupted rounds are not counted.
    seconds: BTreeMap<String, f64>,
}

impl SmallForm {
    pub fn new(date: String, revision: String, seconds: BTreeMap<String, f64>) -> SmallForm {
        SmallForm {
            date,
            revision,
            machine: Machine::this(),
            seconds,
        }
    }

    /// `None` if there is no file.
    pub fn read(directory: &Path) -> anyhow::Result<Option<SmallForm>> {
        files::read_json(&directory.join(FILE), "`make lab`")
    }

    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let file = directory.join(FILE);
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let minutes = Measured::once(self.minutes(), Unit::Minutes).short();
        eprintln!("all took {minutes}: {}", file.display());
        Ok(())
    }

    pub fn minutes(&self) -> f64 {
        self.seconds.values().sum::<f64>() / 60.0
    }

    /// Whether it was a run of all experiments.
    pub fn has_all(&self, experiments: &[Experiment]) -> bool {
        let mut all = experiments.iter();
        all.all(|experiment| self.seconds.contains_key(&experiment.name))
    }
}
