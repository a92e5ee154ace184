//! The interface of every broker.

use std::future::Future;
use std::pin::Pin;

use tokio_util::sync::CancellationToken;

use super::job::{Depth, Disposition, FailedJob, Failures, Job, Lease};

/// A future that a [`Source`] returns.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = anyhow::Result<T>> + Send + 'a>>;

/// One queue of a broker. An error means that the broker cannot be reached or refuses; the caller
/// tries again after a pause.
pub trait Source: Send + Sync {
    /// Reserves up to `most` jobs for this process, and waits until there is one. Once `stop` is
    /// cancelled, returns those that are reserved already, and reserves no others. Do not drop the
    /// future before its end.
    fn receive<'a>(&'a self, most: usize, stop: &'a CancellationToken) -> Pending<'a, Vec<Job>>;

    /// Extends reservations, which then last for a whole lease from now on. Returns the jobs that
    /// other processes have got since.
    fn extend(&self, leases: Vec<Lease>) -> Pending<'_, Vec<Lease>>;

    /// Ends a reservation. Settling a job that is no longer reserved for this process does no harm.
    fn settle(&self, job: Job, disposition: Disposition) -> Pending<'_, ()>;

    /// Whether `received` is a new reservation of the job of `held`, which has the same id and
    /// which this process still has. Not if other jobs may have that id.
    fn is_renewed(&self, held: &Lease, received: &Lease) -> bool {
        let _ = (held, received);
        false
    }

    /// Whether this process still has a reservation, as far as that is known without asking the
    /// broker.
    fn is_held(&self, lease: &Lease) -> bool {
        let _ = lease;
        true
    }

    /// The group of a job, if the broker has groups: its jobs run in order.
    fn group(&self, job: &Job) -> Option<String> {
        let _ = job;
        None
    }

    /// Counts the queue's jobs.
    fn depth(&self) -> Pending<'_, Depth>;

    /// Lists the failed jobs that this broker keeps and Laravel does not, or retries or forgets
    /// one. Returns those concerned.
    fn failures(&self, requested: Failures) -> Pending<'_, Vec<FailedJob>>;

    /// Sends what has not been sent yet, and ends its connections.
    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
