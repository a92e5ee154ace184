//! What every way of running PHP has in common, seen from the fronts.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use crate::event::{Event, Failure, Response};
use crate::observe::status::EngineStatus;

/// A future that an [`Engine`] returns; boxed, because the engine is chosen at start-up.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A new boot of an engine's application, ready to take over. Dropping it instead ends its processes.
pub struct Prepared(pub Box<dyn FnOnce() -> anyhow::Result<()> + Send>);

impl Prepared {
    /// New events go to the new boot; the one before finishes what it holds. Fails when the engine is shutting down.
    pub fn change_over(self) -> anyhow::Result<()> {
        (self.0)()
    }
}

/// What PHP has become: `php`, `php_running`, `ini_file`, `ini_scanned`, `opcache` (`on`, or why not), `extensions` with commas
/// between, and the settings that Surus looks at, by their names in php.ini.
#[derive(Debug, Clone, Default)]
pub struct Report(BTreeMap<String, String>);

impl Report {
    /// Of lines `name=value`.
    pub fn read(lines: &str) -> Report {
        let pairs = lines.lines().filter_map(|line| line.split_once('='));
        Report(
            pairs
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
        )
    }

    /// A value of the report, empty when it has none of that name.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

/// Has events done by PHP.
///
/// Dropping the future of [`handle`](Engine::handle), or the body of its response before the end, means that the client
/// has gone: an event that no worker has begun is forgotten, and a script that runs sees an aborted connection when it
/// next writes, as under php-fpm.
pub trait Engine: Send + Sync {
    /// Has one event answered. Waits in the engine's queue while all workers are taken.
    fn handle(&self, event: Box<Event>) -> Pending<'_, Result<Response, Failure>>;

    /// Boots the application anew beside the running one, which goes on until the [change over](Prepared::change_over). The
    /// error says what PHP said.
    fn prepare(&self) -> Pending<'_, anyhow::Result<Prepared>>;

    /// Boots the application anew and changes over when that has succeeded. On an error the running one goes on.
    fn reload(&self) -> Pending<'_, anyhow::Result<()>> {
        Box::pin(async { self.prepare().await?.change_over() })
    }

    /// Ends every process that has served or would serve events; those that take their places draw their random numbers anew.
    /// For a machine that has been copied, with all its memory. Nothing may be in flight.
    fn renew(&self) -> Pending<'_, anyhow::Result<()>> {
        self.reload()
    }

    /// Takes no new event, returns when every event in flight has ended and the processes are gone. Cancelling the future
    /// leaves the engine draining; dropping the engine ends its processes at once.
    fn drain(&self) -> Pending<'_, ()>;

    /// Can an event be answered now? Fails with the reason, for the readiness probe.
    fn ready(&self) -> Result<(), String>;

    /// What PHP said of itself when it booted.
    fn report(&self) -> Report;

    /// What its workers are doing.
    fn status(&self) -> EngineStatus;
}
