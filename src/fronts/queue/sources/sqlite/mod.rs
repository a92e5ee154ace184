//! Queues in a SQLite database, in Laravel's tables.
//!
//! One thread owns the connection. It runs all requests that have arrived in one transaction, and
//! wakes those that wait for jobs when the database's files are written.

mod failed;
mod tables;
mod thread;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::fronts::queue::job::{Depth, FailedJob, Failures, Fate, Job, Lease};
use crate::fronts::queue::source::{Pending, Source};

/// The tables of a database.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tables {
    pub jobs: String,
    pub failed: String,
}

/// A database that several queues may share.
pub struct Database {
    requests: Sender<Request>,
}

/// One queue of a database.
pub struct SqliteQueue {
    pub database: Arc<Database>,
    pub name: Arc<str>,
    /// The connection's name in `failed_jobs`.
    pub connection: Arc<str>,
    pub lease: Duration,
    /// A released job becomes a new row behind the others, as Laravel writes it. Otherwise it stays
    /// in its place.
    pub moves_released: bool,
}

type Reply<T> = oneshot::Sender<anyhow::Result<T>>;

enum Request {
    Receive {
        queue: Arc<str>,
        lease: Duration,
        most: usize,
        reply: Reply<Vec<Job>>,
    },
    /// No more jobs are wanted: those who wait get none.
    Stop(Arc<str>),
    Extend(Vec<Lease>, Reply<Vec<Lease>>),
    Settle(Box<Settlement>, Reply<()>),
    Depth(Arc<str>, Reply<Depth>),
    Failures(Arc<str>, Failures, Reply<Vec<FailedJob>>),
    /// Another process has written to the database.
    Changed,
}

struct Settlement {
    queue: Arc<str>,
    connection: Arc<str>,
    job: Job,
    fate: Fate,
    moves_released: bool,
}

impl Database {
    /// Opens a database and checks its tables.
    pub fn open(file: &Path, tables: &Tables) -> anyhow::Result<Arc<Database>> {
        let path = file.display();
        let file = file.canonicalize().with_context(|| {
            format!(
                "cannot open {path}; create the database, for example with `php artisan migrate`"
            )
        })?;
        let tables = tables::OpenTables::open(&file, tables)?;
        let (requests, arriving) = mpsc::channel();
        thread::watch(&file, requests.clone());
        std::thread::Builder::new()
            .name("sqlite".into())
            .spawn(move || thread::run(tables, arriving))
            .context("cannot start a thread")?;
        Ok(Arc::new(Database { requests }))
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

impl Source for SqliteQueue {
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

    fn settle(&self, job: Job, fate: Fate) -> Pending<'_, ()> {
        let settlement = Box::new(Settlement {
            queue: self.name.clone(),
            connection: self.connection.clone(),
            job,
            fate,
            moves_released: self.moves_released,
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

    fn failures(&self, asked: Failures) -> Pending<'_, Vec<FailedJob>> {
        // Laravel shows its own.
        if self.moves_released {
            return Box::pin(async { Ok(Vec::new()) });
        }
        let failures = |reply| Request::Failures(self.name.clone(), asked, reply);
        Box::pin(self.database.ask(failures))
    }
}
