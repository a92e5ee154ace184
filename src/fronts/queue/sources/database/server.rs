//! Calls to database servers with a time limit, on the database's thread.

use std::error::Error;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use tokio::runtime::{Builder, Runtime};

/// How long a server may take to answer, or to be connected to.
const ANSWER: Duration = Duration::from_secs(10);

pub struct Calls(Runtime);

impl Calls {
    pub fn new() -> anyhow::Result<Calls> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Calls(runtime.context("cannot start a runtime")?))
    }

    /// Runs something that may take as long as it likes.
    #[cfg(feature = "postgres")]
    pub fn run<T>(&self, what: impl Future<Output = T>) -> T {
        self.0.block_on(what)
    }

    /// Waits for the answer to a call.
    pub fn wait<T, E: Error + 'static>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> anyhow::Result<T> {
        let limited = async { tokio::time::timeout(ANSWER, call).await };
        match self.0.block_on(limited) {
            Ok(answer) => answer.map_err(|error| whole(&error)),
            Err(_) => bail!("no answer from the server within {} s", ANSWER.as_secs()),
        }
    }
}

/// An error with its causes. Some errors repeat their cause, which is told once.
fn whole(error: &dyn Error) -> anyhow::Error {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.contains(&why) {
            text = format!("{text}: {why}");
        }
        cause = error.source();
    }
    anyhow!(text)
}

/// Whether a version as its server writes it is old. A part that is missing counts as 0.
pub fn is_older(version: &str, oldest: [u32; 3]) -> bool {
    let numbers = version.split(|c: char| !c.is_ascii_digit());
    let mut numbers = numbers.filter_map(|number| number.parse().ok());
    let version = [(); 3].map(|()| numbers.next().unwrap_or(0));
    version < oldest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_are_recognized() {
        for (version, oldest, old) in [
            ("10.11.18-MariaDB-0+deb12u1", [10, 6, 0], false),
            ("10.5.9-MariaDB", [10, 6, 0], true),
            ("8.0.1", [8, 0, 1], false),
            ("8.0.0-dmr", [8, 0, 1], true),
            ("15.14 (Debian 15.14-0+deb12u1)", [9, 5, 0], false),
            ("9.4.26", [9, 5, 0], true),
            ("18beta1", [9, 5, 0], false),
        ] {
            assert_eq!(is_older(version, oldest), old, "{version}");
        }
    }
}
