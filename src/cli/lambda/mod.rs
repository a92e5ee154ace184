//! `surus lambda` and what belongs to it, a file per subcommand.

mod runtime;

/// What is to be done with a function.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Lambda {
    #[command(flatten)]
    function: runtime::Which,
}

/// Without a subcommand, this is the function.
pub fn run(args: Lambda) -> anyhow::Result<()> {
    runtime::run(args.function)
}
