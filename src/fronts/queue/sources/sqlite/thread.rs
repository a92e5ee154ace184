//! The thread that owns the connection to a database.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use surus_sys::watch::DirectoryWatch;
use tracing::warn;

use super::tables::OpenTables;
use super::{Reply, Request};
use crate::fronts::queue::job::{Fate, Job};

/// How often a database is looked at without a sign of a change: the watch does not see other
/// machines, and clocks may jump.
const RARELY: Duration = Duration::from_secs(1);
/// The first pause after a sign of a change: a writer that syncs its write-ahead log makes a commit
/// visible some time after the write that the watch has seen.
const SOON: Duration = Duration::from_millis(2);
/// Requests of one transaction.
const MOST: usize = 256;

/// A request for jobs that waits for one.
struct Waiting {
    queue: Arc<str>,
    lease: Duration,
    most: usize,
    reply: Reply<Vec<Job>>,
}

/// When a database is looked at again: soon after a sign of a change, then less and less often.
struct Looks(Duration);

impl Looks {
    fn changed(&mut self) {
        self.0 = SOON;
    }

    /// How long until the next look, if the next job is due after `due`.
    fn pause(&mut self, due: Option<Duration>) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(RARELY);
        due.unwrap_or(RARELY).min(pause)
    }
}

/// Runs requests until no [`Database`](super::Database) is left.
pub fn run(mut tables: OpenTables, arriving: Receiver<Request>) {
    let mut waiting: Vec<Waiting> = Vec::new();
    let mut look_at = Instant::now();
    let mut looks = Looks(RARELY);
    loop {
        let first = match waiting.is_empty() {
            true => arriving.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => arriving.recv_timeout(look_at.saturating_duration_since(Instant::now())),
        };
        let first = match first {
            Ok(request) => Some(request),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // A timeout or a change wakes all waiting callers, a new request only itself.
        let mut is_change = first.is_none();
        let mut others = Vec::new();
        let mut stopped = Vec::new();
        let rest = std::iter::from_fn(|| arriving.try_recv().ok()).take(MOST);
        for request in first.into_iter().chain(rest) {
            match request {
                Request::Receive {
                    queue,
                    lease,
                    most,
                    reply,
                } => {
                    waiting.push(Waiting {
                        queue,
                        lease,
                        most,
                        reply,
                    });
                    is_change = true;
                }
                Request::Stop(queue) => stopped.push(queue),
                Request::Changed => {
                    is_change = true;
                    looks.changed();
                }
                Request::Failures(queue, asked, reply) => {
                    drop(reply.send(tables.failures(&queue, &asked)));
                    is_change = true;
                }
                Request::Depth(queue, reply) => drop(reply.send(tables.depth(&queue))),
                other => others.push(other),
            }
        }
        settle(&mut tables, others);
        if is_change {
            waiting = receive(&mut tables, waiting);
            let due = waiting
                .iter()
                .map(|one| tables.next_due(&one.queue, one.lease))
                .min();
            look_at = Instant::now() + looks.pause(due);
        }
        for queue in stopped {
            for one in waiting.extract_if(.., |one| one.queue == queue) {
                let _ = one.reply.send(Ok(Vec::new()));
            }
        }
    }
}

/// Reserves jobs for all waiting callers. Returns the callers that get none.
fn receive(tables: &mut OpenTables, waiting: Vec<Waiting>) -> Vec<Waiting> {
    let mut still = Vec::new();
    for one in waiting {
        match tables.receive(&one.queue, one.lease, one.most) {
            Ok(jobs) if jobs.is_empty() => still.push(one),
            received => {
                // The front end has ended, so they are given back.
                if let Err(Ok(jobs)) = one.reply.send(received) {
                    for job in jobs {
                        if let Err(error) =
                            tables.settle_one(&one.queue, "", &job, &Fate::Return, false)
                        {
                            warn!(job = job.lease.id, "cannot give back a job: {error:#}");
                        }
                    }
                }
            }
        }
    }
    still
}

/// Runs settlements and extensions in one transaction. If that fails, none of them has happened.
fn settle(tables: &mut OpenTables, requests: Vec<Request>) {
    if requests.is_empty() {
        return;
    }
    let mut lost = Vec::new();
    let ran = tables.in_transaction(|tables| {
        for request in &requests {
            match request {
                Request::Settle(settlement, _) => tables.settle_one(
                    &settlement.queue,
                    &settlement.connection,
                    &settlement.job,
                    &settlement.fate,
                    settlement.moves_released,
                )?,
                Request::Extend(leases, _) => lost.push(tables.extend(leases)?),
                _ => {}
            }
        }
        Ok(())
    });
    let mut lost = lost.into_iter();
    let failed = |error: &anyhow::Error| anyhow::anyhow!("{error:#}");
    for request in requests {
        match (request, &ran) {
            (Request::Settle(_, reply), Ok(())) => drop(reply.send(Ok(()))),
            (Request::Settle(_, reply), Err(error)) => drop(reply.send(Err(failed(error)))),
            (Request::Extend(_, reply), Ok(())) => {
                let _ = reply.send(Ok(lost.next().unwrap_or_default()));
            }
            (Request::Extend(_, reply), Err(error)) => drop(reply.send(Err(failed(error)))),
            _ => {}
        }
    }
}

/// Reports writes to a database's files in a thread of its own. Without, the database is looked at
/// once a second.
pub fn watch(file: &Path, changes: Sender<Request>) {
    let (Some(directory), Some(name)) = (file.parent(), file.file_name()) else {
        return;
    };
    let names = [
        name.to_os_string(),
        with(name, "-wal"),
        with(name, "-journal"),
    ];
    let watch = match DirectoryWatch::open(directory) {
        Ok(watch) => watch,
        Err(error) => {
            let directory = directory.display();
            warn!(%error, "cannot watch {directory}; new jobs begin up to a second later");
            return;
        }
    };
    let run = move || {
        while let Ok(written) = watch.wait() {
            let is_ours = written.iter().any(|name| names.contains(name));
            if is_ours && changes.send(Request::Changed).is_err() {
                return;
            }
        }
    };
    // Without this thread, the database is looked at once a second.
    let _ = std::thread::Builder::new()
        .name("sqlite watch".into())
        .spawn(run);
}

fn with(name: &OsStr, end: &str) -> OsString {
    let mut name = name.to_os_string();
    name.push(end);
    name
}

#[cfg(test)]
mod tests {
    use super::{Looks, RARELY, SOON};
    use std::time::Duration;

    #[test]
    fn change_is_followed_by_looks_that_become_rare() {
        let mut looks = Looks(RARELY);
        assert_eq!(looks.pause(None), RARELY);
        looks.changed();
        let pauses = std::iter::repeat_with(|| looks.pause(None));
        let pauses: Vec<_> = pauses.take(11).collect();
        assert_eq!(pauses[..3], [SOON, SOON * 2, SOON * 4]);
        assert_eq!(pauses[9..], [RARELY; 2]);
        looks.changed();
        assert_eq!(looks.pause(Some(Duration::ZERO)), Duration::ZERO);
    }
}
