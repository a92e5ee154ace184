//! The command line: subcommands, and what they share.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod access_logs;
mod acme;
mod addresses;
mod adopted_trees;
mod bench;
mod boot_engines;
mod boot_proof;
mod boot_script;
mod build;
mod built;
mod check;
mod config_lint;
mod config_trust;
mod engine_setup;
mod engines;
mod entry_script;
mod events;
mod exposed_files;
mod file_access;
mod findings;
mod first_boot;
mod front_end;
mod htaccess;
mod inherited;
mod init;
mod keeper_children;
mod keeper_tasks;
mod kept_versions;
mod lambda;
mod leaks;
mod learned_pages;
mod learning;
mod manual;
mod memory_trim;
mod new;
mod next_configuration;
mod options;
mod other_scripts;
mod packaging;
mod page_diff;
mod planned_text;
mod reach;
mod reconfigure;
mod reload;
mod revalidation;
mod root_walk;
mod running;
mod serve;
mod served;
mod server_reload;
mod serving;
mod site_plans;
mod spool_access;
mod status;
mod stdout;
mod stop_signals;
mod stub;
mod tls;
#[cfg(feature = "top")]
mod top;
mod trust;
mod user_ini;
mod value_lint;
mod warm_ups;
mod watch;
#[cfg(feature = "_work")]
mod work;
mod work_part;

pub use serve::keep_other;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};

use crate::observe::log;

const EXAMPLES: &str = "\
Examples:
  surus serve                           serve the application in this directory
  surus check /srv/app                  find out what would run, and what is misconfigured
  surus serve /srv/app --listen 8080    serve another one at http://127.0.0.1:8080
  surus status /srv/app                 see what its workers are doing";

/// Run PHP applications: serve HTTP, run queued jobs, or run on AWS Lambda
#[derive(Parser)]
#[command(name = "surus", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve an application over HTTP
    #[command(after_help = "\
Examples:
  surus serve
  surus serve /srv/app --listen 127.0.0.1:8080 --workers 8
  surus serve --engine rewind
  surus serve --https
  surus serve --watch
  surus serve --script worker.php -d memory_limit=256M")]
    Serve(serve::Serve),
    /// Show what would run and find misconfigurations, without serving
    #[command(after_help = "\
Examples:
  surus check
  surus check /srv/app --engine rewind
  surus check /srv/app --engine rewind --boot")]
    Check(check::Check),
    /// Write a small, runnable PHP project into a new directory
    #[command(after_help = "\
Examples:
  surus new shop
  surus new api my-api")]
    New(new::New),
    /// Try the engines with an application, and write a commented surus.toml
    #[command(after_help = "\
Examples:
  surus init
  surus init /srv/app --path / --path /login")]
    Init(init::Init),
    /// Show the workers and the certificates of a running surus
    #[command(after_help = "\
Examples:
  surus status /srv/app
  surus status --json /srv/app")]
    Status(status::Args),
    /// Make this machine's browsers trust the certificates of `serve --https`
    #[command(after_help = "\
Examples:
  surus trust
  sudo surus trust
  surus trust --remove")]
    Trust(trust::Trust),
    #[cfg(feature = "top")]
    /// Watch a running surus: rates, latencies, workers, slowest requests and errors
    #[command(after_help = "\
Examples:
  surus top /srv/app
  surus top --once /srv/app
  surus top --json --once /srv/app")]
    Top(top::Args),
    /// Boot the current version of an application in a running surus, without losing a request
    #[command(after_help = "\
Examples:
  surus reload /srv/app")]
    Reload(options::Project),
    /// List what requests leave behind in a worker process that serves many
    #[command(after_help = "\
Examples:
  surus leaks --url /
  surus leaks /srv/app --url /login --url '/search?q=a'")]
    Leaks(leaks::Leaks),
    /// Measure how a server answers under load
    #[command(after_help = "\
