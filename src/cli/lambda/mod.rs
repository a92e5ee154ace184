//! `surus lambda` and what belongs to it, a file per subcommand.

mod check;
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

/// What is to be done with a function.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Lambda {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    function: runtime::Which,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Try a function here: a URL, a queue and a clock before it, as AWS would have them
    Dev(dev::Args),
    /// Run one event here: the answer to stdout, the log to stderr
    Invoke(invoke::Args),
    /// Make the zip of a function: Surus, PHP with everything that it needs, and the application
    Package(package::Args),
    /// Print the template with which another tool deploys the zip
    Template(template::Args),
    /// Say what goes wrong with a template of AWS SAM or CloudFormation and this configuration
    Check(check::Args),
    /// Measure a cold start, part by part, and which PHP files it reads
    Profile(profile::Profile),
}

/// Without a subcommand, this is the function.
pub fn run(args: Lambda) -> anyhow::Result<()> {
    match args.command {
        None => runtime::run(args.function),
        Some(Command::Dev(args)) => dev::run(args),
        Some(Command::Invoke(args)) => invoke::run(args),
        Some(Command::Package(args)) => package::run(args),
        Some(Command::Template(args)) => template::run(args),
        Some(Command::Check(args)) => check::run(args),
        Some(Command::Profile(args)) => profile::run(args),
    }
}
