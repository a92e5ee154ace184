//! What commands print. `println!` would end the process in the midst of its work where nobody reads any more, or the disk is full.
//! What goes to stderr is `observe::log`'s.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// Why something could not be printed; then nothing more is.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Prints a line of what was asked for, as `println!`.
macro_rules! say {
    ($($what:tt)*) => {
        $crate::cli::stdout::print(format_args!("{}\n", format_args!($($what)*)))
    };
}
pub(crate) use say;

/// Prints what was asked for. Whether all of it could be, is known at the end.
pub fn print(text: impl Display) {
    if FAILED.get().is_none()
        && let Err(error) = write(text)
    {
        let _ = FAILED.set(error);
    }
}

/// Prints a line of a server, which serves whether anybody reads it or not.
pub fn announce(line: impl Display) {
    let _ = write(format_args!("{line}\n"));
}

/// What could not be printed is a failure, but where its reader has had enough, as in `surus check | head -1`.
pub fn end() -> anyhow::Result<()> {
    match FAILED.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            anyhow::bail!("cannot write all of it to stdout: {error}")
        }
        _ => Ok(()),
    }
}

fn write(text: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    write!(stdout, "{text}")?;
    stdout.flush()
}
