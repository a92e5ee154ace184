//! AWS Lambda: `surus lambda`.
//!
//! `runtime` asks Lambda's Runtime API for events; `http_event` makes HTTP requests of those that are, and answers of their
//! responses; `batch` has the records of the others done by several workers. All of them reach PHP as [`Event`](crate::event::Event).

pub mod batch;
pub mod http_event;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::units::Time;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The PHP file that events go to which are not HTTP; it returns a callable or an object with `handle`. What `_HANDLER` names
    /// when that is a file.
    pub handler: Option<PathBuf>,
    /// What becomes of an API's stage at the beginning of the path.
    pub strip_stage: http_event::StripStage,
    /// Removed from the beginning of the path, such as the mapping of a domain to an API.
    pub base_path: Option<http_event::PathPrefix>,
    /// How the records of a queue or stream reach the handler.
    pub batch: batch::Mode,
    /// One record may take so long.
    pub record_timeout: Option<Time>,
    /// What of an event's time is kept for ending late workers and sending the answer.
    pub reserve: Time,
    /// What a message of a FIFO queue that fails takes with it.
    pub fifo_failure: batch::FifoFailure,
    /// Does Lambda hear which records have failed?
    pub partial_batch: batch::PartialBatch,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            handler: None,
            strip_stage: http_event::StripStage::default(),
            base_path: None,
            batch: batch::Mode::default(),
            record_timeout: None,
            reserve: Time::millis(500),
            fifo_failure: batch::FifoFailure::default(),
            partial_batch: batch::PartialBatch::default(),
        }
    }
}
