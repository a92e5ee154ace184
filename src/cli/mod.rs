//! The command line: one file per subcommand.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod boot;
mod check;
mod engines;
mod findings;
mod htaccess;
mod keep;
mod lambda;
mod leaks;
mod no_pages;
mod options;
mod readable;
mod reload;
mod serve;
mod status;
mod stdout;
mod stub;
mod trim;
mod user_ini;

pub use serve::keep_other;

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::observe::log;

/// Runs PHP applications.
#[derive(Parser)]
#[command(name = "surus", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve an application over HTTP
    Serve(options::Args),
    /// Say what would run, and what is wrong with it, without serving
    Check(options::Args),
    /// Show what the workers of a running surus do
    Status(status::Args),
    /// Have a running surus boot the application anew, without losing a request
    Reload(options::Project),
    /// Say what requests leave behind in a process that serves many (the engine `worker`), by name
    Leaks(leaks::Leaks),
    /// Be an AWS Lambda function
    Lambda(Box<lambda::Lambda>),
    /// List the ways of running PHP
    Engines,
}

/// Does what the command line says; the exit status is 0, 1 for a failure, or 2 for a command line that is wrong.
pub fn run() -> ExitCode {
    let result = match command_line().command {
        Command::Serve(args) => serve::run(args),
        Command::Check(args) => check::run(args),
        Command::Status(args) => status::run(args),
        Command::Reload(args) => reload::run(args),
        Command::Leaks(args) => leaks::run(args),
        Command::Lambda(args) => lambda::run(*args),
        Command::Engines => engines::run(),
    }
    .and_then(|()| stdout::end());
    log::end(result.as_ref().err());
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// AWS Lambda starts what is called `bootstrap`, and tells it nothing.
fn command_line() -> Cli {
    let mut words: Vec<_> = std::env::args_os().collect();
    let called = words.first().map(Path::new).and_then(Path::file_name);
    if called.is_some_and(|name| name == "bootstrap") {
        words.insert(1, "lambda".into());
    }
    Cli::parse_from(words)
}

/// For commands that ask one question and end.
fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(future)
}
