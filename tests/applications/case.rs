//! An application: where it lies, how the servers are configured for it, and what is requested.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The document root, as the Debian package installs it.
    pub root: String,
    /// The package's configuration files for Apache.
    #[serde(default)]
    pub apache: Vec<String>,
    /// What Apache's configuration for the application says, in nginx's language.
    #[serde(default)]
    pub nginx: String,
    /// Variables for Surus, such as `SURUS_SITE_FALLBACK`.
    #[serde(default)]
    pub surus: BTreeMap<String, String>,
    /// Requests that are made once, before the servers are compared.
    #[serde(default)]
    pub setup: Vec<String>,
    /// `GET /path` or `POST /path name={field}&...`, where `{field}` is an input of the last page.
    pub requests: Vec<String>,
    /// Requests whose answers differ, and why.
    #[serde(default)]
    pub differences: BTreeMap<String, String>,
    /// Files that both oracles send and Surus does not, as patterns, and why.
    #[serde(default)]
    pub withheld: BTreeMap<String, String>,
    /// Files that Surus sends and Apache does not, as patterns, and why.
    #[serde(default)]
    pub sent: BTreeMap<String, String>,
}

impl Case {
    pub fn parse(text: &str) -> Case {
        toml::from_str(text).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn differs(&self, request: &str) -> bool {
        self.differences.contains_key(request)
    }
}

/// Whether a path matches one of the patterns: regular expressions for the whole path.
pub fn matches(patterns: &BTreeMap<String, String>, path: &str) -> bool {
    patterns.keys().any(|pattern| {
        regex::Regex::new(&format!("^(?:{pattern})$"))
            .unwrap()
            .is_match(path)
    })
}
