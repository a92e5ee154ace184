//! The engine `roadrunner`: runs unmodified RoadRunner workers and speaks their protocol
//! (docs/internals/roadrunner.md).

mod exchange;
mod form;
pub mod frame;
pub mod multipart;
mod protobuf;
mod relay;
mod request;
pub mod response;
mod tree;
mod worker;

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};

use super::command::{PhpLaunch, ProcessInputs, nothing};
use super::daemon::ExitHandle;
use super::exchange::Exchange;
use super::file_names;
use super::runtime_dir::RuntimeDir;
use super::slots::ProcessSlots;
use super::{StartedPhp, no_slot};
use crate::engine::{Pending, Report};
use crate::engines::workers::FindScript;
use crate::event::{Event, Failure};
use crate::launcher::Role;
use crate::observe::status::WorkerStatus;
use form::Directory;
use relay::RelayListener;
use worker::Worker;

pub use form::AcceptedUploads;
pub use relay::RelayKind;
pub use request::Payloads;

/// What workers are asked for. They find it in `RR_MODE`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerMode {
    #[default]
    Http,
    Jobs,
}

impl WorkerMode {
    /// The value of `RR_MODE`.
    pub fn name(self) -> &'static str {
        match self {
            WorkerMode::Http => "http",
            WorkerMode::Jobs => "jobs",
        }
    }
}

/// What only this engine needs to know.
#[derive(Clone)]
pub struct RoadRunnerSpec {
    /// Finds the worker script, again for each boot.
    pub script: FindScript,
    /// The arguments of the script.
    pub arguments: Vec<String>,
    /// The working directory of the workers.
    pub directory: Option<PathBuf>,
    pub payloads: Payloads,
    /// Whether workers get forms as trees and files.
    pub parses_forms: bool,
    pub uploads: AcceptedUploads,
    pub mode: WorkerMode,
    pub relay: RelayKind,
    /// Resident bytes after a request; 0 for no limit.
    pub max_memory: u64,
}

pub struct RoadRunner(Arc<Inner>);

struct Inner {
    launch: PhpLaunch,
    listener: RelayListener,
    /// Idle workers by slot; `None` while a request has it, or if it must be started.
    workers: Vec<Mutex<Option<Worker>>>,
    slots: ProcessSlots,
    /// Workers that are ending.
    ending: TaskTracker,
    uploads: Directory,
    payloads: Payloads,
    parses_forms: bool,
    max_requests: u64,
    max_memory: u64,
    /// How long a worker may take to start.
    boot_timeout: Duration,
    report: Report,
    /// Keeps the directory.
    _runtime_dir: RuntimeDir,
}

impl RoadRunner {
    pub async fn start(
        spec: &super::PhpSpec,
        runtime_dir: RuntimeDir,
    ) -> anyhow::Result<RoadRunner> {
        let Some(own) = &spec.roadrunner else {
            bail!("no worker script");
        };
        if let RuntimeDir::Keeper(_) = &runtime_dir {
            // The front end may not change permissions, and PHP must read the uploaded files.
            surus_sys::process::share_new_files();
        }
        let launch = PhpLaunch::new(spec, &runtime_dir)?;
        let report = report(&launch).await?;
        reject_auto_files(&report)?;
        let uploads = Directory {
            path: runtime_dir.path(file_names::UPLOADS),
            is_shared: spec.user.is_some(),
            accepted: own.uploads.clone().into(),
        };
        let inner = Arc::new(Inner {
            listener: RelayListener::open(own.relay, &uploads).await?,
            launch,
            workers: (0..spec.workers).map(|_| Mutex::new(None)).collect(),
            slots: ProcessSlots::new(spec.workers),
            ending: TaskTracker::new(),
            uploads,
            payloads: own.payloads,
            parses_forms: own.parses_forms,
            max_requests: spec.max_requests,
            max_memory: own.max_memory,
            boot_timeout: spec.boot_timeout,
            report,
            _runtime_dir: runtime_dir,
        });
        let booting = &inner;
        let starts = (0..spec.workers).map(|index| async move {
            let worker = booting.start_worker(index).await?;
            *booting.workers[index].lock().await = Some(worker);
            anyhow::Ok(())
        });
        futures_util::future::try_join_all(starts).await?;
        Ok(RoadRunner(inner))
    }
}

