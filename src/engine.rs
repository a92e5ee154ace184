//! What every way of running PHP has in common, seen from the fronts.

use std::future::Future;
use std::pin::Pin;

use crate::event::{Event, Failure, Response};
use crate::observe::status::EngineStatus;

/// A future that an [`Engine`] returns; boxed, because the engine is chosen at start-up.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Has events done by PHP.
///
/// Dropping the future of [`handle`](Engine::handle), or the body of its response before the end, means that the client
/// has gone: an event that no worker has begun is forgotten, and a script that runs sees an aborted connection when it
/// next writes, as under php-fpm.
pub trait Engine: Send + Sync {
    /// Has one event answered. Waits in the engine's queue while all workers are taken.
    fn handle(&self, event: Box<Event>) -> Pending<'_, Result<Response, Failure>>;

    /// Boots the application anew beside the running one and changes over when that has succeeded. On an error the
    /// running one goes on; the error says what PHP said.
    fn reload(&self) -> Pending<'_, anyhow::Result<()>>;

    /// Takes no new event, returns when every event in flight has ended and the processes are gone. Cancelling the future
    /// leaves the engine draining; dropping the engine ends its processes at once.
    fn drain(&self) -> Pending<'_, ()>;

    /// Can an event be answered now? Fails with the reason, for the readiness probe.
    fn ready(&self) -> Result<(), String>;

    /// What its workers are doing.
    fn status(&self) -> EngineStatus;
}
