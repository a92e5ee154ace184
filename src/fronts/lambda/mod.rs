//! AWS Lambda: `surus lambda`.
//!
//! `runtime` fetches events from Lambda's Runtime API. `http_event` converts HTTP events to
//! requests and responses to the format that the event's service expects. `batch` distributes the
//! records of other events to several workers. All of them reach PHP as
//! [`Event`](crate::event::Event).

pub mod batch;
mod connection;
mod error;
mod error_statuses;
mod extension;
mod freeze;
mod function;
mod handler;
pub mod http_event;
mod invocation;
mod payload;
mod php_request;
mod runtime;
mod runtime_api;
mod snapshot;
mod streaming;
mod warm;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use function::Function;
pub use handler::Handler;
pub use runtime::{Environment, Initialization, run};

use crate::app::forwarded::Proxy;
use crate::units::{self, Time};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The PHP file that handles events that are not HTTP; it returns a callable or an object with
    /// `handle`. Default: the file that `_HANDLER` names, if it is one.
    pub handler: Option<PathBuf>,
    /// The PHP file that passes such events to the handler. Default: the Composer package's.
    pub script: Option<PathBuf>,
    /// The directory of OPcache's compiled files in a package.
    pub opcache_dir: Option<PathBuf>,
    /// The application's warmed-up cache in a package; it is copied to `APP_CACHE_DIR`.
    pub cache: Option<PathBuf>,
    /// Variables in `[env]` that the function's own ones override.
    #[serde(deserialize_with = "units::one_or_more")]
    pub env_defaults: Vec<String>,
    /// How responses to HTTP events are sent.
    pub mode: ResponseMode,
    /// Time kept from each event's deadline for ending late workers and sending the response.
    pub deadline_margin: Time,
    /// If the boot takes longer, Surus asks Lambda for the first event, which then waits for the
    /// boot.
    pub init_timeout: Time,
    /// Register as an extension, so that Lambda sends SIGTERM before it ends this process.
    pub extension: bool,
    /// Lets `POST /events` of HTTP clients reach the application, which cannot tell it from an
    /// event that Lambda has sent.
    pub events_over_http: bool,
    /// SnapStart: URLs requested before the snapshot.
    #[serde(deserialize_with = "units::one_or_more")]
    pub before_snapshot: Vec<String>,
    /// SnapStart: URLs requested after each restore.
    #[serde(deserialize_with = "units::one_or_more")]
    pub after_restore: Vec<String>,
    /// Whether an API's stage is removed from the beginning of the path.
    pub strip_stage: http_event::StripStage,
    /// A prefix removed from the path, such as a custom domain's API mapping.
    pub base_path: Option<http_event::PathPrefix>,
    /// The `binaryMediaTypes` of the REST API that calls the function: it decodes base64 for these
    /// types.
    #[serde(deserialize_with = "units::one_or_more")]
    pub binary_media_types: Vec<http_event::MediaType>,
    /// Response statuses that make an HTTP event fail.
    #[serde(deserialize_with = "error_statuses::one_or_more")]
    pub error_statuses: Vec<error_statuses::Statuses>,
    /// Proxies in front of the service, such as a CDN; their `X-Forwarded-For` and `-Host` are
    /// trusted.
    #[serde(deserialize_with = "units::one_or_more")]
    pub trusted_proxies: Vec<Proxy>,
    /// How the records of a queue or stream reach the handler.
    pub batch: batch::BatchMode,
    /// Time limit of one record.
    pub record_timeout: Option<Time>,
    /// Which messages a failed message of a FIFO queue stops.
    pub fifo_failure: batch::FifoFailure,
    /// Whether Lambda is told which records failed.
    pub report_batch_item_failures: batch::ReportBatchItemFailures,
}

/// How responses are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResponseMode {
    /// As a whole.
    Buffered,
    /// While they are produced. Only for callers that accept streams: others would get the prelude
    /// as part of the response.
    Stream,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            handler: None,
            script: None,
            opcache_dir: None,
            cache: None,
            env_defaults: Vec::new(),
            mode: ResponseMode::Buffered,
            deadline_margin: Time::millis(500),
            init_timeout: Time::millis(9800),
            extension: true,
            events_over_http: false,
            before_snapshot: Vec::new(),
            after_restore: Vec::new(),
            strip_stage: http_event::StripStage::default(),
            base_path: None,
            binary_media_types: Vec::new(),
            error_statuses: Vec::new(),
            trusted_proxies: Vec::new(),
            batch: batch::BatchMode::default(),
            record_timeout: None,
            fifo_failure: batch::FifoFailure::default(),
            report_batch_item_failures: batch::ReportBatchItemFailures::default(),
        }
    }
}
