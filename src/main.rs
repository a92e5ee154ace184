//! Entry point of the `surus` command.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    surus::cli::run()
}
