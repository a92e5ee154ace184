//! The least load generators on a library: what `surus bench` could have been built on. Each sends
//! GET requests over some connections for some seconds, on one thread, and only counts responses.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::time::Duration;

/// What a generator shall do.
pub struct TestLoad {
    pub address: SocketAddr,
    pub path: String,
    pub length: Duration,
    pub connections: usize,
}

impl TestLoad {
    /// Reads `http://ADDRESS:PORT/PATH SECONDS CONNECTIONS` from the command line.
    pub fn from_arguments() -> Option<TestLoad> {
        let mut arguments = std::env::args().skip(1);
        let url = arguments.next()?;
        let (address, path) = url.strip_prefix("http://")?.split_once('/')?;
        Some(TestLoad {
            address: address.parse().ok()?,
            path: format!("/{path}"),
            length: Duration::from_secs(arguments.next()?.parse().ok()?),
            connections: arguments.next()?.parse().ok()?,
        })
    }
}

/// Runs a generator, and prints how many responses came.
pub fn run(generate: impl FnOnce(&TestLoad) -> std::io::Result<u64>) -> std::process::ExitCode {
    let Some(load) = TestLoad::from_arguments() else {
        eprintln!("usage: GENERATOR http://ADDRESS:PORT/PATH SECONDS CONNECTIONS");
        return 64.into();
    };
    match generate(&load) {
        Ok(count) => {
            println!("{count} responses");
            0.into()
        }
        Err(error) => {
            eprintln!("{error}");
            1.into()
        }
    }
}