Examples:
  surus bench http://127.0.0.1:8080/
  surus bench http://127.0.0.1:8080/ --duration 60 --rps 100 --concurrency 10
  surus bench http://127.0.0.1:8080/ -n 100000 -c 100 --no-keepalive
  surus bench http://127.0.0.1:8080/ --find-max --p99 20ms
  surus bench http://127.0.0.1:8080/@3 http://127.0.0.1:8080/search --html report.html")]
    Bench(Box<bench::Bench>),
    #[cfg(feature = "_work")]
    /// Run the jobs of an application's queues
    ///
    /// SIGTERM, SIGINT and SIGQUIT finish running jobs and return the others; a second signal ends
    /// it at once. SIGHUP and SIGUSR2 boot the application again, and SIGUSR1 reopens log files.
    #[command(after_help = "\
Examples:
  surus work
  surus work /srv/app --workers 4
  surus work /srv/app --queue high=3 --queue default
  surus work status /srv/app")]
    Work(work::Args),
    /// Run an application as an AWS Lambda function
    #[command(after_help = "\
Examples:
  surus lambda dev
  surus lambda invoke event.json
  surus lambda package --extension pdo_mysql
  surus lambda template sam > template.yaml")]
    Lambda(Box<lambda::Lambda>),
    /// Make one executable of an application, its PHP and Surus
    #[command(after_help = "\
Examples:
  surus build
  surus build /srv/shop --output shop --extension pdo_mysql")]
    Build(build::Build),
    /// List the engines, which are the ways to run PHP
    #[command(after_help = "\
Examples:
  surus engines
  surus serve --engine rewind")]
    Engines,
    /// Print the completions of the command line for a shell
    #[command(after_help = "\
Examples:
  surus completions bash > ~/.local/share/bash-completion/completions/surus")]
    Completions(manual::Completions),
    /// Write the manual pages, one for each subcommand
    #[command(after_help = "\
Examples:
  surus manual /usr/local/share/man/man1")]
    Manual(manual::Manual),
}

impl Command {
    /// Whether it is for the application of an executable that `surus build` has made.
    fn runs_application(&self) -> bool {
        match self {
            Command::Serve(_)
            | Command::Check(_)
            | Command::Status(_)
            | Command::Reload(_)
            | Command::Leaks(_)
            | Command::Lambda(_) => true,
            #[cfg(feature = "top")]
            Command::Top(_) => true,
            #[cfg(feature = "_work")]
            Command::Work(_) => true,
            _ => false,
        }
    }
}

/// Runs the command line. The exit status is 0, 1 for a failure, 2 for an invalid command line, or
/// that of a command in `surus lambda console`.
pub fn run() -> ExitCode {
    let command = command_line().command;
    let result = surus_sys::signals::forget_inherited()
        .and_then(|()| surus_sys::signals::survive_stray())
        .context("cannot reset the signals")
        .and_then(|()| execute(command))
        .and_then(|status| stdout::end().map(|()| status));
    log::end(result.as_ref().err());
    result.unwrap_or(ExitCode::FAILURE)
}

fn execute(command: Command) -> anyhow::Result<ExitCode> {
    let _unpacked = match command.runs_application() {
        true => built::enter()?,
        false => None,
    };
    let done = match command {
        Command::Serve(args) => serve::run(args),
        Command::Check(args) => check::run(args),
        Command::New(args) => new::run(args),
        Command::Init(args) => init::run(args),
        Command::Status(args) => status::run(args),
        Command::Trust(args) => trust::run(args),
        #[cfg(feature = "top")]
        Command::Top(args) => top::run(args),
        Command::Reload(args) => reload::run(args),
        Command::Leaks(args) => leaks::run(args),
        Command::Bench(args) => bench::run(*args),
        #[cfg(feature = "_work")]
        Command::Work(args) => work::run(args),
        Command::Lambda(args) => return lambda::run(*args),
        Command::Build(args) => build::run(args),
        Command::Engines => engines::run(),
        Command::Completions(args) => manual::completions(&args),
        Command::Manual(args) => manual::manual(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// The parser of the command line, so that tests can check the commands that documents name.
pub fn command() -> clap::Command {
    Cli::command()
}

/// AWS Lambda starts a program named `bootstrap` without arguments.
fn command_line() -> Cli {
    let mut words: Vec<_> = std::env::args_os().collect();
    let called = words.first().map(Path::new).and_then(Path::file_name);
    if called.is_some_and(|name| name == "bootstrap") {
        words.insert(1, "lambda".into());
    }
    built::complete(&mut words);
    Cli::parse_from(words)
}

/// Runs a future for commands that ask one question and exit.
fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(future)
}
