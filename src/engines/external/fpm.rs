//! The engine `fpm`: FastCGI to a php-fpm that Surus starts or that already runs.
//!
//! Surus configures one php-fpm pool with one process for each concurrent event. It therefore knows
//! which process runs an event, can kill it at the deadline, and never queues an event behind
//! another. The pools share one OPcache.
//!
//! A connection that carried a request body is not reused. If a script did not read all of its
//! body, PHP would treat the rest as the next request.

mod request;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::BytesMut;
use request::{FastCgi, encode, feed};
use surus_sys::process;
use tracing::error;

use super::command;
use super::connection::{FpmAddress, PhpStream};
use super::daemon::{Daemon, ExitHandle};
use super::exchange::{CgiOutput, Exchange};
use super::runtime_dir::RuntimeDir;
use super::slots::{ProcessSlot, ProcessSlots};
use super::{PhpSpec, StartedPhp, fpm_master, no_slot};
use crate::engine::Pending;
use crate::event::{Body, Event, Failure};
use crate::launcher::{Launch, ProcessSignal};
use crate::observe::first_lines::FirstLines;
use crate::observe::message::Message;
use crate::observe::php_log;
use crate::observe::php_log::ProcessLog;
use crate::observe::status::WorkerStatus;

pub struct Fpm(Arc<Inner>);

struct Inner {
    /// None for a php-fpm that Surus did not start.
    daemon: Option<Daemon>,
    /// What it writes.
    log: Option<ProcessLog>,
    pools: Vec<FpmPool>,
    slots: ProcessSlots,
    launch: Option<Launch>,
    /// Keeps the directory with the sockets and settings.
    _runtime_dir: RuntimeDir,
}

/// A php-fpm pool, which runs one event at a time.
struct FpmPool {
    address: FpmAddress,
    /// An idle connection to the pool's process.
    kept: Mutex<Option<PhpStream>>,
}

impl Fpm {
    /// Starts php-fpm, or connects to the configured address.
    pub async fn start(spec: &PhpSpec, runtime_dir: RuntimeDir) -> anyhow::Result<Fpm> {
        let slots = ProcessSlots::new(spec.workers);
        let pool = |address| FpmPool {
            address,
            kept: Mutex::new(None),
        };
        if let Some(address) = &spec.address {
            let connected = connect(address, spec.launch.as_ref()).await;
            connected.with_context(|| {
                format!(
                    "cannot connect to php-fpm at {} (engine.php_fpm_address)",
                    String::from(address.clone())
                )
            })?;
            return Ok(Fpm(Arc::new(Inner {
                daemon: None,
                log: None,
                pools: (0..spec.workers).map(|_| pool(address.clone())).collect(),
                slots,
                launch: spec.launch.clone(),
                _runtime_dir: runtime_dir,
            })));
        }
        let launch = command::PhpLaunch::new(spec, &runtime_dir)?;
        let (daemon, output) = Daemon::start(&launch).await?;
        // A script can stop the master process only if that runs as PHP's user.
        if !fpm_master::is_roots(spec) {
            daemon.kill_if_stopped().detach();
        }
        let words = FirstLines::default();
        let log = php_log::follow_master(output, words.clone());
        let fpm = Fpm(Arc::new(Inner {
            pools: (0..spec.workers)
                .map(|index| {
                    pool(FpmAddress::Unix(
                        runtime_dir.path(&fpm_master::socket(index)),
                    ))
                })
                .collect(),
            daemon: Some(daemon),
            log: Some(log.clone()),
            slots,
            launch: spec.launch.clone(),
            _runtime_dir: runtime_dir,
        }));
        if let Err(failure) = fpm.0.listens().await {
            log.end().await;
            return Err(failure.context(words.text()));
        }
        Ok(fpm)
    }
}

