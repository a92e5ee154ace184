//! `cli`: php, started for each event. `cli.php` makes a request of what it is given, and a response of what the script says: to the
//! command line's PHP, both are unknown.

use std::os::fd::OwnedFd;

use anyhow::{Context, bail};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::exchange::Exchange;
use super::home::Home;
use super::launch::{Extra, Launch, nothing};
use super::process::OneEvent;
use super::seats::Seats;
use super::{Php, Spec, no_seat, variables};
use crate::engine::Pending;
use crate::event::{Event, Failure};
use crate::launcher::Role;
use crate::observe::status::WorkerStatus;

/// Runs the script.
pub const DRIVER: &str = include_str!("cli.php");
/// Its name in the directory.
pub const DRIVER_FILE: &str = "cli.php";
/// What PHP has to be without, because the driver has it: a line each.
const REPLACED: &str = include_str!("cli.functions");

/// The driver's descriptors.
pub const VARIABLES: i32 = 3;
pub const HEAD: i32 = 4;

pub struct Cli {
    launch: Launch,
    /// Functions that PHP's settings disable.
    disabled: String,
    seats: Seats,
    /// Has the settings and the driver.
    _home: Home,
}

impl Cli {
    pub async fn new(spec: &Spec, home: Home) -> anyhow::Result<Cli> {
        let launch = Launch::new(spec, &home)?;
        Ok(Cli {
            disabled: disabled(&launch).await?,
            launch,
            seats: Seats::new(spec.workers),
            _home: home,
        })
    }
}

/// What PHP is told with `-d`. On the command line, since PHP that the script starts finds the same ini files.
pub fn settings(disabled: &str) -> [String; 4] {
    let replaced = REPLACED.lines().map(|name| format!(",{name}"));
    [
        format!(
            "disable_functions={disabled}{}",
            replaced.collect::<String>()
        ),
        "auto_prepend_file=".into(),
        "auto_append_file=".into(),
        "session.auto_start=0".into(),
    ]
}

/// The functions that PHP's settings disable, with commas between; nothing where the keeper hears them and keeps them.
async fn disabled(launch: &Launch) -> anyhow::Result<String> {
    let (mut out, their_out) = pipe().context("no pipe")?;
    let (mut err, their_err) = pipe().context("no pipe")?;
    let stdio = [nothing()?, their_out, their_err];
    let mut child = launch.start(Role::Probe, Extra::default(), stdio).await?;
    let (mut said, mut complained) = (Vec::new(), Vec::new());
    let (out, err) = tokio::join!(out.read_to_end(&mut said), err.read_to_end(&mut complained));
    let program = launch.program.display();
    out.and(err)
        .with_context(|| format!("cannot hear {program}"))?;
    let status = child
        .wait()
        .await
        .with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        bail!(
            "{program} fails: {status}\n{}",
            String::from_utf8_lossy(&complained)
        );
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// A pipe that is read here.
fn pipe() -> std::io::Result<(pipe::Receiver, OwnedFd)> {
    let (ours, theirs) = std::io::pipe()?;
    Ok((pipe::Receiver::from_owned_fd(ours.into())?, theirs.into()))
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
                Ok((variables, pipe()?))
            };
            let (variables, (head, their_head)) =
                prepare().map_err(|error: std::io::Error| Failure::Died(error.to_string()))?;
            let extra = Extra {
                disabled: &self.disabled,
                driver: Some([variables, their_head]),
                ..Extra::default()
            };
            let seat = self.seats.take(event).ok_or_else(no_seat)?;
            let body = event.request.body();
            let started =
                OneEvent::start(&self.launch, extra, body, event.id, seat, Some(head)).await?;
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
