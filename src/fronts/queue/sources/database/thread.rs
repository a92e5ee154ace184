//! The thread that owns the connection to a database.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tracing::warn;

use super::job_table::{JobTable, ReleasedRow, in_transaction};
use super::{Reply, Request};
use crate::fronts::queue::job::{Disposition, Job, Lease};

/// The first pause after a sign of a change. A writer that syncs its write-ahead log makes a commit
/// visible some time after the write that the watch has seen.
const SOON: Duration = Duration::from_millis(2);
/// Requests of one transaction.
const MAX: usize = 256;
/// Jobs that are done sooner than this after the last settlement are settled together, because a
/// transaction costs as much CPU as a short job.
const COLLECT: Duration = Duration::from_millis(2);
/// A failure that takes so long is the server's or a lock's, and not that of one request.
const SLOW: Duration = Duration::from_secs(4);

/// A request for jobs that waits for one.
struct Waiting {
    queue: Arc<str>,
    lease: Duration,
    most: usize,
    reply: Reply<Vec<Job>>,
    /// Nothing has been polled yet.
    is_new: bool,
}

/// When a database is polled again: soon after a sign of a change, then less and less often.
struct PollPace {
    pause: Duration,
    rarely: Duration,
}

impl PollPace {
    fn new(rarely: Duration) -> PollPace {
        PollPace {
            pause: rarely,
            rarely,
        }
    }

    fn changed(&mut self) {
        self.pause = SOON;
    }

    /// How long until the next poll, if the next job is due after `due`.
    fn pause(&mut self, due: Option<Duration>) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(self.rarely);
        due.unwrap_or(pause).min(pause)
    }
}

/// Runs requests until no [`Database`](super::Database) is left.
pub fn run(tables: &mut dyn JobTable, arriving: Receiver<Request>) {
    let mut waiting: Vec<Waiting> = Vec::new();
    let mut poll_at = Instant::now();
    let is_watched = tables.connection().dialect().is_watched;
    let mut pace = PollPace::new(tables.connection().dialect().poll_interval());
    // Settlements and extensions.
    let mut others: Vec<Request> = Vec::new();
    let mut settled_at = Instant::now();
    loop {
        let wakes = [
            (!waiting.is_empty()).then_some(poll_at),
            (!others.is_empty()).then_some(settled_at + COLLECT),
        ];
        let first = match wakes.into_iter().flatten().min() {
            None => arriving.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => arriving.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        let first = match first {
            Ok(request) => Some(request),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return settle(tables, others),
        };
        // After a timeout or a change, all queues are polled for which a caller waits.
        // A new request polls its own.
        let mut is_change = first.is_none() && poll_at <= Instant::now();
        let mut stopped = Vec::new();
        let rest = std::iter::from_fn(|| arriving.try_recv().ok()).take(MAX);
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
                        is_new: true,
                    });
                }
                Request::Stop(queue) => stopped.push(queue),
                Request::Changed => {
                    is_change = true;
                    pace.changed();
                }
                Request::Failures(queue, requested, reply) => {
                    drop(reply.send(tables.failures(&queue, &requested)));
                    is_change = true;
                }
                Request::Depth(queue, reply) => drop(reply.send(tables.depth(&queue))),
                other => others.push(other),
            }
        }
        if !may_wait(&others, settled_at) {
            settle(tables, std::mem::take(&mut others));
            settled_at = Instant::now();
        }
        let mut callers = Vec::new();
        let is_due = |one: &mut Waiting| is_change || one.is_new;
        callers.extend(waiting.extract_if(.., is_due));
        if !callers.is_empty() {
            let count = callers.len();
            let mut still = receive(tables, callers);
            // Without a watch, jobs themselves are the sign that more may follow.
            if !is_watched && still.len() < count {
                pace.changed();
            }
            // Jobs are due at whole seconds. Without a watch, the polls are closer than that.
            let due = still
                .iter()
                .filter(|_| is_watched)
                .map(|one| tables.next_due(&one.queue, one.lease))
                .min();
            let next = Instant::now() + pace.pause(due);
            poll_at = match is_change {
                true => next,
                false => poll_at.min(next),
            };
            waiting.append(&mut still);
        }
        for queue in stopped {
            for one in waiting.extract_if(.., |one| one.queue == queue) {
                let _ = one.reply.send(Ok(Vec::new()));
            }
        }
    }
}

