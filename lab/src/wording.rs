//! Finds the titles, notes and descriptions of a run's results, as they were when it was measured.

use crate::captions::{Captions, LoadCaption};
use crate::experiment::{Experiment, Load};
use crate::files::Places;
use crate::history;
use crate::length::Size;
use crate::results::Results;

impl Captions {
    pub fn of(experiment: &Experiment, size: Size) -> Captions {
        Captions::with(experiment, experiment.notes.clone(), |load| {
            load.describe(size)
        })
    }

    fn with(
        experiment: &Experiment,
        notes: Vec<String>,
        describe: impl Fn(&Load) -> String,
    ) -> Captions {
        let load = |load: &Load| {
            let caption = LoadCaption {
                title: load.title.clone(),
                description: describe(load),
                skips: load.skips.clone(),
            };
            (load.name.clone(), caption)
        };
        Captions {
            title: experiment.title.clone(),
            notes,
            loads: experiment.loads.iter().map(load).collect(),
        }
    }

    /// Those of a run that has kept none: from the experiment's file at the run's revision. If that
    /// is unknown, today's titles, and why notes and descriptions are missing: those of today may
    /// be wrong for these numbers.
    fn find(places: &Places, experiment: &Experiment, results: &Results) -> Captions {
        let file = places.lab.join("experiments").join(&experiment.name);
        let then = history::text_at(places, &file.with_extension("toml"), &results.revision);
        let then = then.and_then(|text| {
            let parsed = toml::from_str::<Experiment>(&text);
            parsed.map_err(|_| {
                let revision = &results.revision;
                format!("this lab cannot read the experiment's file of revision {revision}")
            })
        });
        match then {
            Ok(then) => Captions::of(&then, results.size),
            Err(why) => {
                let note = format!("The notes of this run are unknown: {why}.");
                Captions::with(experiment, vec![note], |_| String::new())
            }
        }
    }
}

impl Experiment {
    /// Today's experiment in the words of a run. A load or a contestant that the run did not have
    /// keeps its own.
    pub fn in_words_of(&self, places: &Places, results: &Results) -> Experiment {
        let kept = results.captions.clone();
        let captions = kept.unwrap_or_else(|| Captions::find(places, self, results));
        let mut experiment = self.clone();
        experiment.title = captions.title;
        experiment.notes = captions.notes;
        for load in &mut experiment.loads {
            if let Some(caption) = captions.loads.get(&load.name) {
                load.use_caption(caption);
            }
        }
        for entry in &mut experiment.contestants {
            if let Some(facts) = results.contestants.get(&entry.name) {
                entry.title.clone_from(&facts.title);
            }
        }
        experiment
    }
}
