//! Which function is emulated, and how it is configured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::fault::Faults;

/// A function as AWS Lambda would have it configured.
#[derive(Clone)]
pub struct Function {
    pub name: String,
    pub version: String,
    /// `_HANDLER`.
    pub handler: String,
    pub region: String,
    pub account: String,
    /// MB.
    pub memory: u64,
    /// How long one event may take.
    pub timeout: Duration,
    /// How long the initialization may take before Lambda begins it anew inside the first event; 10 seconds there.
    pub init_limit: Duration,
    pub runtime: Runtime,
    /// The function's own environment variables.
    pub variables: BTreeMap<String, String>,
    pub initialization: Initialization,
    pub log_format: LogFormat,
    /// Where the executables of external extensions are; `/opt/extensions` there.
    pub extensions: Option<PathBuf>,
    /// Execution environments at most, each of which has one event at a time. Further events wait.
    pub environments: usize,
    pub faults: Faults,
    /// Gets every line of the log as it comes.
    pub sink: Option<Sink>,
    /// Do [`Invocation`](super::Invocation)s carry their part of the log? Without this and a sink, what the runtime writes is discarded.
    pub keeps_log: bool,
    pub resources: Resources,
}

/// Gets lines of the log.
pub type Sink = Arc<dyn Fn(&str) + Send + Sync>;

/// What speaks the Runtime API.
#[derive(Clone)]
pub enum Runtime {
    /// A process that is started, `bootstrap`.
    Command {
        program: PathBuf,
        arguments: Vec<String>,
        /// `LAMBDA_TASK_ROOT`, and where it is started.
        directory: PathBuf,
    },
    /// Somebody who has been told the address: nothing is started and nothing is killed, connections are closed instead.
    Attached,
}

/// What makes an environment ready (`AWS_LAMBDA_INITIALIZATION_TYPE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initialization {
    /// The first event begins it.
    OnDemand,
    /// It is done before the first event.
    Provisioned,
    /// As provisioned, but the runtime may wait in `/restore/next`, where the snapshot is taken.
    SnapStart,
    /// Lambda Managed Instances: one environment has several events at once.
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

    /// Events that one environment has at once.
    pub fn concurrency(self) -> usize {
        match self {
            Initialization::ManagedInstances { concurrency } => concurrency.max(1),
            _ => 1,
        }
    }

    /// Instances have no freeze, no reset at timeouts, and answer late responses with 410.
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

/// Does an environment get the CPU share and the memory that Lambda would give it?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resources {
    /// It has the whole machine.
    Unlimited,
    /// memory / 1769 MB of a CPU, and the memory, by control groups. It fails where those are not allowed.
    Limited,
}

impl Function {
    /// With Lambda's defaults: 128 MB, 3 seconds, on demand.
    pub fn new(runtime: Runtime) -> Function {
        Function {
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

    /// A process as the runtime.
    pub fn command(
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<String>>,
    ) -> Function {
        Function::new(Runtime::Command {
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
