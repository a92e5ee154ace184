//! Settings of `surus lambda deploy`, `logs` and `console`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::Time;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The function's name; else that of the project directory.
    pub name: Option<String>,
    /// Else AWS's variables and profile determine it.
    pub region: Option<String>,
    /// ARN of the execution role.
    pub role: Option<String>,
    /// In MB.
    pub memory: u32,
    pub timeout: Time,
    /// Alias that the URL and the queue call.
    pub alias: String,
    /// Whether the function has a public URL; else it has one if it has no queue.
    pub url: Option<bool>,
    /// ARN of the queue that triggers the function.
    pub queue: Option<String>,
    /// Bucket for zips that are too large for a direct upload.
    pub bucket: Option<String>,
    /// URL path to request before the alias moves. Empty: none.
    pub smoke: String,
    /// Environment variables of the function.
    pub env: BTreeMap<String, String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            name: None,
            region: None,
            role: None,
            memory: 1024,
            timeout: Time::seconds(60),
            alias: "live".into(),
            url: None,
            queue: None,
            bucket: None,
            smoke: "/".into(),
            env: BTreeMap::new(),
        }
    }
}
