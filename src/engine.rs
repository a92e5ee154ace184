//! The interface of every engine, as the front ends see it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use tokio::sync::{OwnedMutexGuard, watch};

use crate::event::{Event, Failure, Response};
use crate::observe::status::{EngineStatus, LeftOutReason};

/// A future that an [`Engine`] returns; boxed, because the engine is chosen at start-up.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs a request in a version of the application that does not serve yet.
type Ask = Box<dyn Fn(Box<Event>) -> Answer + Send + Sync>;
type Answer = Pending<'static, Result<Response, Failure>>;

/// A booted new version of the application, ready to take over. Dropping it ends its processes.
pub struct Prepared {
    switch: Box<dyn FnOnce() -> anyhow::Result<()> + Send + Sync>,
    ask: Option<Ask>,
    report: Report,
}

impl Prepared {
    /// `switch` makes the new version the one that serves.
    pub fn new(switch: impl FnOnce() -> anyhow::Result<()> + Send + Sync + 'static) -> Prepared {
        Prepared {
            switch: Box::new(switch),
            ask: None,
            report: Report::default(),
        }
    }

    /// `report` is what PHP has reported when it booted.
    pub fn with_report(self, report: Report) -> Prepared {
        Prepared { report, ..self }
    }

    pub fn report(&self) -> &Report {
        &self.report
    }

    /// `ask` runs a request in the new version.
    pub fn with_ask(self, ask: impl Fn(Box<Event>) -> Answer + Send + Sync + 'static) -> Prepared {
        Prepared {
            ask: Some(Box::new(ask)),
            ..self
        }
    }

    /// Runs a request in the new version, before the change over. Not all engines can.
    pub async fn handle(&self, event: Box<Event>) -> Result<Response, Failure> {
        match &self.ask {
            Some(ask) => ask(event).await,
            None => Err(Failure::Busy(
                "this engine cannot be asked before it serves",
            )),
        }
    }

    /// Sends new requests to the new version; the old one finishes the requests it holds. Fails if
    /// the engine is shutting down.
    pub fn change_over(self) -> anyhow::Result<()> {
        // Its requests have ended.
        drop(self.ask);
        (self.switch)()
    }
}

/// Something on which the boot depends has changed since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The first file, or what the application has named. Processes of PHP's user have written it.
    pub what: String,
    /// Differs if something else changes, too.
    pub number: u64,
    /// There was no time since the boot at which nothing had changed.
    pub is_immediate: bool,
}

/// PHP's own report: `php`, `php_running`, `ini_file`, `ini_scanned`, `opcache` (`on`, or why not),
/// the boot's `document_root`, `extensions` separated by commas. Settings that Surus checks have
/// their php.ini names.
#[derive(Debug, Clone, Default)]
pub struct Report(BTreeMap<String, String>);

impl Report {
    /// Parses lines `name=value`.
    pub fn read(lines: &str) -> Report {
        let pairs = lines.lines().filter_map(|line| line.split_once('='));
        Report(
            pairs
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
        )
    }

    /// The warm-ups that the boot has left out, by their numbers from 1, and why.
    pub fn left_out(&self) -> BTreeMap<usize, LeftOutReason> {
        let pair = |text: &str| {
            let (number, name) = text.split_once(':')?;
            let reason = LeftOutReason::ALL.into_iter().find(|it| it.name() == name);
            Some((number.parse().ok()?, reason.unwrap_or_default()))
        };
        self.get("left_out").split(',').filter_map(pair).collect()
    }

    /// A value of the report, empty if there is none of that name.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

/// Runs requests in PHP.
///
/// Dropping the future of [`handle`](Engine::handle), or the response body before its end, means
/// that the client closed the request. A request that no worker has begun is then dropped. A
/// running script sees an aborted connection at its next write, as under php-fpm.
pub trait Engine: Send + Sync {
    /// Runs one request. Waits in the engine's queue while all workers are busy.
    fn handle(&self, event: Box<Event>) -> Pending<'_, Result<Response, Failure>>;

    /// Whether requests may have a body that is still arriving ([`Body::Streamed`]).
    fn takes_streamed_bodies(&self) -> bool {
        false
    }

    /// Boots the application while the running version goes on, until the [change
    /// over](Prepared::change_over). The error has PHP's message.
    fn prepare(&self) -> Pending<'_, anyhow::Result<Prepared>>;

    /// Keeps the engine from booting by itself, as it does after PHP has exited, until the result
    /// is dropped. None if it never does.
    fn hold_recovery(&self) -> Pending<'_, Option<OwnedMutexGuard<()>>> {
        Box::pin(std::future::ready(None))
    }

    /// Boots the application and switches over if that succeeds. On an error the running version
    /// stays.
    fn reload(&self) -> Pending<'_, anyhow::Result<()>> {
        Box::pin(async { self.prepare().await?.change_over() })
    }

    /// Returns when a request has led to the discovery that the booted application has changed.
    /// `_known` is the number of a change that does not count.
    fn outdated(&self, _known: Option<u64>) -> Pending<'_, Change> {
        Box::pin(std::future::pending())
    }

    /// Changes with each boot that begins to serve. None if the engine boots nothing.
    fn boots(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Whether the booted application has changed, by a check that is made now. False if the boot
    /// has not recorded its files.
    fn is_outdated(&self) -> Pending<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    /// Ends every process that has served or would serve requests. Their replacements draw new
    /// random seeds. Needed after the machine has been copied with all its memory. Nothing may be
    /// in flight.
    fn restart_workers(&self) -> Pending<'_, anyhow::Result<()>> {
        self.reload()
    }

    /// Takes no new request. Returns when every in-flight request has ended and the processes
    /// have exited. Cancelling the future leaves the engine draining; dropping the engine ends its
    /// processes at once.
    fn drain(&self) -> Pending<'_, ()>;

    /// The same for an engine that another one has replaced, once all callers have their responses
    /// or wait no longer. Processes without a request then need not wait for those that still send.
    fn retire(&self) -> Pending<'_, ()> {
        self.drain()
    }

    /// Whether a request can be answered now; the error is the reason, for the readiness probe.
    fn ready(&self) -> Result<(), String>;

    /// What PHP reported when it booted.
    fn report(&self) -> Report;

    /// How many events can run at once or soon, where that changes with the load. A caller that
    /// passes on no more, and as many as it has, makes the pool grow.
    fn capacity(&self) -> Option<watch::Receiver<usize>> {
        None
    }

    /// What the workers are doing.
    fn status(&self) -> EngineStatus;
}
