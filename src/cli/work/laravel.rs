//! Asks a Laravel application for its queue configuration.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use serde::Deserialize;

use crate::fronts::queue::runner::{Answer, Runner};

/// How long PHP may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The default queue connection of an application.
#[derive(Deserialize)]
#[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
pub struct Application {
    /// The connection's name.
    pub connection: String,
    /// `database`, `redis`, `sync` and others.
    pub driver: String,
    /// The name of its default queue.
    pub queue: String,
    pub table: Option<String>,
    /// The lease in seconds.
    pub retry_after: u64,
    pub failed_table: Option<String>,
    /// The database of the driver `database`.
    pub database: Option<Database>,
    /// The server of the driver `redis`.
    pub redis: Option<Redis>,
}

#[derive(Deserialize)]
#[cfg_attr(not(feature = "redis"), allow(dead_code))]
pub struct Redis {
    /// With its password.
    pub url: String,
    /// What all keys begin with.
    pub prefix: String,
}

#[derive(Deserialize)]
#[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
pub struct Database {
    /// `sqlite`, `mysql`, `pgsql` and others.
    pub driver: String,
    /// The file, for SQLite.
    pub database: String,
    /// What all names of tables begin with.
    pub prefix: String,
}

/// Asks the booted application.
pub async fn ask(runner: &Runner) -> anyhow::Result<Application> {
    let question = Bytes::from_static(br#"{"describe":true}"#);
    let answer = runner.ask(question, "", TIMEOUT).await;
    match answer.context("cannot ask the application for its queue configuration")? {
        Answer::Result(json) => {
            serde_json::from_slice(&json).context("the application's queue configuration")
        }
        Answer::Error { message, .. } => {
            bail!("cannot ask the application for its queue configuration: {message}")
        }
    }
}
