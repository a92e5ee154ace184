//! `surus lambda` and what belongs to it, a file per subcommand.

mod dev;
mod emulated;
mod invoke;

#[derive(Debug, clap::Args)]
pub struct Lambda {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Try a function here: a URL, a queue and a clock before it, as AWS would have them
    Dev(dev::Args),
    /// Run one event here: the answer to stdout, the log to stderr
    Invoke(invoke::Args),
}

pub fn run(args: Lambda) -> anyhow::Result<()> {
    match args.command {
        Command::Dev(args) => dev::run(args),
        Command::Invoke(args) => invoke::run(args),
    }
}
