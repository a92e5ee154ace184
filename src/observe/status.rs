//! The workers of an engine, as the status page and `surus status` show them.

use serde::{Deserialize, Serialize};

/// One engine at one instant.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EngineStatus {
    /// The engine's name in the catalogue.
    pub engine: String,
    /// The engine that serves instead, because the application cannot be booted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// `8.2.35`, as PHP itself says.
    pub php: String,
    /// 1 for the first boot of this engine, one more for every reload.
    pub generation: u64,
    /// Requests that wait for a worker.
    pub queued: usize,
    pub workers: Vec<WorkerStatus>,
}

/// One worker process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerStatus {
    pub pid: u32,
    pub state: WorkerState,
    /// Milliseconds in this state.
    pub for_ms: u64,
    /// Requests this process has finished.
    pub served: u64,
    /// Resident memory in bytes when its last request ended.
    pub memory: u64,
    /// Method and URI of its current request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    /// Forked, not yet ready for requests.
    Starting,
    Idle,
    /// Runs a script and has not answered yet.
    Busy,
    /// Has answered (`fastcgi_finish_request`) and still runs.
    Finishing,
}
