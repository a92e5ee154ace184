//! Queues in a database, in the tables of Laravel or Messenger: SQLite, MySQL and MariaDB,
//! PostgreSQL.
//!
//! One thread owns the connection. It runs all requests that have arrived in one transaction, and
//! wakes the callers that wait for jobs when it has found some. It checks for jobs soon after the
//! database reports a change, otherwise by polling.

mod connection;
mod failed;
mod job_table;
mod messenger;
#[cfg(feature = "mysql")]
mod mysql;
mod open;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod server;
#[cfg(feature = "sqlite")]
mod sqlite;
mod tables;
mod thread;

pub use job_table::ReleasedRow;

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::fronts::queue::job::{Depth, Disposition, FailedJob, Failures, Job, Lease};
use crate::fronts::queue::source::{Pending, Source};
use crate::fronts::queue::sources::Place;

/// The tables of a database.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tables {
    Laravel {
        jobs: String,
        failed: String,
        /// The longest payload that is read; jobs with a longer one have none.
        max_payload: u64,
    },
    /// The table of a Doctrine transport. Its times are those of a time zone, without naming it.
    Messenger {
        table: String,
        zone: String,
        /// The longest message that is read.
        max_payload: u64,
    },
}

impl Tables {
    /// The channel on which PostgreSQL reports new jobs, by a trigger of the user's or of
    /// Messenger's.
    fn channel(&self) -> &str {
        match self {
            Tables::Laravel { .. } => "surus",
            Tables::Messenger { table, .. } => table,
        }
    }
}

/// A database that several queues may share.
pub struct Database {
    /// Where it is, without its password.
    pub name: String,
    requests: Sender<Request>,
    /// Its thread has a sender of requests, too, so the database's thread would not end before it.
    _watch: open::Watch,
}

/// One queue of a database.
pub struct DatabaseQueue {
    pub database: Arc<Database>,
    pub name: Arc<str>,
    /// The connection's name in `failed_jobs`.
    pub connection: Arc<str>,
    pub lease: Duration,
    pub released: ReleasedRow,
}

type Reply<T> = oneshot::Sender<anyhow::Result<T>>;

enum Request {
    Receive {
        queue: Arc<str>,
        lease: Duration,
        most: usize,
        reply: Reply<Vec<Job>>,
    },
    /// No more jobs are wanted: pending requests for jobs get none.
    Stop(Arc<str>),
    Extend(Vec<Lease>, Reply<Vec<Lease>>),
    Settle(Box<Settlement>, Reply<()>),
    Depth(Arc<str>, Reply<Depth>),
    Failures(Arc<str>, Failures, Reply<Vec<FailedJob>>),
    /// Another process has written to the database.
    #[cfg_attr(not(any(feature = "sqlite", feature = "postgres")), allow(dead_code))]
    Changed,
}

struct Settlement {
    queue: Arc<str>,
    connection: Arc<str>,
    job: Job,
    disposition: Disposition,
    released: ReleasedRow,
}

impl Database {
    /// Opens a database and checks its tables.
    pub async fn open(place: &Place, tables: &Tables) -> anyhow::Result<Arc<Database>> {
        let (requests, arriving) = mpsc::channel();
        let (report, opened) = oneshot::channel();
        let (place, tables, changes) = (place.clone(), tables.clone(), requests.clone());
        let run = move || match open::tables(&place, &tables) {
            Ok(mut open) => {
                let watch = open::watch(&place, tables.channel(), changes);
                let _ = report.send(Ok((open.connection().name(), watch)));
                thread::run(&mut *open, arriving);
            }
            Err(error) => drop(report.send(Err(error))),
        };
        std::thread::Builder::new()
            .name("database".into())
            .spawn(run)
            .context("cannot start a thread")?;
        let (name, watch) = opened.await.context("the database's thread has ended")??;
        Ok(Arc::new(Database {
            name,
            requests,
            _watch: watch,
        }))
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> anyhow::Result<T> {
        let (reply, answer) = oneshot::channel();
        self.send(request(reply))?;
        match answer.await {
            Ok(answer) => answer,
            Err(_) => bail!("the database's thread has ended"),
        }
    }

    fn send(&self, request: Request) -> anyhow::Result<()> {
        let sent = self.requests.send(request);
        sent.map_err(|_| anyhow!("the database's thread has ended"))
    }
}

impl Source for DatabaseQueue {
    fn receive<'a>(&'a self, most: usize, stop: &'a CancellationToken) -> Pending<'a, Vec<Job>> {
        Box::pin(async move {
            let mut received = std::pin::pin!(self.database.ask(|reply| Request::Receive {
                queue: self.name.clone(),
                lease: self.lease,
                most,
                reply,
            }));
            tokio::select! {
                // The request must be sent before the end of it.
                biased;
                received = &mut received => return received,
                () = stop.cancelled() => {}
            }
            self.database.send(Request::Stop(self.name.clone()))?;
            received.await
        })
    }

    fn extend(&self, leases: Vec<Lease>) -> Pending<'_, Vec<Lease>> {
        Box::pin(self.database.ask(|reply| Request::Extend(leases, reply)))
    }

    fn is_renewed(&self, held: &Lease, received: &Lease) -> bool {
        held.id == received.id
    }

    fn settle(&self, job: Job, disposition: Disposition) -> Pending<'_, ()> {
        let settlement = Box::new(Settlement {
            queue: self.name.clone(),
            connection: self.connection.clone(),
            job,
            disposition,
            released: self.released,
        });
        Box::pin(
            self.database
                .ask(|reply| Request::Settle(settlement, reply)),
        )
    }

    fn depth(&self) -> Pending<'_, Depth> {
        let depth = |reply| Request::Depth(self.name.clone(), reply);
        Box::pin(self.database.ask(depth))
    }

    fn failures(&self, requested: Failures) -> Pending<'_, Vec<FailedJob>> {
        // Laravel shows its own.
        if self.released == ReleasedRow::New {
            return Box::pin(async { Ok(Vec::new()) });
        }
        let failures = |reply| Request::Failures(self.name.clone(), requested, reply);
        Box::pin(self.database.ask(failures))
    }
}

#[cfg(all(test, feature = "sqlite"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TABLE: &str = "create table jobs (id integer primary key, queue text, payload text, \
                         attempts integer, reserved_at integer, available_at integer)";

    #[tokio::test]
    async fn database_without_queues_ends_its_threads_and_its_connection() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().canonicalize().unwrap().join("jobs.sqlite");
        let application = rusqlite::Connection::open(&file).unwrap();
        application.execute_batch(TABLE).unwrap();
        drop(application);
        let is_open = || {
            let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            let mut files = files.filter_map(|it| std::fs::read_link(it.path()).ok());
            files.any(|it| it == file)
        };
        let laravel = Tables::Laravel {
            jobs: "jobs".into(),
            failed: "failed_jobs".into(),
            max_payload: 1000,
        };
        let place = Place::Sqlite(file.clone());
        let database = Database::open(&place, &laravel).await.unwrap();
        assert!(is_open());
        drop(database);
        // Nothing is written, so nothing else wakes them.
        for _ in 0..6000 {
            if !is_open() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the database is still open");
    }
}
