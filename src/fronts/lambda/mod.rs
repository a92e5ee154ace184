//! AWS Lambda: `surus lambda`.
//!
//! `runtime` asks Lambda's Runtime API for events; `http_event` makes HTTP requests of those that are, and answers of their
//! responses; `batch` has the records of the others done by several workers. All of them reach PHP as [`Event`](crate::event::Event).

pub mod http_event;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The PHP file that events go to which are not HTTP; it returns a callable or an object with `handle`. What `_HANDLER` names
    /// when that is a file.
    pub handler: Option<PathBuf>,
    /// What becomes of an API's stage at the beginning of the path.
    pub strip_stage: http_event::StripStage,
    /// Removed from the beginning of the path, such as the mapping of a domain to an API.
    pub base_path: Option<http_event::PathPrefix>,
}
