//! What the workers of an engine are doing, as the status page and `surus status` show it.

use serde::{Deserialize, Serialize};

/// One engine at one instant.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EngineStatus {
    /// The engine's name in the catalogue.
    pub engine: String,
    /// `8.2.35`, as PHP itself says.
    pub php: String,
    /// Counts the boots of this engine since start: 1, then one more for every reload.
    pub generation: u64,
    /// Events that wait in the front for a worker.
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
    /// Events this process has ended.
    pub served: u64,
    /// Resident memory in bytes when its last event ended.
    pub memory: u64,
    /// Method and URI of the event in its hands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    /// Forked, not yet waiting for events.
    Starting,
    Idle,
    /// Runs a script whose answer is awaited.
    Busy,
    /// Has answered (`fastcgi_finish_request`) and goes on.
    Finishing,
}
