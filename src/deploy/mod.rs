//! A function as the tools that deploy to AWS Lambda describe it: their templates are made here, and looked through for what goes wrong.

pub mod cdk;
pub mod code;
pub mod dockerfile;
pub mod document;
mod doors;
pub mod findings;
pub mod sam;
mod schedules;
pub mod serverless;
pub mod stack;
pub mod terraform;
mod values;

use std::collections::BTreeMap;

use anyhow::bail;

/// The function that a template is to describe.
#[derive(Debug, Clone)]
pub struct Function {
    /// Letters, digits and dashes.
    pub name: String,
    /// `_HANDLER`.
    pub handler: String,
    /// Lambda's word: `x86_64` or `arm64`.
    pub architecture: String,
    /// MB.
    pub memory: u32,
    /// Seconds.
    pub timeout: u32,
    pub http: Http,
    pub queue: Option<Queue>,
    /// The function is set to stream its answers.
    pub streams: bool,
    pub environment: BTreeMap<String, String>,
    /// The zip, as the template is to name it.
    pub zip: String,
}

/// How HTTP requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Http {
    /// A function URL
    Url,
    /// API Gateway's HTTP API
    Api,
    /// Not at all
    None,
}

/// The queue whose messages the function gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Queue {
    /// Messages come in any order
    Standard,
    /// Messages of a group come in their order
    Fifo,
}

/// Seconds that API Gateway waits for a function; a REST API waits 29.
pub const API_SECONDS: u32 = 30;

/// Lambda's longest.
pub const LONGEST_SECONDS: u32 = 900;

/// The queue hides a message for so many times the function's timeout, as AWS recommends.
pub const VISIBILITY_FACTOR: u32 = 6;

/// After so many attempts a message goes to the dead-letter queue: AWS says at least so many, since Lambda's pollers can use up some.
pub const RECEIVES: u32 = 5;

/// Messages that the function gets at once.
pub const BATCH: u32 = 10;

impl Function {
    /// Refuses what AWS would, or what could not work.
    pub fn check(&self) -> anyhow::Result<()> {
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.name.is_empty() || self.name.len() > 50 || !self.name.chars().all(fine) {
            bail!(
                "--name is `{}`; it may have up to 50 letters, digits and dashes",
                self.name
            );
        }
        if !(128..=10_240).contains(&self.memory) {
            bail!("--memory is {}; Lambda takes 128 to 10240 MB", self.memory);
        }
        if !(1..=LONGEST_SECONDS).contains(&self.timeout) {
            bail!(
                "--timeout is {}; Lambda takes 1 to {LONGEST_SECONDS} seconds",
                self.timeout
            );
        }
        if self.http == Http::Api && self.timeout >= API_SECONDS {
            bail!(
                "--timeout is {}, but an HTTP API answers 503 after {API_SECONDS} s, and the function would go on for nobody; \
                 lower it, or use a function URL (--http url)",
                self.timeout
            );
        }
        if self.http == Http::Api && self.streams {
            bail!(
                "[lambda] mode is `stream`, and an HTTP API does not take streams; use a function URL (--http url), or set \
                 mode to `buffered`"
            );
        }
        if self.http == Http::None && self.queue.is_none() {
            bail!("neither --http nor --queue: nothing would ever call the function");
        }
        for (name, value) in &self.environment {
            let fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.len() < 2
                || !name.starts_with(|c: char| c.is_ascii_alphabetic())
                || !name.chars().all(fine)
            {
                bail!(
                    "--env {name}={value}: a name begins with a letter and goes on with letters, digits and underscores"
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

/// A text with double quotes, as JSON, YAML and TypeScript read it alike.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
