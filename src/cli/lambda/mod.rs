//! `surus lambda` and what belongs to it, a file per subcommand.

mod dev;
mod emulated;
mod invoke;
mod runtime;

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
}

/// Without a subcommand, this is the function.
pub fn run(args: Lambda) -> anyhow::Result<()> {
    match args.command {
        None => runtime::run(args.function),
        Some(Command::Dev(args)) => dev::run(args),
        Some(Command::Invoke(args)) => invoke::run(args),
    }
}
