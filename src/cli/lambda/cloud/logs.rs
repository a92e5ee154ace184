//! `surus lambda logs`: prints the log of a deployed function.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use aws_sdk_cloudwatchlogs::Client;
use aws_sdk_cloudwatchlogs::types::FilteredLogEvent;
use jiff::Timestamp;

use super::failure::{explain, is_missing, is_temporary};
use super::state::configuration;
use crate::cli::lambda::cloud_options::Logs;
use crate::cli::stdout::{self, say};
use crate::observe::log;

/// Pause between two questions for new lines.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause while AWS cannot be reached.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// CloudWatch may show a line this many milliseconds later than others that are newer.
const LATE: i64 = 60_000;

pub fn run(args: Logs) -> anyhow::Result<()> {
    let project = args.target.project.directory()?;
    let config = args.target.load()?;
    let name = args.target.function_name(&project, &config);
    crate::cli::block_on(async {
        let sdk = args.target.connect(&config).await?;
        let lambda = aws_sdk_lambda::Client::new(&sdk);
        let Some(function) = configuration(&lambda, &name, None).await? else {
            bail!(
                "there is no function {name} in {}; name it with --name (deploy.name), or its \
                 region with --region",
                sdk.region().map_or("this region", |region| region.as_ref())
            );
        };
        let configured = function.logging_config().and_then(|it| it.log_group());
        let group = configured.map_or_else(|| format!("/aws/lambda/{name}"), str::to_string);
        let since = Timestamp::now().as_millisecond() - args.since.0.as_millis() as i64;
        let mut window = Window::new(since);
        let logs = Client::new(&sdk);
        let (mut was_there, mut waits) = (false, false);
        let mut pause = PAUSE;
        loop {
            match print(&logs, &group, args.filter.as_deref(), &mut window).await {
                Ok(true) => {
                    was_there = true;
                    pause = PAUSE;
                }
                Ok(false) if was_there => bail!("the log group {group} was deleted"),
                Ok(false) => {
                    let text = format!(
                        "there is no log group {group}: the function has not run yet, or its role \
                         may not write logs (AWSLambdaBasicExecutionRole)"
                    );
                    if !args.follow {
                        bail!(text);
                    }
                    if !waits {
                        log::print(format_args!("{text}; waiting for it\n"));
                    }
                    waits = true;
                    pause = PAUSE;
                }
                Err(failed) if args.follow && failed.is_temporary => {
                    if pause == PAUSE {
                        let error = failed.error;
                        log::print(format_args!("{error:#}; trying again until that works\n"));
                    }
                    pause = longer(pause);
                }
                Err(failed) => return Err(failed.error),
            }
            if !args.follow || stdout::has_failed() {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
        }
    })
}

/// The pause after another failure.
fn longer(pause: Duration) -> Duration {
    (pause * 2).min(LONGEST_PAUSE)
}

/// Why new lines could not be read.
struct ReadFailure {
    error: anyhow::Error,
    /// The next attempt may succeed.
    is_temporary: bool,
}

/// Prints the new lines of a window. False if there is no such group. After a failure the window
/// stays the same, so that the next attempt prints the rest.
async fn print(
    logs: &Client,
    group: &str,
    filter: Option<&str>,
    window: &mut Window,
) -> Result<bool, ReadFailure> {
    let request = logs
        .filter_log_events()
        .log_group_name(group)
        .start_time(window.start)
        .set_filter_pattern(filter.map(str::to_string));
    let mut pages = request.into_paginator().send();
    let mut newest = window.newest;
    while let Some(page) = pages.next().await {
        let page = match page {
            Ok(page) => page,
            Err(error) if is_missing(&error) => return Ok(false),
            Err(error) => {
                return Err(ReadFailure {
                    is_temporary: is_temporary(&error),
                    error: explain(error).context("cannot read the log"),
                });
            }
        };
        for event in page.events() {
            let time = event.timestamp().unwrap_or_default();
            newest = newest.max(time);
            if window.is_new(event) {
                let time = Timestamp::from_millisecond(time).unwrap_or_default();
                let text = event.message().unwrap_or_default();
                say!("{time:.3} {}", text.trim_end());
            }
        }
    }
    window.advance(newest);
    Ok(true)
}

/// Which lines are new. Late lines must not be missed, so the window overlaps the one before, and
/// the ids in it are remembered.
struct Window {
    /// Milliseconds since 1970.
    start: i64,
    newest: i64,
    seen: BTreeSet<(i64, String)>,
}

impl Window {
    fn new(start: i64) -> Window {
        Window {
            start,
            newest: start,
            seen: BTreeSet::new(),
        }
    }

    fn is_new(&mut self, event: &FilteredLogEvent) -> bool {
        let id = event.event_id().unwrap_or_default().to_string();
        let time = event.timestamp().unwrap_or_default();
        self.seen.insert((time, id))
    }

    /// Forgets what the next window does not contain.
    fn advance(&mut self, newest: i64) {
        self.newest = newest;
        self.start = self.start.max(newest - LATE);
        self.seen = self.seen.split_off(&(self.start, String::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time: i64, id: &str) -> FilteredLogEvent {
        let event = FilteredLogEvent::builder().timestamp(time).event_id(id);
        event.build()
    }

    #[test]
    fn line_is_new_once_even_if_it_comes_late() {
        let mut window = Window::new(0);
        assert!(window.is_new(&event(100_000, "a")));
        window.advance(100_000);
        assert_eq!(window.start, 100_000 - LATE);
        assert!(!window.is_new(&event(100_000, "a")));
        // Older than the newest, but not seen before.
        assert!(window.is_new(&event(90_000, "late")));
        window.advance(100_000);
        assert!(!window.is_new(&event(90_000, "late")));
        window.advance(300_000);
        assert!(window.seen.is_empty());
    }

    #[test]
    fn attempt_after_a_failure_prints_the_rest_once() {
        let mut window = Window::new(0);
        assert!(window.is_new(&event(100_000, "a")));
        // The second page fails. The next attempt begins where this one did.
        assert_eq!(window.start, 0);
        assert!(!window.is_new(&event(100_000, "a")));
        assert!(window.is_new(&event(100_000, "b")));
    }

    #[test]
    fn pauses_grow_up_to_half_a_minute() {
        let pauses = std::iter::successors(Some(PAUSE), |pause| Some(longer(*pause)));
        let seconds: Vec<_> = pauses.take(8).map(|pause| pause.as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30, 30]);
    }
}