/// Reserves jobs for callers. Returns the callers that get none.
fn receive(tables: &mut dyn JobTable, mut callers: Vec<Waiting>) -> Vec<Waiting> {
    let mut broken = None;
    let queues: Vec<_> = callers.iter().map(|one| (&*one.queue, one.lease)).collect();
    let filled = match tables.filled(&queues) {
        Ok(filled) => filled,
        Err(error) => {
            broken = Some(format!("{error:#}"));
            vec![true; callers.len()]
        }
    };
    let mut still = Vec::new();
    for (mut one, is_filled) in callers.drain(..).zip(filled) {
        one.is_new = false;
        // A server that hangs would let each of them wait.
        if let Some(why) = &broken {
            let _ = one.reply.send(Err(anyhow::anyhow!("{why}")));
            continue;
        }
        let received = match is_filled {
            true => tables.receive(&one.queue, one.lease, one.most),
            false => Ok(Vec::new()),
        };
        match received {
            Ok(jobs) if jobs.is_empty() => still.push(one),
            received => {
                broken = received.as_ref().err().map(|error| format!("{error:#}"));
                // The front end has ended, so they are returned.
                if let Err(Ok(jobs)) = one.reply.send(received) {
                    for job in jobs {
                        let same = ReleasedRow::Same;
                        if let Err(error) =
                            tables.settle_one(&one.queue, "", &job, &Disposition::Return, same)
                        {
                            warn!(
                                job = job.lease.id,
                                error = format!("{error:#}"),
                                "cannot return a job"
                            );
                        }
                    }
                }
            }
        }
    }
    still
}

/// Whether requests may wait for others: those of jobs that are done. If Surus is killed meanwhile,
/// these run again.
fn may_wait(requests: &[Request], settled_at: Instant) -> bool {
    requests.is_empty()
        || requests.len() < MAX
            && settled_at.elapsed() < COLLECT
            && requests.iter().all(|request| done(request).is_some())
}

/// Runs settlements and extensions in one transaction. If that fails, each has its own: the
/// database may refuse one of them for ever.
fn settle(tables: &mut dyn JobTable, requests: Vec<Request>) {
    if requests.is_empty() {
        return;
    }
    let (mut ran, mut is_slow) = run_timed(tables, &requests);
    if ran.is_ok() || is_slow || requests.len() == 1 {
        return answer(requests, &ran);
    }
    for request in requests {
        // Each of the others would wait as long.
        if !is_slow {
            (ran, is_slow) = run_timed(tables, std::slice::from_ref(&request));
        }
        answer(vec![request], &ran);
    }
}

type LostLeases = Vec<Vec<Lease>>;

/// Runs requests in a transaction. Returns the lost leases of each extension, and whether it has
/// failed slowly.
fn run_timed(
    tables: &mut dyn JobTable,
    requests: &[Request],
) -> (anyhow::Result<LostLeases>, bool) {
    let began = Instant::now();
    let ran = in_transaction(tables, |tables| run_all(tables, requests));
    let is_slow = ran.is_err() && began.elapsed() > SLOW;
    (ran, is_slow)
}

fn run_all(tables: &mut dyn JobTable, requests: &[Request]) -> anyhow::Result<LostLeases> {
    let mut lost = Vec::new();
    let done: Vec<_> = requests.iter().filter_map(done).collect();
    tables.delete_done(&done)?;
    for request in requests {
        match request {
            Request::Settle(settlement, _) if settlement.disposition != Disposition::Done => {
                tables.settle_one(
                    &settlement.queue,
                    &settlement.connection,
                    &settlement.job,
                    &settlement.disposition,
                    settlement.released,
                )?;
            }
            Request::Extend(leases, _) => lost.push(tables.extend(leases)?),
            _ => {}
        }
    }
    Ok(lost)
}

/// Answers requests that have run together.
fn answer(requests: Vec<Request>, ran: &anyhow::Result<LostLeases>) {
    let mut lost = ran.as_ref().into_iter().flatten().cloned();
    let failed = || ran.as_ref().err().map(|error| anyhow::anyhow!("{error:#}"));
    for request in requests {
        match request {
            Request::Settle(_, reply) => drop(reply.send(failed().map_or(Ok(()), Err))),
            Request::Extend(_, reply) => {
                let lost = lost.next().unwrap_or_default();
                drop(reply.send(failed().map_or(Ok(lost), Err)));
            }
            _ => {}
        }
    }
}

