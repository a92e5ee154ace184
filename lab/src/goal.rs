//! A goal as an experiment's file states it.

use anyhow::ensure;
use serde::Deserialize;

use crate::quantity::Quantity;

/// A bound on the ratio of two contestants.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    pub title: String,
    pub load: String,
    pub quantity: Quantity,
    pub contestant: String,
    pub to: String,
    pub at_most: Option<f64>,
    pub at_least: Option<f64>,
    /// What is in the way if it is not met.
    pub bound: String,
}

impl Goal {
    pub fn contestants(&self) -> [&str; 2] {
        [&self.contestant, &self.to]
    }

    /// Checks the goal of an experiment that has certain loads.
    pub fn check(&self, has_load: impl FnOnce(&str) -> bool) -> anyhow::Result<()> {
        let title = &self.title;
        ensure!(
            has_load(&self.load),
            "the goal `{title}` names the load `{}`, which is none",
            self.load
        );
        ensure!(
            self.at_most.is_some() != self.at_least.is_some(),
            "the goal `{title}` needs one of at_most and at_least"
        );
        Ok(())
    }
}
