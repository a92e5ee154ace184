//! `cli`: php, started for each event. `cli.php` makes a request of what it is given, and a response of what the script says: to the
//! command line's PHP, both are unknown.

use std::path::PathBuf;

use anyhow::{Context, bail};
use surus_sys::process::Orphan;
use tokio::net::unix::pipe;

use super::exchange::Exchange;
use super::home::Home;
use super::launch::Launch;
use super::process::OneEvent;
use super::seats::Seats;
use super::{Php, Spec, no_seat, variables};
use crate::engine::Pending;
use crate::event::{Event, Failure};
use crate::observe::status::WorkerStatus;

/// Runs the script.
const DRIVER: &str = include_str!("cli.php");
/// What PHP has to be without, because the driver has it: a line each.
const REPLACED: &str = include_str!("cli.functions");

/// The driver's descriptors.
const VARIABLES: i32 = 3;
const HEAD: i32 = 4;

pub struct Cli {
    launch: Launch,
    driver: PathBuf,
    /// `disable_functions=…`. On the command line, since PHP that the script starts finds the same ini files.
    disable: String,
    seats: Seats,
    /// Has the settings and the driver.
    _home: Home,
}

impl Cli {
    pub async fn new(spec: &Spec, home: Home) -> anyhow::Result<Cli> {
        let launch = Launch::new(spec, &home)?;
        let mut disabled = disabled(&launch).await?;
        for name in REPLACED.lines() {
            disabled.push(',');
            disabled.push_str(name);
        }
        Ok(Cli {
            launch,
            driver: home.put("cli.php", DRIVER)?,
            disable: format!("disable_functions={disabled}"),
            seats: Seats::new(spec.workers),
            _home: home,
        })
    }
}

/// The functions that PHP's settings disable, with commas between.
async fn disabled(launch: &Launch) -> anyhow::Result<String> {
    let mut command = launch.command(Orphan::Killed, Vec::new())?;
    // What is wrong with its settings, it would say among the names.
    for setting in ["display_startup_errors=0", "display_errors=stderr"] {
        command.args(["-d", setting]);
    }
    command.args(["-r", "echo ini_get('disable_functions');"]);
    let output = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot start {}", launch.program.display()))?;
    if !output.status.success() {
        bail!(
            "{} fails: {}\n{}",
            launch.program.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Php for Cli {
    fn begin<'a>(&'a self, event: &'a Event) -> Pending<'a, Result<Box<dyn Exchange>, Failure>> {
        Box::pin(async move {
            let mut text = Vec::new();
            for (name, value) in variables::of(event)? {
                text.extend_from_slice(&[&name[..], b"=", &value, b"\0"].concat());
            }
            let prepare = || {
                let variables = surus_sys::process::memory_file(&text)?;
                let (ours, theirs) = std::io::pipe()?;
                let fds = vec![(variables, VARIABLES), (theirs.into(), HEAD)];
                let mut command = self.launch.command(Orphan::Killed, fds)?;
                for setting in [
                    self.disable.as_str(),
                    "auto_prepend_file=",
                    "auto_append_file=",
                    "session.auto_start=0",
                ] {
                    command.args(["-d", setting]);
                }
                command.arg("-f").arg(&self.driver);
                Ok((command, pipe::Receiver::from_owned_fd(ours.into())?))
            };
            let (command, head) =
                prepare().map_err(|error: std::io::Error| Failure::Died(error.to_string()))?;
            let seat = self.seats.take(event).ok_or_else(no_seat)?;
            let body = event.request.body();
            let started = OneEvent::start(command, body, event.id, seat, Some(head))?;
            Ok(Box::new(started) as Box<dyn Exchange>)
        })
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        self.seats.status()
    }

    fn end(&self) -> Pending<'_, ()> {
        Box::pin(async {})
    }
}
