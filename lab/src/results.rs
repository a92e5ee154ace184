//! Keeps what a run has measured so far. The state of an unfinished run and the result of a
//! finished one are the same file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use surus_measure::probe::LEAST_CPU;
use surus_measure::{Machine, Measured, Unit};

use crate::captions::Captions;
use crate::length::Size;
use crate::quantity::{Quantity, Sample};

/// With fewer rounds, the bootstrap's interval is too narrow for a verdict.
pub const LEAST_ROUNDS: usize = 6;
/// How often a contestant that was never measured under a load is tried.
const MAX_FAILURES: usize = 2;
/// Percent of a CPU from which on the load generator was the limit.
const GENERATOR_LIMIT: f64 = 95.0;

#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    pub experiment: String,
    pub size: Size,
    /// Day on which the run began.
    pub date: String,
    /// The command that repeats it.
    pub command: String,
    /// Revision of this repository.
    pub revision: String,
    pub machine: Machine,
    /// What pages say of the run. Files from before these were kept have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captions: Option<Captions>,
    /// By the contestant's name.
    pub contestants: BTreeMap<String, Facts>,
    /// Everything that the numbers depend on; a run is resumed only if it is the same.
    pub fingerprint: String,
    /// How long its finished rounds took, their preparation included. Files from before this was
    /// kept have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Rounds that are wanted.
    pub wanted: usize,
    /// Finished rounds.
    pub rounds: Vec<Round>,
}

/// What was compared.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Facts {
    pub title: String,
    pub licence: String,
    pub home: String,
    pub versions: Vec<String>,
    /// The shell commands that have started it in its first round, with everything filled in. Paths
    /// in the repository are relative to it.
    pub commands: Vec<String>,
    /// Why it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Round {
    /// Load average over the last minute when the round began.
    pub load_average: f64,
    /// In the order in which they were measured.
    pub turns: Vec<Turn>,
    /// What was measured and not used, because other processes have disturbed it: of turns that
    /// were repeated, or of their repetitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeated: Vec<Turn>,
}

/// A contestant's turn of a round.
#[derive(Debug, Serialize, Deserialize)]
pub struct Turn {
    pub contestant: String,
    /// By load.
    pub samples: BTreeMap<String, Sample>,
    /// By load, why it was not measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, String>,
}

