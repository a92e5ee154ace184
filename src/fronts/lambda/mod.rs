//! AWS Lambda: `surus lambda`.
//!
//! `runtime` asks Lambda's Runtime API for events; `http_event` makes HTTP requests of those that are, and answers of their
//! responses; `batch` has the records of the others done by several workers. All of them reach PHP as [`Event`](crate::event::Event).

pub mod batch;
mod connection;
mod extension;
mod fail_on;
mod fault;
mod function;
mod handler;
pub mod http_event;
mod invocation;
mod payload;
mod runtime;
mod runtime_api;
mod snapshot;
mod streaming;
mod task;
mod thaw;
mod warm;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use function::Function;
pub use handler::Handler;
pub use runtime::{Environment, Initialization, run};
pub use task::{origin as event_origin, request as event_request};

use crate::fronts::http::Proxy;
use crate::units::{self, Time};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The PHP file that events go to which are not HTTP; it returns a callable or an object with `handle`. What `_HANDLER` names
    /// when that is a file.
    pub handler: Option<PathBuf>,
    /// The PHP file that hands such events to the handler; that of the Composer package when not set.
    pub script: Option<PathBuf>,
    /// Where a package has what OPcache has made of its PHP files.
    pub compiled: Option<PathBuf>,
    /// Where a package has the application's warmed-up cache, which is copied to `APP_CACHE_DIR`.
    pub cache: Option<PathBuf>,
    /// How the answers to HTTP events are sent.
    pub mode: Mode,
    /// What of an event's time is kept for ending late workers and sending the answer.
    pub reserve: Time,
    /// A start that takes longer goes on while Lambda is asked for the first event, which it then waits for.
    pub init_timeout: Time,
    /// Register as an extension, so that Lambda says SIGTERM before it ends this process.
    pub extension: bool,
    /// `POST /events` of HTTP clients reaches the application, which then cannot tell it from an
    /// event that Lambda has sent.
    pub events_over_http: bool,
    /// SnapStart: URLs that are requested before the snapshot is taken.
    pub before_snapshot: Vec<String>,
    /// SnapStart: URLs that are requested where it has been restored.
    pub after_restore: Vec<String>,
    /// What becomes of an API's stage at the beginning of the path.
    pub strip_stage: http_event::StripStage,
    /// Removed from the beginning of the path, such as the mapping of a domain to an API.
    pub base_path: Option<http_event::PathPrefix>,
    /// The `binaryMediaTypes` of the REST API that calls the function: it decodes base64 for these.
    pub binary_media_types: Vec<http_event::MediaType>,
    /// Statuses of answers to HTTP events that are failures of the event.
    pub fail_on: Vec<fail_on::Statuses>,
    /// Proxies before the service, such as a CDN, whose `X-Forwarded-For` and `-Host` are believed.
    #[serde(deserialize_with = "units::one_or_more")]
    pub trusted_proxies: Vec<Proxy>,
    /// How the records of a queue or stream reach the handler.
    pub batch: batch::Mode,
    /// One record may take so long.
    pub record_timeout: Option<Time>,
    /// What a message of a FIFO queue that fails takes with it.
    pub fifo_failure: batch::FifoFailure,
    /// Does Lambda hear which records have failed?
    pub partial_batch: batch::PartialBatch,
}

/// How answers are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// As a whole.
    Buffered,
    /// As they arise. Only for callers that take streams: others would see what leads a stream as part of the answer.
    Stream,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            handler: None,
            script: None,
            compiled: None,
            cache: None,
            mode: Mode::Buffered,
            reserve: Time::millis(500),
            init_timeout: Time::millis(9800),
            extension: true,
            events_over_http: false,
            before_snapshot: Vec::new(),
            after_restore: Vec::new(),
            strip_stage: http_event::StripStage::default(),
            base_path: None,
            binary_media_types: Vec::new(),
            fail_on: Vec::new(),
            trusted_proxies: Vec::new(),
            batch: batch::Mode::default(),
            record_timeout: None,
            fifo_failure: batch::FifoFailure::default(),
            partial_batch: batch::PartialBatch::default(),
        }
    }
}
