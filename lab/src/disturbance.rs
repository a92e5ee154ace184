//! Judges which rounds of a row other processes have disturbed, and whether the others are enough.

use crate::length::Size;
use crate::quantity::{Quantity, Sample};
use crate::results::{LEAST_ROUNDS, Results};

/// Percent of the CPUs by which others are above a row's quietest round if they have disturbed it.
/// Others may use some in every round, such as the kernel for the network of the row.
pub const DISTURBING: f64 = 15.0;

/// A contestant's loads of one round that others have disturbed.
#[derive(Debug, Clone, PartialEq)]
pub struct DisturbedTurn {
    pub round: usize,
    pub contestant: String,
    pub loads: Vec<String>,
    /// The highest share of the CPUs that others used, in percent.
    pub others: f64,
}

impl Results {
    /// Whether others have disturbed each round of a row. The small form is too short to judge, and
    /// says that no one should quote it.
    pub fn disturbed_rounds(&self, contestant: &str, load: &str) -> Vec<bool> {
        let others = self.all_samples(contestant, load, Quantity::Others);
        let least = others
            .iter()
            .flatten()
            .copied()
            .fold(f64::INFINITY, f64::min);
        let is_disturbed = |it: &Option<f64>| {
            it.is_some_and(|it| self.size == Size::Full && it - least >= DISTURBING)
        };
        others.iter().map(is_disturbed).collect()
    }

    /// Whether a row has too few rounds that others have not disturbed. It is then of all rounds,
    /// and has a mark.
    pub fn is_disturbed(&self, contestant: &str, load: &str) -> bool {
        let disturbed = self.disturbed_rounds(contestant, load);
        let measured = self.all_samples(contestant, load, Quantity::Others);
        let quiet = disturbed.iter().zip(&measured);
        let quiet = quiet.filter(|(disturbed, others)| !**disturbed && others.is_some());
        disturbed.contains(&true) && quiet.count() < LEAST_ROUNDS.min(self.rounds.len())
    }

    /// Turns that others have disturbed, of contestants with fewer extra turns than rounds.
    pub fn disturbed_turns(&self) -> Vec<DisturbedTurn> {
        let mut found = Vec::new();
        for (round, it) in self.rounds.iter().enumerate() {
            for turn in &it.turns {
                let name = &turn.contestant;
                let is_disturbed = |load: &&String| self.disturbed_rounds(name, load)[round];
                let loads: Vec<_> = turn.samples.keys().filter(is_disturbed).cloned().collect();
                if !loads.is_empty() && self.repetitions(name) < self.wanted {
                    let others = loads.iter().filter_map(|load| others(&turn.samples[load]));
                    found.push(DisturbedTurn {
                        round,
                        contestant: name.clone(),
                        others: others.fold(0.0, f64::max),
                        loads,
                    });
                }
            }
        }
        found
    }

    /// How many turns of a contestant were repeated.
    fn repetitions(&self, contestant: &str) -> usize {
        let repeated = self.rounds.iter().flat_map(|round| &round.repeated);
        repeated
            .filter(|turn| turn.contestant == contestant)
            .count()
    }
}

/// The share of the CPUs that others used, in percent.
pub fn others(sample: &Sample) -> Option<f64> {
    sample.get(&Quantity::Others).copied()
}
