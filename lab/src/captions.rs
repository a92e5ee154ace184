//! The titles, notes and descriptions that results keep of their run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What pages say of a run besides its numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captions {
    pub title: String,
    pub notes: Vec<String>,
    /// By the load's name.
    pub loads: BTreeMap<String, LoadCaption>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadCaption {
    pub title: String,
    /// Empty if it is unknown.
    pub description: String,
    /// By contestant, why it was left out.
    pub skips: BTreeMap<String, String>,
}
