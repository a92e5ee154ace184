//! Prints the output of commands. Unlike `println!`, it does not panic if the reader has closed the
//! pipe or the disk is full. Messages on stderr belong to `observe::log`.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

use crate::observe::printable::printable;

/// The first error; nothing is printed after it.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Prints a line like `println!`.
macro_rules! say {
    ($($what:tt)*) => {
        $crate::cli::stdout::print(format_args!("{}\n", format_args!($($what)*)))
    };
}
pub(crate) use say;

/// Prints text. [`end`] reports an error.
pub fn print(text: impl Display) {
    if FAILED.get().is_none()
        && let Err(error) = write(text)
    {
        let _ = FAILED.set(error);
    }
}

/// Prints a line of a server, which continues even if the line cannot be written.
pub fn announce(line: impl Display) {
    let _ = write(format_args!("{line}\n"));
}

/// Whether the reader has closed the pipe, or the disk is full.
#[cfg(any(feature = "deploy", feature = "top"))]
pub fn has_failed() -> bool {
    FAILED.get().is_some()
}

/// Fails if something could not be printed, unless the reader has closed the pipe, as in `surus
/// check | head -1`.
pub fn end() -> anyhow::Result<()> {
    match FAILED.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            anyhow::bail!("cannot write to stdout: {error}")
        }
        _ => Ok(()),
    }
}

/// Surus prints no control characters of its own, so what is left of them are a file name's or a
/// client's, and could control the terminal.
fn write(text: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(printable(&text.to_string()).as_bytes())?;
    stdout.flush()
}
