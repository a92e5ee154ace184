//! The emulated function and its configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::fault_injection::Faults;

/// A function as configured on AWS Lambda.
#[derive(Clone)]
pub struct EmulatedFunction {
    pub name: String,
    pub version: String,
    /// `_HANDLER`.
    pub handler: String,
    pub region: String,
    pub account: String,
    /// MB.
    pub memory: u64,
    /// The timeout of one event.
    pub timeout: Duration,
    /// How long the initialization may take before it is restarted within the first event; 10
    /// seconds on Lambda.
    pub init_limit: Duration,
    pub runtime: Runtime,
    /// The function's own environment variables.
    pub variables: BTreeMap<String, String>,
    pub initialization: Initialization,
    pub log_format: LogFormat,
    /// The directory of external extensions; `/opt/extensions` on Lambda.
    pub extensions: Option<PathBuf>,
    /// The highest number of execution environments. Each runs one event at a time; further events
    /// wait.
    pub environments: usize,
    pub faults: Faults,
    /// Receives every line of the log as it is written.
    pub sink: Option<Sink>,
    /// Whether [`Invocation`](super::Invocation)s carry their part of the log. Without this and a
    /// sink, the runtime's output is discarded.
    pub keeps_log: bool,
    pub resources: Resources,
}

/// Receives lines of the log.
pub type Sink = Arc<dyn Fn(&str) + Send + Sync>;

/// The process that calls the Runtime API.
#[derive(Clone)]
pub enum Runtime {
    /// Surus starts this command as `bootstrap`.
    Command {
        program: PathBuf,
        arguments: Vec<String>,
        /// `LAMBDA_TASK_ROOT` and the working directory.
        directory: PathBuf,
    },
    /// A process started by others that connects to the address. It is never killed; its
    /// connections are closed instead.
    Attached,
}

/// When an environment initializes (`AWS_LAMBDA_INITIALIZATION_TYPE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initialization {
    /// With the first event.
    OnDemand,
    /// Before the first event.
    Provisioned,
    /// As provisioned, but the runtime may call `/restore/next`, where the snapshot is taken.
    SnapStart,
    /// Lambda Managed Instances: one environment runs several events at once.
    ManagedInstances { concurrency: usize },
}

impl Initialization {
    pub fn name(self) -> &'static str {
        match self {
            Initialization::OnDemand => "on-demand",
            Initialization::Provisioned => "provisioned-concurrency",
            Initialization::SnapStart => "snap-start",
            Initialization::ManagedInstances { .. } => "lambda-managed-instances",
        }
    }

    /// How many events one environment runs at once.
    pub fn concurrency(self) -> usize {
        match self {
            Initialization::ManagedInstances { concurrency } => concurrency.max(1),
            _ => 1,
        }
    }

    /// Instances are not frozen or reset after timeouts, and answer late responses with 410.
    pub fn is_managed(self) -> bool {
        matches!(self, Initialization::ManagedInstances { .. })
    }
}

/// `AWS_LAMBDA_LOG_FORMAT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

impl LogFormat {
    pub fn name(self) -> &'static str {
        match self {
            LogFormat::Text => "Text",
            LogFormat::Json => "JSON",
        }
    }
}

/// Whether an environment gets the CPU share and memory of Lambda.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resources {
    /// Uses the whole machine.
    Unlimited,
    /// memory / 1,769 MB of a CPU and the configured memory, with control groups. Fails where they
    /// are not allowed.
    Limited,
}

impl EmulatedFunction {
    /// Uses Lambda's defaults: 128 MB, 3 seconds, on demand.
    pub fn new(runtime: Runtime) -> EmulatedFunction {
        EmulatedFunction {
            name: "function".into(),
            version: "$LATEST".into(),
            handler: "index.php".into(),
            region: "us-east-1".into(),
            account: "123456789012".into(),
            memory: 128,
            timeout: Duration::from_secs(3),
            init_limit: Duration::from_secs(10),
            runtime,
            variables: BTreeMap::new(),
            initialization: Initialization::OnDemand,
            log_format: LogFormat::Text,
            extensions: None,
            environments: 1,
            faults: Faults::default(),
            sink: None,
            keeps_log: true,
            resources: Resources::Unlimited,
        }
    }

    /// Uses this command as the runtime.
    pub fn command(
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<String>>,
    ) -> EmulatedFunction {
        EmulatedFunction::new(Runtime::Command {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            directory: PathBuf::from("."),
        })
    }

    pub fn arn(&self) -> String {
        format!(
            "arn:aws:lambda:{}:{}:function:{}",
            self.region, self.account, self.name
        )
    }
}
