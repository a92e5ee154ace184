//! The engine `cli`: starts php for each event. The driver `cli.php` implements the request and
//! response, which PHP's command line lacks.

use std::os::fd::OwnedFd;

use anyhow::{Context, bail};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::command::{PhpLaunch, ProcessInputs, nothing};
use super::exchange::Exchange;
use super::process::OneEvent;
use super::runtime_dir::RuntimeDir;
use super::slots::ProcessSlots;
use super::{PhpSpec, StartedPhp, no_slot, variables};
use crate::engine::Pending;
use crate::event::{Event, Failure};
use crate::launcher::Role;
use crate::observe::status::WorkerStatus;

/// The parts of the driver script. The last one runs the application's script.
const PARTS: [&str; 10] = [
    include_str!("cli/cookie.php"),
    include_str!("cli/fields.php"),
    include_str!("cli/functions.php"),
    include_str!("cli/head.php"),
    include_str!("cli/parts.php"),
    include_str!("cli/request.php"),
    include_str!("cli/session.php"),
    include_str!("cli/settings.php"),
    include_str!("cli/uploads.php"),
    include_str!("cli.php"),
];

/// The driver script, which is one file.
pub fn driver() -> String {
    let bare = |part: &'static str| part.strip_prefix("<?php\n").unwrap_or(part);
    format!("<?php\n{}", PARTS.map(bare).concat())
}

pub struct Cli {
    launch: PhpLaunch,
    /// Functions that PHP's own settings disable.
    disabled: String,
    slots: ProcessSlots,
    /// Keeps the directory with the settings and the driver.
    _runtime_dir: RuntimeDir,
}

impl Cli {
    pub async fn new(spec: &PhpSpec, runtime_dir: RuntimeDir) -> anyhow::Result<Cli> {
        let launch = PhpLaunch::new(spec, &runtime_dir)?;
        Ok(Cli {
            disabled: disabled(&launch).await?,
            launch,
            slots: ProcessSlots::new(spec.workers),
            _runtime_dir: runtime_dir,
        })
    }
}

/// The functions that PHP's settings disable, separated by commas. Empty if the keeper reads and
/// keeps them.
async fn disabled(launch: &PhpLaunch) -> anyhow::Result<String> {
    let (mut out, their_out) = pipe().context("cannot create a pipe")?;
    let (mut err, their_err) = pipe().context("cannot create a pipe")?;
    let stdio = [nothing()?, their_out, their_err];
    let mut child = launch
        .start(Role::Probe, ProcessInputs::default(), stdio)
        .await?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (out, err) = tokio::join!(out.read_to_end(&mut stdout), err.read_to_end(&mut stderr));
    let program = launch.program.display();
    out.and(err)
        .with_context(|| format!("cannot read the output of {program}"))?;
    let status = child
        .wait()
        .await
        .with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        bail!(
            "{program} failed: {status}\n{}",
            String::from_utf8_lossy(&stderr)
        );
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// A pipe with an asynchronous read end.
fn pipe() -> std::io::Result<(pipe::Receiver, OwnedFd)> {
    let (ours, theirs) = std::io::pipe()?;
    Ok((pipe::Receiver::from_owned_fd(ours.into())?, theirs.into()))
}

impl StartedPhp for Cli {
    fn begin<'a>(&'a self, event: &'a Event) -> Pending<'a, Result<Box<dyn Exchange>, Failure>> {
        Box::pin(async move {
            let mut text = Vec::new();
            for (name, value) in variables::from_event(event)? {
                text.extend_from_slice(&[&name[..], b"=", &value, b"\0"].concat());
            }
            let prepare = || {
                let variables = surus_sys::process::memory_file(&text)?;
                Ok((variables, pipe()?))
            };
            let (variables, (headers, their_headers)) = prepare()
                .map_err(|error: std::io::Error| Failure::WorkerCrashed(error.to_string()))?;
            let inputs = ProcessInputs {
                disabled: &self.disabled,
                driver: Some([variables, their_headers]),
                ..ProcessInputs::default()
            };
            let slot = self.slots.take(event).ok_or_else(no_slot)?;
            let body = event.request.body();
            let started =
                OneEvent::start(&self.launch, inputs, body, event.id, slot, Some(headers)).await?;
            Ok(Box::new(started) as Box<dyn Exchange>)
        })
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        self.slots.status()
    }

    fn end(&self) -> Pending<'_, ()> {
        Box::pin(async {})
    }
}
