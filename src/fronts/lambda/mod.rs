//! AWS Lambda: `surus lambda`.
//!
//! `runtime` asks Lambda's Runtime API for events; `http_event` makes HTTP requests of those that are, and answers of their
//! responses; `batch` has the records of the others done by several workers. All of them reach PHP as [`Event`](crate::event::Event).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The PHP file that events go to which are not HTTP; it returns a callable or an object with `handle`. What `_HANDLER` names
    /// when that is a file.
    pub handler: Option<PathBuf>,
}
