//! Opens the brokers of queues, as `surus.toml` or the Laravel application names them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tracing::info;

use super::laravel::Application;
use crate::fronts::queue::front::Lane;
use crate::fronts::queue::source::Source;
use crate::fronts::queue::sources::Place;
#[cfg(feature = "redis")]
use crate::fronts::queue::sources::redis::{Names, RedisQueue, Server};
#[cfg(feature = "sqlite")]
use crate::fronts::queue::sources::sqlite::{Database, SqliteQueue, Tables};
use crate::fronts::queue::{Format, Queue};

/// The lease of a queue that names none.
const LEASE: Duration = Duration::from_secs(90);
const SHORTEST_LEASE: Duration = Duration::from_secs(3);

/// Brokers that are open, each once.
pub struct Brokers {
    project: PathBuf,
    #[cfg(feature = "sqlite")]
    databases: HashMap<(PathBuf, Tables), Arc<Database>>,
    #[cfg(feature = "redis")]
    servers: HashMap<String, Arc<Server>>,
}

/// A queue whose broker Surus opens.
struct Wanted<'a> {
    queue: &'a Queue,
    /// The application, if the queue is in its own connection.
    own: Option<&'a Application>,
    connection: &'a str,
    lease: Duration,
}

impl Brokers {
    pub fn new(project: &Path) -> Brokers {
        Brokers {
            project: project.to_path_buf(),
            #[cfg(feature = "sqlite")]
            databases: HashMap::new(),
            #[cfg(feature = "redis")]
            servers: HashMap::new(),
        }
    }

    /// Opens the broker of a queue.
    pub async fn lane(
        &mut self,
        mut queue: Queue,
        application: Option<&Application>,
    ) -> anyhow::Result<Lane> {
        if queue.name.is_empty() {
            queue.name = application.map_or("default", |it| &it.queue).into();
        }
        // What the application says counts only for its own connection.
        let own = application.filter(|_| queue.source.is_none());
        let place = match (&queue.source, own) {
            (Some(source), _) => Place::read(source, &self.project)?,
            (None, Some(application)) => place(application, &self.project)?,
            (None, None) => bail!("queue {}: queue.source is missing", queue.name),
        };
        let retry_after = own.map(|it| Duration::from_secs(it.retry_after));
        let lease = queue.lease.map(|lease| lease.0).or(retry_after);
        let lease = lease.unwrap_or(LEASE).max(SHORTEST_LEASE);
        let connection = application.map_or("surus", |it| &it.connection).to_string();
        let wanted = Wanted {
            queue: &queue,
            own,
            connection: &connection,
            lease,
        };
        let opened = match &place {
            Place::Sqlite(file) => self.sqlite(file, &wanted),
            Place::Redis(url) => self.redis(url, &wanted).await,
        };
        let source = opened.with_context(|| format!("queue {}", queue.name))?;
        Ok(Lane {
            lease,
            source,
            queue,
            connection,
        })
    }

    #[cfg(feature = "sqlite")]
    fn sqlite(&mut self, file: &Path, wanted: &Wanted<'_>) -> anyhow::Result<Arc<dyn Source>> {
        let (queue, own) = (wanted.queue, wanted.own);
        let prefixed = |table: &str| {
            let prefix = own.and_then(|it| it.database.as_ref());
            format!("{}{table}", prefix.map_or("", |it| &it.prefix))
        };
        let jobs = queue.table.clone();
        let failed = queue.failed_table.clone();
        let tables = Tables {
            jobs: jobs.unwrap_or_else(|| {
                prefixed(own.and_then(|it| it.table.as_deref()).unwrap_or("jobs"))
            }),
            failed: failed.unwrap_or_else(|| {
                let named = own.and_then(|it| it.failed_table.as_deref());
                prefixed(named.unwrap_or("failed_jobs"))
            }),
        };
        announce(queue, &file.display().to_string());
        let key = (file.to_path_buf(), tables);
        let database = match self.databases.get(&key) {
            Some(database) => database.clone(),
            None => {
                let opened = Database::open(&key.0, &key.1)?;
                self.databases.insert(key, opened.clone());
                opened
            }
        };
        Ok(Arc::new(SqliteQueue {
            database,
            name: queue.name.as_str().into(),
            connection: wanted.connection.into(),
            lease: wanted.lease,
            moves_released: queue.format() == Format::Laravel,
        }))
    }

    #[cfg(not(feature = "sqlite"))]
    fn sqlite(&mut self, _: &Path, _: &Wanted<'_>) -> anyhow::Result<Arc<dyn Source>> {
        bail!("this surus is built without SQLite; build it with the feature `sqlite`")
    }

    #[cfg(feature = "redis")]
    async fn redis(&mut self, url: &str, wanted: &Wanted<'_>) -> anyhow::Result<Arc<dyn Source>> {
        let server = match self.servers.get(url) {
            Some(server) => server.clone(),
            None => {
                let opened = Arc::new(Server::open(url).await?);
                self.servers.insert(url.into(), opened.clone());
                opened
            }
        };
        let queue = wanted.queue;
        announce(queue, &server.name());
        let own = wanted.own.and_then(|it| it.redis.as_ref());
        let prefix = queue.prefix.clone().or(own.map(|it| it.prefix.clone()));
        let names = Names {
            queue: queue.name.clone(),
            prefix: prefix.unwrap_or_default(),
            connection: wanted.connection.into(),
        };
        let is_laravel = queue.format() == Format::Laravel;
        Ok(Arc::new(RedisQueue::new(
            &server,
            names,
            wanted.lease,
            is_laravel,
        )))
    }

    #[cfg(not(feature = "redis"))]
    async fn redis(&mut self, _: &str, _: &Wanted<'_>) -> anyhow::Result<Arc<dyn Source>> {
        bail!("this surus is built without Redis; build it with the feature `redis`")
    }
}

fn announce(queue: &Queue, source: &str) {
    info!(queue = queue.name, source, weight = queue.weight, "queue");
}

/// The broker of the application's own queue connection.
fn place(application: &Application, project: &Path) -> anyhow::Result<Place> {
    let (name, driver) = (&application.connection, &application.driver);
    match (driver.as_str(), &application.redis, &application.database) {
        ("redis", Some(redis), _) => Ok(Place::Redis(redis.url.clone())),
        ("redis", None, _) => bail!(
            "the application's queue connection {name:?} is on a cluster of Redis, or its Redis \
             connection is not in config/database.php; surus work serves single servers: name one \
             in queue.source"
        ),
        ("database", _, Some(database)) if database.driver == "sqlite" => {
            Ok(Place::Sqlite(project.join(&database.database)))
        }
        ("database", _, Some(database)) => bail!(
            "the application's queue connection {name:?} is in a database of the driver {:?}; \
             surus work serves sqlite",
            database.driver
        ),
        ("database", _, None) => {
            bail!("the application's queue connection {name:?} names no database")
        }
        _ => bail!(
            "the application's queue connection {name:?} has the driver {driver:?}; surus work \
             serves the drivers redis, and database with SQLite (QUEUE_CONNECTION, \
             config/queue.php)"
        ),
    }
}