impl Inner {
    /// Waits until all pools listen.
    async fn listens(&self) -> anyhow::Result<()> {
        let Some(daemon) = &self.daemon else {
            return Ok(());
        };
        for pool in &self.pools {
            while PhpStream::connect(&pool.address).await.is_err() {
                tokio::select! {
                    how = daemon.ended() => bail!("php-fpm did not start: {how}"),
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                }
            }
        }
        while !self.count_children() {
            tokio::select! {
                how = daemon.ended() => bail!("php-fpm did not start: {how}"),
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
        Ok(())
    }

    /// Reads each pool's process id from the process titles, in which php-fpm writes the pool name.
    /// Returns whether every pool has a process.
    fn count_children(&self) -> bool {
        let Some(daemon) = &self.daemon else {
            return true;
        };
        let path = format!("/proc/{0}/task/{0}/children", daemon.pid);
        let children = std::fs::read_to_string(path).unwrap_or_default();
        let mut found = vec![0; self.pools.len()];
        for child in children.split_whitespace() {
            let title = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            let title = String::from_utf8_lossy(&title);
            let pool = title.trim_end_matches('\0').strip_prefix("php-fpm: pool ");
            let index = pool.and_then(|pool| pool.trim().parse::<usize>().ok());
            if let (Some(slot), Ok(pid)) =
                (index.and_then(|index| found.get_mut(index)), child.parse())
            {
                *slot = pid;
            }
        }
        let is_complete = !found.contains(&0);
        for (index, pid) in found.into_iter().enumerate() {
            self.slots.set_pid(index, pid);
        }
        is_complete
    }

    /// Kills the process of the pool for the holder of its slot.
    fn kill_child(&self, slot: &ProcessSlot) {
        self.count_children();
        let pid = slot.pid();
        if self.daemon.is_none() || pid == 0 {
            return;
        }
        match &self.launch {
            None => drop(process::kill(pid)),
            Some(launch) => launch.by.signal(pid, None, ProcessSignal::Kill),
        }
    }

    /// Returns a connection for the next event.
    async fn connection(&self, index: usize) -> io::Result<PhpStream> {
        let pool = &self.pools[index];
        let kept = pool
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(kept) = kept.filter(PhpStream::is_open) {
            return Ok(kept);
        }
        self.count_children();
        // A php-fpm that already runs may accept only users that the keeper can act as.
        let launch = self.launch.as_ref().filter(|_| self.daemon.is_none());
        connect(&pool.address, launch).await
    }
}

/// Connects; asks the keeper if this process lacks permission.
async fn connect(address: &FpmAddress, launch: Option<&Launch>) -> io::Result<PhpStream> {
    match (PhpStream::connect(address).await, launch) {
        (Err(error), Some(launch)) if error.kind() == io::ErrorKind::PermissionDenied => {
            let connected = launch.by.connect(launch.pool).await;
            PhpStream::from_unix(connected.map_err(io::Error::other)?)
        }
        (connected, _) => connected,
    }
}

/// How often to check whether php-fpm listens.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

impl StartedPhp for Fpm {
    fn begin<'a>(&'a self, event: &'a Event) -> Pending<'a, Result<Box<dyn Exchange>, Failure>> {
        Box::pin(async move {
            let keeps = matches!(event.request.body(), Body::Empty);
            let records = encode(event, keeps)?;
            let slot = self.0.slots.take(event).ok_or_else(no_slot)?;
            let stream = self.0.connection(slot.index).await;
            let stream =
                stream.map_err(|error| Failure::WorkerCrashed(format!("php-fpm: {error}")))?;
            let stream = Arc::new(stream);
            let (to, body) = (stream.clone(), event.request.body().clone());
            // Send concurrently: a script may respond before it has read the body.
            let feeding = tokio::spawn(async move {
                if to.write_all(&records).await.is_ok() {
                    // If the body cannot be read, PHP notices at the deadline that the rest is
                    // missing.
                    if let Err(failed) = feed(&to, &body).await {
                        error!(error = %failed, "cannot read the request body");
                    }
                }
            });
            Ok(Box::new(FastCgi {
                fpm: self.0.clone(),
                pid: slot.pid(),
                slot,
                event: event.id,
                stream: Some(stream),
                keeps,
                feeding,
                input: BytesMut::new(),
                reply: CgiOutput::default(),
                message: Message::default(),
                is_complete: false,
                is_killed: false,
            }) as Box<dyn Exchange>)
        })
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        self.0.count_children();
        self.0.slots.status()
    }

    fn exit_handle(&self) -> Option<ExitHandle> {
        self.0.daemon.as_ref().map(Daemon::exit_handle)
    }

    fn end(&self) -> Pending<'_, ()> {
        Box::pin(async {
            if let Some(daemon) = &self.0.daemon {
                daemon.end().await;
            }
            if let Some(log) = &self.0.log {
                log.end().await;
            }
        })
    }
}
