//! The options of `surus lambda deploy`, `logs` and `console`, which every build has.

use std::path::PathBuf;

use crate::cli::options::Project;
use crate::units::Time;

/// Selects the function and the account.
#[cfg_attr(not(feature = "deploy"), allow(dead_code))]
#[derive(Debug, clap::Args)]
pub struct Target {
    #[command(flatten)]
    pub project: Project,
    /// Name of the function [default: deploy.name, or the project directory's name]
    #[arg(long)]
    pub name: Option<String>,
    /// Region [default: deploy.region, or as for AWS's tools: AWS_REGION, or the profile's]
    #[arg(long)]
    pub region: Option<String>,
    /// Profile of AWS's shared files [default: AWS_PROFILE, or default]
    #[arg(long)]
    pub profile: Option<String>,
}

/// The options of `surus lambda deploy`.
#[cfg_attr(not(feature = "deploy"), allow(dead_code))]
#[derive(Debug, clap::Args)]
pub struct Deploy {
    #[command(flatten)]
    pub target: Target,
    /// Zip that `surus lambda package` has built
    #[arg(long, value_name = "FILE", default_value = "function.zip")]
    pub zip: PathBuf,
    /// ARN of the function's execution role [default: deploy.role; an existing function keeps its
    /// role]
    #[arg(long, value_name = "ARN")]
    pub role: Option<String>,
    /// Memory in MB; CPU is proportional, 1769 MB are one CPU [default: deploy.memory]
    #[arg(long, value_name = "MB")]
    pub memory: Option<u32>,
    /// Timeout of the function [default: deploy.timeout]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Time>,
    /// Alias that the URL and the queue call [default: deploy.alias]
    #[arg(long)]
    pub alias: Option<String>,
    /// Do not create a public function URL [default: deploy.url]
    #[arg(long)]
    pub no_url: bool,
    /// ARN of the queue in SQS that triggers the function [default: deploy.queue]
    #[arg(long, value_name = "ARN")]
    pub queue: Option<String>,
    /// S3 bucket for zips above 50 MiB, in the function's region [default: deploy.bucket]
    #[arg(long)]
    pub bucket: Option<String>,
    /// Environment variable of the function, in addition to [deploy.env]; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub environment: Vec<String>,
    /// URL path to request of the new version before it gets traffic [default: deploy.smoke]
    #[arg(long, value_name = "PATH")]
    pub smoke: Option<String>,
    /// Do not request anything of the new version
    #[arg(long, conflicts_with = "smoke")]
    pub no_smoke: bool,
    /// Print what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// The options of `surus lambda logs`.
#[cfg_attr(not(feature = "deploy"), allow(dead_code))]
#[derive(Debug, clap::Args)]
pub struct Logs {
    #[command(flatten)]
    pub target: Target,
    /// Go on with new lines until interrupted
    #[arg(short, long)]
    pub follow: bool,
    /// How far back to begin
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub since: Time,
    /// Print only lines that match this pattern of CloudWatch
    #[arg(long, value_name = "PATTERN")]
    pub filter: Option<String>,
}

/// The options of `surus lambda console`.
#[cfg_attr(not(feature = "deploy"), allow(dead_code))]
#[derive(Debug, clap::Args)]
pub struct Console {
    #[command(flatten)]
    pub target: Target,
    /// Alias or version of the function [default: deploy.alias]
    #[arg(long)]
    pub alias: Option<String>,
    /// Command and its arguments, after --
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

/// Why a build without the feature has no such command.
#[cfg(not(feature = "deploy"))]
pub fn missing() -> anyhow::Error {
    anyhow::anyhow!(
        "this surus was built without AWS's SDK; use the package's, or build one with \
         `cargo build --release --features deploy`"
    )
}
