//! A goal as an experiment's file states it.

use anyhow::ensure;
use serde::Deserialize;

use crate::quantity::Quantity;

/// A bound on the ratio of two contestants, or on what one of them has in each round.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    pub title: String,
    pub load: String,
    pub quantity: Quantity,
    pub contestant: String,
    /// What it is compared with; without it, the bounds are numbers in the quantity's unit.
    pub to: Option<String>,
    /// The load of `to`, if it is another one.
    pub to_load: Option<String>,
    pub at_most: Option<f64>,
    pub at_least: Option<f64>,
    /// What is in the way if it is not met.
    pub bound: String,
}

impl Goal {
    pub fn contestants(&self) -> impl Iterator<Item = &str> {
        [Some(&self.contestant), self.to.as_ref()]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    pub fn to_load(&self) -> &String {
        self.to_load.as_ref().unwrap_or(&self.load)
    }

    /// Checks the goal of an experiment that has certain loads.
    pub fn check(&self, has_load: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let title = &self.title;
        for named in [&self.load, self.to_load()] {
            ensure!(
                has_load(named),
                "the goal `{title}` names the load `{named}`, which is none"
            );
        }
        ensure!(
            self.at_most.is_some() != self.at_least.is_some(),
            "the goal `{title}` needs one of at_most and at_least"
        );
        ensure!(
            self.to.is_some() || self.to_load.is_none(),
            "the goal `{title}` has to_load without to"
        );
        Ok(())
    }
}
