//! Asks an application for its queue configuration.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::fronts::queue::runner::{JobAnswer, Runner};

/// How long PHP may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Asks the booted application.
pub async fn ask<T: DeserializeOwned>(runner: &Runner) -> anyhow::Result<T> {
    let question = Bytes::from_static(br#"{"describe":true}"#);
    let answer = runner.ask(question, "", TIMEOUT).await;
    match answer.context("cannot ask the application for its queue configuration")? {
        JobAnswer::Result(json) => {
            serde_json::from_slice(&json).context("the application's queue configuration")
        }
        JobAnswer::Error { message, .. } => {
            bail!("cannot ask the application for its queue configuration: {message}")
        }
    }
}
