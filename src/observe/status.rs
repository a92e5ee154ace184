//! The workers of an engine and the certificates, as the admin listener and `surus status` show
//! them.

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
    /// Pages that requests have taught Surus, and that warm up its boots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<String>,
    /// URLs of `engine.warmup` that warm up its boots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<String>,
    /// Pages of both kinds that do not warm up boots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// What the boot script has created ahead, as PHP says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub created: String,
    /// None before the first request, and where no application is booted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub includes: Option<IncludesStatus>,
    /// Requests that wait for a worker.
    pub queued: usize,
    pub workers: Vec<WorkerStatus>,
    /// None if the number of workers is fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<ScalingStatus>,
}

/// A number of workers that adapts to the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScalingStatus {
    /// How many workers there should be now.
    pub target: usize,
    pub min: usize,
    pub max: usize,
    /// Memory was short when the pool tried to grow last, or has run out since.
    pub is_limited: bool,
}

/// A page that does not warm up boots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub page: String,
    #[serde(default)]
    pub reason: LeftOutReason,
    /// The reason in full.
    pub why: String,
}

/// The kinds of reasons why a page does not warm up boots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeftOutReason {
    /// Clients got status 200, and the boot gets another one.
    Status,
    /// It changes an answer.
    Changed,
    /// It leaves what cannot be restored.
    State,
    /// It ends in a fatal error, or ends the boot.
    #[default]
    Failed,
    /// It has answered with 429 or 5xx, and may be tried again.
    Temporary,
    /// Another script than the booted front controller answers it.
    OtherScript,
}

impl LeftOutReason {
    pub const ALL: [LeftOutReason; 6] = [
        LeftOutReason::Status,
        LeftOutReason::Changed,
        LeftOutReason::State,
        LeftOutReason::Failed,
        LeftOutReason::Temporary,
        LeftOutReason::OtherScript,
    ];

    /// As metrics and `sapi/app/warmup_report.h` name it.
    pub fn name(self) -> &'static str {
        match self {
            LeftOutReason::Status => "status",
            LeftOutReason::Changed => "changed",
            LeftOutReason::State => "state",
            LeftOutReason::Failed => "failed",
            LeftOutReason::Temporary => "temporary",
            LeftOutReason::OtherScript => "other_script",
        }
    }

    /// The reason of a boot that leaves a page out. The log of the boot has the details.
    pub fn in_the_boot(self) -> &'static str {
        match self {
            LeftOutReason::Status => "it does not answer with 200 in the boot",
            LeftOutReason::Changed => "it changes its own next answer in the boot",
            LeftOutReason::State => "it leaves in the boot what cannot be restored",
            LeftOutReason::Failed => "it fails in the boot, or would end the boot",
            LeftOutReason::Temporary => "it answers with 429 or 5xx for now in the boot",
            LeftOutReason::OtherScript => {
                "another script than the booted front controller answers it"
            }
        }
    }
}

/// What requests of a booted application have included since its boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncludesStatus {
    pub requests: u64,
    /// Files that the boot had not included.
    pub files: u64,
}

impl IncludesStatus {
    pub fn files_per_request(&self) -> f64 {
        self.files as f64 / self.requests.max(1) as f64
    }
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
    /// PHP's, if that request is slow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backtrace: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

/// A certificate that is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// Its file.
    pub certificate: String,
    /// The hosts that it is for.
    pub names: Vec<String>,
    /// When it ends, in seconds since 1970.
    pub not_after: i64,
    /// The time from which on that is worth a warning.
    #[serde(default)]
    pub ends_soon_at: i64,
}

/// The last attempt to get a certificate for a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeStatus {
    pub domain: String,
    /// When the next one is due, in seconds since 1970.
    pub next: u64,
    /// Why there is no certificate, or no new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The certificate is served from memory, and cannot be stored for that reason.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unstored: bool,
}

/// A domain of `[acme]` without a valid certificate, or with one that was not renewed or stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainStatus {
    pub domain: String,
    /// It has no valid certificate.
    pub is_pending: bool,
    /// When the next attempt is due, in seconds since 1970. None before the first one has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Why the last attempt has brought no certificate, or why it is not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// As in [`AcmeStatus`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unstored: bool,
}

/// A site of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteStatus {
    /// Empty if there is no `[[site]]`.
    pub site: String,
    /// These are the queues, and no site.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_queues: bool,
    /// The hosts that it is for, and whether it is for all others.
    pub hosts: Vec<String>,
    pub is_default: bool,
    /// Why it is not served.
    pub error: Option<String>,
    /// Why its own certificates cannot be used, or not the new ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_error: Option<String>,
}

/// Responses with one outcome.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OutcomeCount {
    pub engine: String,
    pub outcome: String,
    pub total: u64,
    pub per_second: Option<f64>,
}

/// Workers that exited for one reason.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ExitCount {
    pub engine: String,
    pub reason: String,
    pub total: u64,
}