impl Turn {
    pub fn new(contestant: &str) -> Turn {
        Turn {
            contestant: contestant.into(),
            samples: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl Results {
    pub fn read(file: &Path) -> anyhow::Result<Results> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} holds no results of the lab", file.display()))
    }

    /// Writes a new file and renames it, so that no crash leaves a part of it.
    pub fn write(&self, file: &Path) -> anyhow::Result<()> {
        let context = || format!("cannot write {}", file.display());
        if let Some(directory) = file.parent() {
            std::fs::create_dir_all(directory).with_context(context)?;
        }
        let new = file.with_extension("new");
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(&new, text).with_context(context)?;
        std::fs::rename(&new, file).with_context(context)
    }

    /// The turns of a contestant, by round.
    pub fn turns<'a>(&'a self, contestant: &'a str) -> impl Iterator<Item = &'a Turn> {
        let turns = self.rounds.iter().flat_map(|round| &round.turns);
        turns.filter(move |turn| turn.contestant == contestant)
    }

    /// Whether a contestant was measured under a load in any round.
    pub fn has_sample(&self, contestant: &str, load: &str) -> bool {
        self.turns(contestant)
            .any(|turn| turn.samples.contains_key(load))
    }

    /// Whether a load was part of the run. If nothing could be measured, all were.
    pub fn has_load(&self, load: &str) -> bool {
        let mut turns = self.rounds.iter().flat_map(|round| &round.turns);
        let mut is_empty = true;
        turns.any(|turn| {
            is_empty &= turn.samples.is_empty() && turn.failures.is_empty();
            turn.samples.contains_key(load) || turn.failures.contains_key(load)
        }) || is_empty
    }

    /// How often a contestant has failed under a load.
    pub fn failures(&self, contestant: &str, load: &str) -> usize {
        self.turns(contestant)
            .filter(|turn| turn.failures.contains_key(load))
            .count()
    }

    /// Whether a contestant is no longer tried under a load: it has failed too often, and was never
    /// measured.
    pub fn is_given_up(&self, contestant: &str, load: &str) -> bool {
        self.failures(contestant, load) >= MAX_FAILURES && !self.has_sample(contestant, load)
    }

    /// Whether the load generator was the limit in a round: it used its whole CPU.
    pub fn is_generator_limited(&self, contestant: &str, load: &str) -> bool {
        let busy = self.samples(contestant, load, Quantity::Generator);
        busy.into_iter()
            .flatten()
            .any(|busy| busy >= GENERATOR_LIMIT)
    }

    /// Failed requests of all rounds; `None` if there are none. The median would hide those of
    /// less than half of the rounds.
    pub fn failed_requests(&self, contestant: &str, load: &str) -> Option<Measured> {
        let sum = self.median(contestant, load, Quantity::Failed);
        sum.filter(|sum| sum.value() > 0.0)
    }

    /// The median of a quantity, and of failed requests the sum; `None` without samples.
    pub fn median(&self, contestant: &str, load: &str, quantity: Quantity) -> Option<Measured> {
        if quantity == Quantity::Failed {
            // Those of disturbed rounds are failures, too.
            let samples = self.all_samples(contestant, load, quantity);
            let samples: Vec<_> = samples.into_iter().flatten().collect();
            return Measured::sum(&samples, quantity.unit());
        }
        let samples = self.samples(contestant, load, quantity);
        let samples: Vec<_> = samples.into_iter().flatten().collect();
        if quantity == Quantity::Cpu
            && let Some(pooled) = self.pooled_cpu(contestant, load)
        {
            return Some(pooled);
        }
        let (is_limited, is_disturbed) = self.doubts(contestant, load, quantity);
        let median = Measured::median(&samples, quantity.unit())?;
        let median = median.limited_by_generator(is_limited);
        Some(median.disturbed(is_disturbed))
    }

    /// The marks of a quantity of several rows, each a contestant and a load. Such numbers have no
    /// ratio.
    pub fn marks(&self, rows: &[(&str, &str)], quantity: Quantity) -> Option<String> {
        let doubts = rows
            .iter()
            .map(|(it, load)| self.doubts(it, load, quantity));
        let (is_limited, is_disturbed) =
            doubts.fold((false, false), |all, it| (all.0 || it.0, all.1 || it.1));
        let marks = surus_measure::marks(is_limited, is_disturbed);
        (!marks.is_empty()).then_some(marks)
    }

    /// Whether the load generator, and whether others, make a quantity say less of the contestant.
    fn doubts(&self, contestant: &str, load: &str, quantity: Quantity) -> (bool, bool) {
        (
            quantity.depends_on_generator() && self.is_generator_limited(contestant, load),
            quantity.depends_on_others() && self.is_disturbed(contestant, load),
        )
    }

    /// CPU time per response of all rounds together, if one of them has too little to divide;
    /// `None` if all have enough, or all together have not.
    fn pooled_cpu(&self, contestant: &str, load: &str) -> Option<Measured> {
        let samples = |quantity| self.samples(contestant, load, quantity);
        let sum = |quantity| samples(quantity).into_iter().flatten().sum::<f64>();
        let measured = samples(Quantity::Rate).into_iter();
        let mut pairs = measured.zip(samples(Quantity::Cpu));
        pairs.find(|(rate, cpu)| rate.is_some() && cpu.is_none())?;
        let (time, responses) = (sum(Quantity::CpuTime), sum(Quantity::Responses));
        let per_response = time * 1e6 / responses;
        (time >= LEAST_CPU && responses > 0.0).then(|| Measured::once(per_response, Unit::Us))
    }

    /// Samples of one quantity under one load; none of a round without it. Rounds that others have
    /// disturbed are left out if enough remain.
    pub fn samples(&self, contestant: &str, load: &str, quantity: Quantity) -> Vec<Option<f64>> {
        let all = self.all_samples(contestant, load, quantity);
        if self.is_disturbed(contestant, load) {
            return all;
        }
        let disturbed = self.disturbed_rounds(contestant, load).into_iter();
        let pairs = all.into_iter().zip(disturbed);
        pairs
            .map(|(sample, disturbed)| sample.filter(|_| !disturbed))
            .collect()
    }

    /// The same with the rounds that others have disturbed.
    pub fn all_samples(
        &self,
        contestant: &str,
        load: &str,
        quantity: Quantity,
    ) -> Vec<Option<f64>> {
        let sample = |round: &Round| {
            let mut turns = round.turns.iter();
            let turn = turns.find(|turn| turn.contestant == contestant)?;
            turn.samples.get(load)?.get(&quantity).copied()
        };
        self.rounds.iter().map(sample).collect()
    }
}
