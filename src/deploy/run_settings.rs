//! Describes how a function runs PHP: the part of its configuration that the rules compare.

use std::time::Duration;

/// How a function's PHP runs, given its configuration and the template's environment.
#[derive(Debug, Clone)]
pub struct RunSettings {
    pub streams: bool,
    pub workers: u64,
    /// PHP's memory_limit in MB; None without a limit or if unknown.
    pub memory_limit: Option<u64>,
    /// Time kept from each event's deadline for ending late workers.
    pub deadline_margin: Duration,
    /// Time limit of one record.
    pub record_timeout: Option<Duration>,
    pub failures: BatchFailures,
    pub handler: EventHandler,
    pub code: Code,
    /// Surus relies on a REST API that decodes base64 (`lambda.binary_media_types`).
    pub sends_base64: bool,
}

/// How Lambda learns which records of a batch failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchFailures {
    /// Surus reports them.
    Reported,
    /// The handler may report them in its result.
    Handler,
    /// Not at all: the whole batch fails with one of its records.
    Unreported,
}

/// The target of a function's `CodeUri`, as far as it is on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Code {
    /// A directory, which the tool zips as it is.
    Directory { has_bootstrap: bool },
    /// A zip, or the zip that `surus lambda package` would write here.
    Zip {
        /// Whether it exists.
        exists: bool,
        /// Lambda's name of its programs' architecture, if Lambda has one.
        architecture: Option<&'static str>,
    },
    /// A bucket, an image, or a value that only the deployment knows.
    Elsewhere,
}

/// The handler of events that are not HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventHandler {
    /// A PHP file that returns a handler.
    File,
    /// A script that runs commands, such as `bin/console`.
    Console,
    /// None: the application's `POST /events`.
    Application,
    /// The template names a file that the package does not have.
    Missing,
}