/// PHP's report about itself.
async fn report(launch: &PhpLaunch) -> anyhow::Result<Report> {
    let (out, their_out) = std::io::pipe().context("cannot create a pipe")?;
    let (err, their_err) = std::io::pipe().context("cannot create a pipe")?;
    let stdio = [nothing()?, their_out.into(), their_err.into()];
    let mut child = launch
        .start(Role::Probe, ProcessInputs::default(), stdio)
        .await?;
    let mut out = pipe::Receiver::from_owned_fd(out.into())?;
    let mut err = pipe::Receiver::from_owned_fd(err.into())?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let program = launch.program.display();
    let (out, err) = tokio::join!(out.read_to_end(&mut stdout), err.read_to_end(&mut stderr));
    out.and(err)
        .with_context(|| format!("cannot read the output of {program}"))?;
    let status = child.wait().await;
    let status = status.with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        let stderr = String::from_utf8_lossy(&stderr);
        bail!("{program} does not work: {status}\n{stderr}");
    }
    Ok(Report::read(&String::from_utf8_lossy(&stdout)))
}

/// Refuses files that PHP would run once, in the boot of each worker. Firewalls are installed so,
/// and would see no request.
fn reject_auto_files(report: &Report) -> anyhow::Result<()> {
    for name in ["auto_prepend_file", "auto_append_file"] {
        let file = report.get(name);
        if !file.is_empty() {
            bail!(
                "{name} cannot run for every request on the engine `roadrunner`: {file} would run \
                 once in each worker; call it in the application for each request, or choose \
                 another engine (engine.name), and unset it here ({name} = \"\" under [php])"
            );
        }
    }
    Ok(())
}

/// A worker that exits sooner after its start is not replaced at once.
const SHORT_LIFE: Duration = Duration::from_secs(1);

impl Inner {
    /// Starts a worker for a slot.
    fn start_worker(self: &Arc<Self>, index: usize) -> Pending<'_, anyhow::Result<Worker>> {
        Box::pin(async move {
            let starting = Worker::start(&self.launch, &self.listener);
            let worker = tokio::time::timeout(self.boot_timeout, starting).await;
            let worker = worker.with_context(|| {
                format!(
                    "the worker was not ready within {} seconds (engine.boot_timeout)",
                    self.boot_timeout.as_secs()
                )
            })??;
            let (end, pid) = (worker.daemon.exit_handle(), worker.daemon.pid);
            self.slots.set_pid(index, pid);
            tokio::spawn(watch(Arc::downgrade(self), index, pid, end));
            Ok(worker)
        })
    }

    /// The worker of a slot.
    async fn take(self: &Arc<Self>, index: usize) -> anyhow::Result<Worker> {
        let mut slot = self.workers[index].lock().await;
        match slot.take() {
            Some(mut worker) if worker.daemon.is_running() => {
                if worker.can_take_request() {
                    return Ok(worker);
                }
                self.end_later(worker);
                self.start_worker(index).await
            }
            _ => self.start_worker(index).await,
        }
    }

    /// Ends a worker in the background.
    fn end_later(&self, worker: Worker) {
        self.ending.spawn(worker.end());
    }
}

/// Replaces a worker if it exits while it is idle.
async fn watch(inner: Weak<Inner>, index: usize, pid: u32, end: ExitHandle) {
    let began = Instant::now();
    let how = end.wait().await;
    if began.elapsed() < SHORT_LIFE {
        tokio::time::sleep(SHORT_LIFE).await;
    }
    let Some(inner) = inner.upgrade() else {
        return;
    };
    let mut slot = inner.workers[index].lock().await;
    let is_idle = slot.as_ref().map(|worker| worker.daemon.pid) == Some(pid);
    if !is_idle {
        return;
    }
    warn!(pid, exit = how, "an idle worker exited; replaced");
    *slot = None;
    match inner.start_worker(index).await {
        Ok(worker) => *slot = Some(worker),
        // The next event tries again.
        Err(error) => error!(error = format!("{error:#}"), "cannot start a PHP process"),
    }
}

impl StartedPhp for RoadRunner {
    fn begin<'a>(&'a self, event: &'a Event) -> Pending<'a, Result<Box<dyn Exchange>, Failure>> {
        Box::pin(async move {
            let inner = &self.0;
            let uploads = inner.parses_forms.then_some(&inner.uploads);
            let request =
                request::RoadRunnerRequest::from_event(event, inner.payloads, uploads).await?;
            let slot = inner.slots.take(event).ok_or_else(no_slot)?;
            let worker = inner.take(slot.index).await;
            let worker = worker.map_err(|error| Failure::WorkerCrashed(format!("{error:#}")))?;
            let running =
                exchange::RunningExchange::new(inner.clone(), slot, worker, request, event)?;
            Ok(Box::new(running) as Box<dyn Exchange>)
        })
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        self.0.slots.status()
    }

    fn report(&self) -> Option<Report> {
        Some(self.0.report.clone())
    }

    fn end(&self) -> Pending<'_, ()> {
        Box::pin(async {
            for slot in &self.0.workers {
                if let Some(worker) = slot.lock().await.take() {
                    self.0.end_later(worker);
                }
            }
            self.0.ending.close();
            self.0.ending.wait().await;
        })
    }
}
