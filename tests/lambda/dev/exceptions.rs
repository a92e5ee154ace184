//! Accepted differences behind Lambda, each with its reason, from `exceptions.toml`.

use serde::Deserialize;
use surus::emulator::http::HttpService;

use super::corpus::Mode;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exceptions {
    /// Entries of `$_SERVER` that are not compared.
    pub variable: Vec<Variable>,
    /// Parts of one case's response.
    pub difference: Vec<Difference>,
    /// Cases that do not run.
    pub absence: Vec<Absence>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// A star at the end matches any suffix.
    name: String,
    reason: String,
}

impl Variable {
    pub fn is(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == self.name,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    pub case: String,
    /// `status`, `reason`, `body`, `log`, or a header's name in lower case.
    pub part: String,
    /// The services concerned, as in `surus lambda dev --service`; all if empty.
    #[serde(default)]
    services: Vec<String>,
    /// The value of `lambda.mode` concerned; both if none.
    mode: Option<String>,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Absence {
    /// Prefix of the cases' names.
    pub cases: String,
    /// As in a difference.
    #[serde(default)]
    services: Vec<String>,
    /// The value of `lambda.mode` concerned; both if none.
    mode: Option<String>,
    reason: String,
}

/// The exceptions that apply to `service` in this mode.
pub fn load(service: HttpService, mode: Mode) -> Exceptions {
    let mut all: Exceptions = toml::from_str(include_str!("exceptions.toml"))
        .unwrap_or_else(|error| panic!("exceptions.toml: {error}"));
    let variables = all.variable.iter().map(|variable| &variable.reason);
    let differences = all.difference.iter().map(|difference| &difference.reason);
    let absences = all.absence.iter().map(|absence| &absence.reason);
    assert!(
        variables
            .chain(differences)
            .chain(absences)
            .all(|reason| reason.len() > 20),
        "an exception without a reason"
    );
    let is_here = |services: &[String], only: &Option<String>| {
        let mut named = services
            .iter()
            .map(|name| name.parse::<HttpService>().unwrap());
        let is_mode = only.as_ref().is_none_or(|only| only == mode.name());
        is_mode && (services.is_empty() || named.any(|named| named == service))
    };
    all.difference
        .retain(|difference| is_here(&difference.services, &difference.mode));
    all.absence
        .retain(|absence| is_here(&absence.services, &absence.mode));
    all
}