/// The reservation of a job that is done.
fn done(request: &Request) -> Option<&Lease> {
    match request {
        Request::Settle(settlement, _) if settlement.disposition == Disposition::Done => {
            Some(&settlement.job.lease)
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn change_is_followed_by_polls_that_become_rare() {
        let rarely = Duration::from_secs(1);
        let mut pace = PollPace::new(rarely);
        assert_eq!(pace.pause(None), rarely);
        pace.changed();
        let pauses = std::iter::repeat_with(|| pace.pause(None));
        let pauses: Vec<_> = pauses.take(11).collect();
        assert_eq!(pauses[..3], [SOON, SOON * 2, SOON * 4]);
        assert_eq!(pauses[9..], [rarely; 2]);
        pace.changed();
        assert_eq!(pace.pause(Some(Duration::ZERO)), Duration::ZERO);
    }

    #[cfg(feature = "sqlite")]
    mod in_sqlite {
        use tokio::sync::oneshot;

        use super::super::super::{Settlement, Tables, open};
        use super::*;
        use crate::fronts::queue::sources::Place;

        const LEASE: Duration = Duration::from_secs(90);

        type Settled = oneshot::Receiver<anyhow::Result<()>>;

        /// Opens tables with four jobs. `exception` is the column of that name.
        fn open_tables(directory: &tempfile::TempDir, exception: &str) -> Box<dyn JobTable> {
            let file = directory.path().join("jobs.sqlite");
            let producer = rusqlite::Connection::open(&file).unwrap();
            let sql = format!(
                "create table jobs (id integer primary key, queue text, payload text, \
                 attempts tinyint unsigned, reserved_at integer, available_at integer, \
                 created_at integer); \
                 create table failed_jobs (id integer primary key, connection text, queue text, \
                 payload text, exception {exception}, failed_at text); \
                 insert into jobs (queue, payload, attempts, available_at, created_at) values \
                 ('q', '1', 0, 0, 0), ('q', '2', 0, 0, 0), ('q', '3', 0, 0, 0), \
                 ('q', '4', 0, 0, 0);"
            );
            producer.execute_batch(&sql).unwrap();
            let laravel = Tables::Laravel {
                jobs: "jobs".into(),
                failed: "failed_jobs".into(),
                max_payload: 1000,
            };
            open::tables(&Place::Sqlite(file), &laravel).unwrap()
        }

        fn settlement(job: Job, disposition: Disposition) -> (Request, Settled) {
            let (reply, settled) = oneshot::channel();
            let settlement = Settlement {
                queue: "q".into(),
                connection: "".into(),
                job,
                disposition,
                released: ReleasedRow::Same,
            };
            (Request::Settle(Box::new(settlement), reply), settled)
        }

        /// Reserves all jobs. Returns their ids and their attempts before.
        fn left(tables: &mut dyn JobTable) -> Vec<(String, u32)> {
            let left = tables.receive("q", LEASE, 9).unwrap().into_iter();
            left.map(|job| (job.lease.id, job.attempts - 1)).collect()
        }

        #[test]
        fn settlement_that_the_database_refuses_holds_up_no_other() {
            let directory = tempfile::tempdir().unwrap();
            let check = "text check (length(exception) < 10)";
            let mut tables = open_tables(&directory, check);
            let jobs = tables.receive("q", LEASE, 4).unwrap();
            let held = jobs[3].lease.clone();
            let dispositions = [
                Disposition::Bury("longer than the column".into()),
                Disposition::Done,
                Disposition::Postpone(Duration::ZERO),
            ];
            let settlements = jobs.into_iter().zip(dispositions);
            let (mut requests, mut replies): (Vec<_>, Vec<_>) = settlements
                .map(|(job, disposition)| settlement(job, disposition))
                .unzip();
            let (reply, mut extended) = oneshot::channel();
            requests.push(Request::Extend(vec![held], reply));
            settle(&mut *tables, requests);
            let is_settled = |reply: &mut Settled| reply.try_recv().unwrap().is_ok();
            let settled: Vec<_> = replies.iter_mut().map(is_settled).collect();
            assert_eq!(settled, [false, true, true]);
            let lost = extended.try_recv().unwrap().unwrap();
            assert!(lost.is_empty(), "{lost:?}");
            assert_eq!(left(&mut *tables), [("3".to_string(), 0)]);
        }

        #[test]
        fn jobs_that_are_done_wait_for_others_and_are_settled_at_the_end() {
            let directory = tempfile::tempdir().unwrap();
            let mut tables = open_tables(&directory, "text");
            let mut jobs = tables.receive("q", LEASE, 4).unwrap();
            let release = Disposition::Release(Duration::ZERO);
            let (released, _) = settlement(jobs.remove(3), release);
            let done = jobs
                .into_iter()
                .map(|job| settlement(job, Disposition::Done));
            let (done, replies): (Vec<_>, Vec<_>) = done.unzip();
            let now = Instant::now() + Duration::from_secs(60);
            assert!(may_wait(&done, now));
            assert!(!may_wait(&[released], now), "its next run does");
            let Some(earlier) = Instant::now().checked_sub(COLLECT) else {
                return;
            };
            assert!(!may_wait(&done, earlier));
            let (requests, arriving) = std::sync::mpsc::channel();
            for request in done {
                assert!(requests.send(request).is_ok());
            }
            drop(requests);
            run(&mut *tables, arriving);
            for mut reply in replies {
                assert!(reply.try_recv().unwrap().is_ok());
            }
            assert!(left(&mut *tables).is_empty(), "the fourth is reserved");
        }

        #[test]
        fn more_tries_than_the_column_can_hold_are_cut() {
            let directory = tempfile::tempdir().unwrap();
            let mut tables = open_tables(&directory, "text");
            let mut job = tables.receive("q", LEASE, 1).unwrap().remove(0);
            job.attempts = 300;
            let release = Disposition::Release(Duration::ZERO);
            let same = ReleasedRow::Same;
            tables.settle_one("q", "", &job, &release, same).unwrap();
            let again = tables.receive("q", LEASE, 1).unwrap();
            assert_eq!((&*again[0].lease.id, again[0].attempts), ("1", 255));
        }
    }
}
