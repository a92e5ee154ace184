//! Allowed differences with their reasons, from `exceptions.toml`.

use serde::Deserialize;

use super::oracles::Name;
use crate::common::php::is_since;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exceptions {
    /// Entries of `$_SERVER` that are not compared.
    pub variable: Vec<Variable>,
    /// Parts of one case's answer that differ on one oracle.
    pub difference: Vec<Difference>,
    /// Cases that one oracle skips.
    pub absence: Vec<Absence>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    pub name: String,
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    pub case: String,
    /// The oracle that differs from the reference.
    pub oracle: Name,
    /// `status`, `reason`, `body`, `log`, or a header's name in lower case.
    pub part: String,
    /// The first PHP version with the difference; all if absent.
    pub since: Option<String>,
    /// The engines of Surus with the difference; all if empty.
    #[serde(default)]
    pub engines: Vec<String>,
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Absence {
    /// The prefix of their names.
    pub cases: String,
    pub oracle: Name,
    /// Like `Difference::engines`.
    #[serde(default)]
    pub engines: Vec<String>,
    pub reason: String,
}

/// The exceptions that apply when Surus uses `engine`.
pub fn load(engine: &str) -> Exceptions {
    let text = include_str!("exceptions.toml");
    let mut exceptions: Exceptions =
        toml::from_str(text).unwrap_or_else(|error| panic!("exceptions.toml: {error}"));
    let variables = exceptions.variable.iter().map(|variable| &variable.reason);
    let differences = exceptions
        .difference
        .iter()
        .map(|difference| &difference.reason);
    let absences = exceptions.absence.iter().map(|absence| &absence.reason);
    assert!(
        variables
            .chain(differences)
            .chain(absences)
            .all(|reason| reason.len() > 20),
        "an exception without a reason"
    );
    exceptions.difference.retain(|difference| {
        is_since(difference.since.as_deref()) && is_of(&difference.engines, engine)
    });
    exceptions
        .absence
        .retain(|absence| is_of(&absence.engines, engine));
    exceptions
}

fn is_of(engines: &[String], engine: &str) -> bool {
    engines.is_empty() || engines.iter().any(|name| name == engine)
}
