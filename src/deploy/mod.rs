//! Templates of the tools that deploy to AWS Lambda: writes them, and checks them for mistakes.

pub mod cdk;
mod code;
pub mod dockerfile;
pub mod dockerignore;
pub mod document;
pub mod finding;
mod intrinsics;
pub mod rules;
pub mod run_settings;
pub mod sam;
mod schedules;
pub mod serverless;
pub mod settings;
pub mod stack;
pub mod terraform;

use std::collections::BTreeMap;

use anyhow::bail;

/// The function that a template describes.
#[derive(Debug, Clone)]
pub struct Function {
    /// Letters, digits and dashes.
    pub name: String,
    /// `_HANDLER`.
    pub handler: String,
    /// Lambda's name: `x86_64` or `arm64`.
    pub architecture: String,
    /// In MB.
    pub memory: u32,
    /// In seconds.
    pub timeout: u32,
    pub http: Http,
    pub queue: Option<TriggerQueue>,
    /// The function streams its responses.
    pub streams: bool,
    pub environment: BTreeMap<String, String>,
    /// The path of the zip in the template.
    pub zip: String,
}

/// The trigger for HTTP requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Http {
    /// A function URL
    Url,
    /// API Gateway's HTTP API
    Api,
    /// None
    None,
}

/// The queue that triggers the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum TriggerQueue {
    /// Messages in any order
    Standard,
    /// Messages of a group in order
    Fifo,
}

/// How long API Gateway's HTTP API waits for a function; a REST API waits 29 s.
pub const API_SECONDS: u32 = 30;

/// Lambda's longest timeout.
pub const LONGEST_SECONDS: u32 = 900;

/// The queue hides a message for this multiple of the function's timeout, as AWS recommends.
pub const VISIBILITY_FACTOR: u32 = 6;

/// Attempts before a message goes to the dead-letter queue. AWS recommends at least five, since
/// Lambda's pollers can use up some.
pub const RECEIVES: u32 = 5;

/// Messages per batch.
pub const BATCH: u32 = 10;

impl Function {
    /// Rejects what AWS would reject, or what could not work.
    pub fn check(&self) -> anyhow::Result<()> {
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.name.is_empty() || self.name.len() > 50 || !self.name.chars().all(fine) {
            bail!(
                "--name is `{}`; expected up to 50 letters, digits and dashes",
                self.name
            );
        }
        if !(128..=10_240).contains(&self.memory) {
            bail!(
                "--memory is {}; Lambda accepts 128 to 10240 MB",
                self.memory
            );
        }
        if !(1..=LONGEST_SECONDS).contains(&self.timeout) {
            bail!(
                "--timeout is {}; Lambda accepts 1 to {LONGEST_SECONDS} seconds",
                self.timeout
            );
        }
        if self.http == Http::Api && self.timeout >= API_SECONDS {
            bail!(
                "--timeout is {}, but an HTTP API answers 503 after {API_SECONDS} s while the \
                 function continues; lower it, or use a function URL (--http url)",
                self.timeout
            );
        }
        if self.http == Http::Api && self.streams {
            bail!(
                "[lambda] mode is `stream`, but an HTTP API does not stream; use a function URL \
                 (--http url), or set mode to `buffered`"
            );
        }
        if self.http == Http::None && self.queue.is_none() {
            bail!("neither --http nor --queue: nothing would call the function");
        }
        for name in self.environment.keys() {
            let fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.len() < 2
                || !name.starts_with(|c: char| c.is_ascii_alphabetic())
                || !name.chars().all(fine)
            {
                bail!(
                    "--env {name}: a name starts with a letter, followed by letters, \
                     digits and underscores"
                );
            }
        }
        Ok(())
    }

    fn invoke_mode(&self) -> &'static str {
        if self.streams {
            "RESPONSE_STREAM"
        } else {
            "BUFFERED"
        }
    }

    fn visibility(&self) -> u32 {
        (self.timeout * VISIBILITY_FACTOR).min(43_200)
    }
}

/// A string in double quotes that JSON, YAML and TypeScript read alike.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
