//! Entry point of the `surus` command, and its allocator.
#![forbid(unsafe_code)]

/// Keeps blocks of one size together. glibc's leaves the space of freed buffers between blocks that
/// are still in use, so that an idle connection would cost twice as much memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    surus::cli::run()
}
