//! `surus lambda` and what belongs to it, a file per subcommand.

mod check;
mod package;
mod profile;
mod template;

#[derive(Debug, clap::Args)]
pub struct Lambda {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make the zip of a function: Surus, PHP with everything that it needs, and the application
    Package(package::Args),
    /// Say what goes wrong with a template of AWS SAM or CloudFormation and this configuration
    Check(check::Args),
    /// Measure a cold start, part by part, and which PHP files it reads
    Profile(profile::Profile),
    /// Print the template with which another tool deploys the zip
    Template(template::Args),
}

pub fn run(args: Lambda) -> anyhow::Result<()> {
    match args.command {
        Command::Package(args) => package::run(args),
        Command::Check(args) => check::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Template(args) => template::run(args),
    }
}
