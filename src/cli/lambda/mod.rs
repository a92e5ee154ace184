//! `surus lambda` and its subcommands.

mod check;
#[cfg(feature = "deploy")]
mod cloud;
mod cloud_options;
mod compile;
mod compiled;
mod deployed;
mod dev;
mod emulated;
mod invoke;
mod package;
mod profile;
mod runtime;
#[cfg(feature = "secrets")]
mod secrets;
mod template;
mod writable;

use std::process::ExitCode;

/// Arguments of `surus lambda`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Lambda {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    function: runtime::AppLocation,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run a function locally with a URL, a queue and a schedule, as on AWS
    #[command(after_help = "\
Examples:
  surus lambda dev
  surus lambda dev /srv/app --service http --environments 4
  surus lambda dev --every 1m=event.json")]
    Dev(dev::Args),
    /// Run one event locally: response to stdout, log to stderr
    #[command(after_help = "\
Examples:
  surus lambda invoke event.json
  surus lambda invoke event.json /srv/app --memory 512")]
    Invoke(invoke::Args),
    /// Build a function's zip with Surus, PHP, its libraries and the application
    #[command(after_help = "\
Examples:
  surus lambda package
  surus lambda package /srv/app --extension pdo_mysql --output app.zip")]
    Package(package::Args),
    /// Print a template for a tool that deploys the zip
    #[command(after_help = "\
Examples:
  surus lambda template sam > template.yaml
  surus lambda template terraform /srv/app --memory 1769 > main.tf")]
    Template(template::Args),
    /// Create or update the function on AWS from its zip, and print its URL
    #[command(after_help = "\
Examples:
  surus lambda deploy --dry-run
  surus lambda deploy --role arn:aws:iam::123456789012:role/shop
  surus lambda deploy /srv/app --env APP_ENV=prod --memory 1769")]
    Deploy(Box<cloud_options::Deploy>),
    /// Print the log of the function on AWS
    #[command(after_help = "\
Examples:
  surus lambda logs
  surus lambda logs --follow --filter ERROR
  surus lambda logs /srv/app --since 2h")]
    Logs(cloud_options::Logs),
    /// Run a console command in the function on AWS, and exit with its status
    #[command(after_help = "\
Examples:
  surus lambda console -- app:report --daily
  surus lambda console /srv/app --name shop-console -- migrate --force")]
    Console(cloud_options::Console),
    /// Check a template of AWS SAM or CloudFormation for mistakes, together with this configuration
    #[command(after_help = "\
Examples:
  surus lambda check
  surus lambda check /srv/app template.yaml")]
    Check(check::Args),
    /// Measure the parts of a cold start and list the PHP files it reads
    #[command(after_help = "\
Examples:
  surus lambda profile
  surus lambda profile /srv/app --engine rewind --svg start.svg")]
    Profile(profile::Profile),
}

/// Without a subcommand, runs the function.
pub fn run(args: Lambda) -> anyhow::Result<ExitCode> {
    let done = match args.command {
        None => runtime::run(args.function),
        Some(Command::Dev(args)) => dev::run(args),
        Some(Command::Invoke(args)) => invoke::run(args),
        Some(Command::Package(args)) => package::run(args),
        Some(Command::Template(args)) => template::run(args),
        #[cfg(feature = "deploy")]
        Some(Command::Deploy(args)) => cloud::deploy::run(*args),
        #[cfg(feature = "deploy")]
        Some(Command::Logs(args)) => cloud::logs::run(args),
        #[cfg(feature = "deploy")]
        Some(Command::Console(args)) => return cloud::console::run(args),
        #[cfg(not(feature = "deploy"))]
        Some(Command::Deploy(_) | Command::Logs(_) | Command::Console(_)) => {
            return Err(cloud_options::missing());
        }
        Some(Command::Check(args)) => check::run(args),
        Some(Command::Profile(args)) => profile::run(args),
    };
    done.map(|()| ExitCode::SUCCESS)
}
