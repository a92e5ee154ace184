//! Which differences are not failures, each with its reason: `exceptions.toml`.

use serde::Deserialize;

use super::oracles::Name;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exceptions {
    /// Entries of `$_SERVER` that are not compared.
    pub variable: Vec<Variable>,
    /// Parts of one case's answer that one oracle gives differently.
    #[serde(default)]
    pub difference: Vec<Difference>,
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
    /// Who differs from the reference.
    pub oracle: Name,
    /// `status`, `reason`, `body`, `log`, or a header's name in lower case.
    pub part: String,
    pub reason: String,
}

pub fn load() -> Exceptions {
    let text = include_str!("exceptions.toml");
    let exceptions: Exceptions = toml::from_str(text).unwrap_or_else(|error| panic!("exceptions.toml: {error}"));
    let reasons = exceptions.variable.iter().map(|v| &v.reason).chain(exceptions.difference.iter().map(|d| &d.reason));
    assert!(reasons.into_iter().all(|reason| reason.len() > 20), "an exception without a reason");
    exceptions
}
