//! Opens the brokers of queues, as `surus.toml` or the Laravel application names them.

#[cfg(any(
    feature = "amqp",
    feature = "redis",
    feature = "sqlite",
    feature = "mysql",
    feature = "postgres"
))]
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tracing::{info, warn};

use super::laravel::LaravelApplication;
use super::messenger::Transport;
#[cfg(feature = "sqs")]
use crate::aws::Provider;
use crate::fronts::queue::front::Consumer;
use crate::fronts::queue::runner::{JobProgram, Runner};
use crate::fronts::queue::source::Source;
use crate::fronts::queue::sources::Place;
#[cfg(feature = "amqp")]
use crate::fronts::queue::sources::amqp::{self, AmqpQueue};
#[cfg(any(feature = "sqlite", feature = "mysql", feature = "postgres"))]
use crate::fronts::queue::sources::database::{Database, DatabaseQueue, ReleasedRow, Tables};
#[cfg(feature = "redis")]
use crate::fronts::queue::sources::redis::{RedisNames, RedisQueue, RedisServer, RedisStream};
#[cfg(feature = "sqs")]
use crate::fronts::queue::sources::sqs::{Access, Reads, SqsQueue, with_suffix};
use crate::fronts::queue::{self, Queue};
#[cfg(feature = "amqp")]
use crate::fronts::queue::{JobRate, MAX_AHEAD};

/// The lease of a queue without a setting.
const LEASE: Duration = Duration::from_secs(90);
const SHORTEST_LEASE: Duration = Duration::from_secs(3);

#[cfg(not(any(feature = "sqlite", feature = "mysql", feature = "postgres")))]
const NO_DATABASE: &str = "this surus is built without databases; build it with the feature \
                           `sqlite`, `mysql` or `postgres`";

/// Brokers that are open, each once.
pub struct Brokers {
    project: PathBuf,
    /// The longest job that is read, in bytes.
    max_payload: u64,
    /// The workers of the queues that are opened next.
    #[cfg_attr(not(feature = "amqp"), allow(dead_code))]
    pub workers: usize,
    #[cfg(any(feature = "sqlite", feature = "mysql", feature = "postgres"))]
    databases: HashMap<(Place, Tables), Arc<Database>>,
    #[cfg(feature = "redis")]
    servers: HashMap<String, Arc<RedisServer>>,
    #[cfg(feature = "amqp")]
    rabbits: HashMap<String, Arc<amqp::AmqpServer>>,
}

/// A queue whose broker Surus opens. Queues of RabbitMQ need none of this.
#[cfg_attr(
    not(any(
        feature = "redis",
        feature = "sqlite",
        feature = "mysql",
        feature = "postgres",
        feature = "sqs"
    )),
    allow(dead_code)
)]
struct Wanted<'a> {
    queue: &'a Queue,
    /// The application, if the queue is in its own connection.
    own: Option<&'a LaravelApplication>,
    /// The failed jobs of SQS are in its dead-letter queue instead.
    #[cfg_attr(
        not(any(
            feature = "redis",
            feature = "sqlite",
            feature = "mysql",
            feature = "postgres"
        )),
        allow(dead_code)
    )]
    connection: &'a str,
    lease: Duration,
}

impl Brokers {
    pub fn new(project: &Path, settings: &queue::Settings) -> Brokers {
        Brokers {
            project: project.to_path_buf(),
            max_payload: settings.max_payload.0,
            workers: 1,
            #[cfg(any(feature = "sqlite", feature = "mysql", feature = "postgres"))]
            databases: HashMap::new(),
            #[cfg(feature = "redis")]
            servers: HashMap::new(),
            #[cfg(feature = "amqp")]
            rabbits: HashMap::new(),
        }
    }

    /// Opens the broker of a queue.
    pub async fn consumer(
        &mut self,
        mut queue: Queue,
        application: Option<&LaravelApplication>,
        runner: &Arc<Runner>,
    ) -> anyhow::Result<Consumer> {
        if queue.name.is_empty() {
            queue.name = application.map_or("default", |it| &it.queue).into();
        }
        let place = match (&queue.source, application) {
            (Some(source), _) => Place::read(source, &self.project)?,
            (None, Some(application)) => application.place(&self.project)?,
            (None, None) => bail!("queue {}: queue.source is missing", queue.name),
        };
        // The application's answer counts only for its own connection.
        let is_own =
            |it: &&LaravelApplication| queue.source.is_none() || it.is_at(&place, &self.project);
        let own = application.filter(is_own);
        if application.is_some_and(|it| it.is_elsewhere(&place, &self.project)) {
            warn!(
                queue = queue.name,
                remedy = "serve another connection by a `surus work` whose [env] has it as \
                          QUEUE_CONNECTION, without queue.source",
                "failed jobs of this queue name the application's default connection, into which \
                 `queue:retry` pushes them"
            );
        }
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
            Place::Redis(url) => self.redis(url, &wanted).await,
            Place::Amqp(url) => self.amqp(url, &queue, vec![queue.name.clone()]).await,
            Place::Sqs(base) => sqs(base, &wanted, self.max_payload).await,
            database => self.database(database, &wanted).await,
        };
        let source = opened.with_context(|| format!("queue {}", queue.name))?;
        Ok(Consumer {
            lease,
            source,
            queue,
            connection,
            runs: JobProgram::Php(runner.clone()),
        })
    }

    /// Opens the broker of a transport.
    pub async fn transport(
        &mut self,
        queue: Queue,
        transport: Transport,
        runner: &Arc<Runner>,
    ) -> anyhow::Result<Consumer> {
        let own = transport.lease.map(Duration::from_secs);
        let lease = queue.lease.map(|lease| lease.0).or(own);
        let lease = lease.unwrap_or(LEASE).max(SHORTEST_LEASE);
        let place = transport.place(&self.project)?;
        let opened = match &place {
            Place::Redis(url) => self.stream(url, &queue, &transport, lease).await,
            Place::Amqp(url) => self.amqp(url, &queue, transport.queues.clone()).await,
            Place::Sqs(url) => {
                sqs_of_transport(url, &queue, &transport, lease, self.max_payload).await
            }
            database => self.messages(database, &queue, &transport, lease).await,
        };
        let source = opened.with_context(|| format!("queue {}", queue.name))?;
        Ok(Consumer {
            lease,
            source,
            connection: queue.name.clone(),
            queue,
            runs: JobProgram::Php(runner.clone()),
        })
    }

    #[cfg(any(feature = "sqlite", feature = "mysql", feature = "postgres"))]
    async fn database(
        &mut self,
        place: &Place,
        wanted: &Wanted<'_>,
    ) -> anyhow::Result<Arc<dyn Source>> {
        let (queue, own) = (wanted.queue, wanted.own);
        let prefixed = |table: &str| {
            let prefix = own.and_then(|it| it.database.as_ref());
            format!("{}{table}", prefix.map_or("", |it| &it.prefix))
        };
        let failed = queue.failed_table.clone();
        let named = own.and_then(|it| it.table.as_deref()).unwrap_or("jobs");
        let jobs = queue.table.clone().unwrap_or_else(|| prefixed(named));
        let tables = Tables::Laravel {
            jobs: jobs.clone(),
            failed: failed.unwrap_or_else(|| {
                let named = own.and_then(|it| it.failed_table.as_deref());
                prefixed(named.unwrap_or("failed_jobs"))
            }),
            max_payload: self.max_payload,
        };
        let database = self.open(place, tables).await?;
        announce(queue, &database.name, Some(&jobs));
        Ok(Arc::new(DatabaseQueue {
            database,
            name: queue.name.as_str().into(),
            connection: wanted.connection.into(),
            lease: wanted.lease,
            released: match queue.format() {
                queue::Format::Laravel => ReleasedRow::New,
                queue::Format::RoadRunner => ReleasedRow::Rewritten,
                queue::Format::Plain | queue::Format::Messenger => ReleasedRow::Same,
            },
        }))
    }

    /// The queue of a Doctrine transport.
    #[cfg(any(feature = "sqlite", feature = "mysql", feature = "postgres"))]
    async fn messages(
        &mut self,
        place: &Place,
        queue: &Queue,
        transport: &Transport,
        lease: Duration,
    ) -> anyhow::Result<Arc<dyn Source>> {
        let (table, zone) = transport.table();
        let tables = Tables::Messenger {
            table: table.clone(),
            zone,
            max_payload: self.max_payload,
        };
        let database = self.open(place, tables).await?;
        announce(queue, &database.name, Some(&table));
        Ok(Arc::new(DatabaseQueue {
            database,
            name: transport.queue.as_str().into(),
            connection: queue.name.as_str().into(),
            lease,
            released: ReleasedRow::Same,
        }))
    }

    #[cfg(any(feature = "sqlite", feature = "mysql", feature = "postgres"))]
    async fn open(&mut self, place: &Place, tables: Tables) -> anyhow::Result<Arc<Database>> {
        let key = (place.clone(), tables);
        if let Some(database) = self.databases.get(&key) {
            return Ok(database.clone());
        }
        let opened = Database::open(&key.0, &key.1).await?;
        self.databases.insert(key, opened.clone());
        Ok(opened)
    }

    #[cfg(not(any(feature = "sqlite", feature = "mysql", feature = "postgres")))]
    async fn messages(
        &mut self,
        place: &Place,
        _: &Queue,
        _: &Transport,
        _: Duration,
    ) -> anyhow::Result<Arc<dyn Source>> {
        let _ = place;
        bail!(NO_DATABASE)
    }

    #[cfg(not(any(feature = "sqlite", feature = "mysql", feature = "postgres")))]
    async fn database(&mut self, _: &Place, _: &Wanted<'_>) -> anyhow::Result<Arc<dyn Source>> {
        bail!(NO_DATABASE)
    }

    /// A queue, or the queues of a transport.
    #[cfg(feature = "amqp")]
    async fn amqp(
        &mut self,
        url: &str,
        queue: &Queue,
        queues: Vec<String>,
    ) -> anyhow::Result<Arc<dyn Source>> {
        let server = match self.rabbits.get(url) {
            Some(server) => server.clone(),
            None => {
                let opened = Arc::new(amqp::AmqpServer::open(url, self.max_payload).await?);
                self.rabbits.insert(url.into(), opened.clone());
                opened
            }
        };
        let concurrency = queue.concurrency.unwrap_or(self.workers);
        let workers = self.workers.min(concurrency).max(1);
        let prefetch = match queue.group {
            // Jobs that wait for their group must not keep the server from sending others.
            Some(_) => workers + MAX_AHEAD,
            // As many as run, and the next ones; of a queue with a rate, those of a second.
            None => {
                let second = queue.rate.map_or(f64::INFINITY, JobRate::per_second);
                let ahead = (2 * workers).min(second.ceil() as usize);
                // A rate limiter sends back what waits, and quorum queues of RabbitMQ 4 drop what
                // has gone back 20 times.
                match queue.format() {
                    queue::Format::Messenger => ahead.min(10),
                    _ => ahead,
                }
            }
        };
        let names = amqp::AmqpNames {
            name: queue.name.clone(),
            queues,
            format: queue.format(),
            prefetch: prefetch.try_into().unwrap_or(u16::MAX),
            // Order matters in a queue with groups, which may have a single active consumer.
            grows: queue.group.is_none(),
            max_payload: self.max_payload,
        };
        let opened = AmqpQueue::open(server.clone(), names).await?;
        announce(queue, &server.name(), None);
        Ok(Arc::new(opened))
    }

    #[cfg(not(feature = "amqp"))]
    async fn amqp(
        &mut self,
        url: &str,
        _: &Queue,
        _: Vec<String>,
    ) -> anyhow::Result<Arc<dyn Source>> {
        let _ = url;
        bail!("this surus is built without RabbitMQ; build it with the feature `amqp`")
    }

    #[cfg(feature = "redis")]
    async fn redis(&mut self, url: &str, wanted: &Wanted<'_>) -> anyhow::Result<Arc<dyn Source>> {
        let server = self.server(url).await?;
        let queue = wanted.queue;
        let own = wanted.own.and_then(|it| it.redis.as_ref());
        let prefix = queue.prefix.clone().or(own.map(|it| it.prefix.clone()));
        let names = RedisNames {
            queue: queue.name.clone(),
            prefix: prefix.unwrap_or_default(),
            connection: wanted.connection.into(),
            max_payload: self.max_payload,
        };
        let is_laravel = queue.format() == queue::Format::Laravel;
        let opened = RedisQueue::new(&server, names, wanted.lease, is_laravel);
        announce(queue, &server.name(), Some(opened.list()));
        Ok(Arc::new(opened))
    }

    #[cfg(feature = "redis")]
    async fn server(&mut self, url: &str) -> anyhow::Result<Arc<RedisServer>> {
        if let Some(server) = self.servers.get(url) {
            return Ok(server.clone());
        }
        let opened = Arc::new(RedisServer::open(url).await?);
        self.servers.insert(url.into(), opened.clone());
        Ok(opened)
    }

    /// The stream of a Redis transport.
    #[cfg(feature = "redis")]
    async fn stream(
        &mut self,
        url: &str,
        queue: &Queue,
        transport: &Transport,
        lease: Duration,
    ) -> anyhow::Result<Arc<dyn Source>> {
        let server = self.server(url).await?;
        let stream = transport.stream(self.max_payload)?;
        announce(queue, &server.name(), Some(&stream.key));
        Ok(Arc::new(RedisStream::new(&server, stream, lease)))
    }

    #[cfg(not(feature = "redis"))]
    async fn stream(
        &mut self,
        url: &str,
        _: &Queue,
        _: &Transport,
        _: Duration,
    ) -> anyhow::Result<Arc<dyn Source>> {
        let _ = url;
        bail!("this surus is built without Redis; build it with the feature `redis`")
    }

    #[cfg(not(feature = "redis"))]
    async fn redis(&mut self, _: &str, _: &Wanted<'_>) -> anyhow::Result<Arc<dyn Source>> {
        bail!("this surus is built without Redis; build it with the feature `redis`")
    }
}

#[cfg(feature = "sqs")]
async fn sqs(base: &str, wanted: &Wanted<'_>, max_payload: u64) -> anyhow::Result<Arc<dyn Source>> {
    let queue = wanted.queue;
    let own = wanted.own.and_then(|it| it.sqs.as_ref());
    let name = with_suffix(&queue.name, own.map_or("", |it| &it.suffix));
    let keys = own.and_then(|it| it.credentials.clone());
    let access = Access {
        base: base.into(),
        endpoint: None,
        region: own.and_then(|it| it.region.clone()),
        credentials: keys.map(|(key, secret, token)| Provider::fixed(&key, &secret, token)),
    };
    open_sqs(queue, &name, access, wanted.lease, max_payload).await
}

/// The queue of an SQS transport.
#[cfg(feature = "sqs")]
async fn sqs_of_transport(
    url: &str,
    queue: &Queue,
    transport: &Transport,
    lease: Duration,
    max_payload: u64,
) -> anyhow::Result<Arc<dyn Source>> {
    open_sqs(queue, url, transport.access(), lease, max_payload).await
}

#[cfg(feature = "sqs")]
async fn open_sqs(
    queue: &Queue,
    full_name: &str,
    access: Access,
    lease: Duration,
    max_payload: u64,
) -> anyhow::Result<Arc<dyn Source>> {
    let format = queue.format();
    let reads = Reads {
        format,
        max_payload,
    };
    let opened = SqsQueue::open(&queue.name, full_name, access, lease, reads).await?;
    announce(queue, opened.url(), None);
    if !format.is_frameworks() && !opened.has_dead_letters() {
        warn!(
            queue = queue.name,
            "the queue has no dead-letter queue (RedrivePolicy): jobs that fail for good stay in it"
        );
    }
    Ok(Arc::new(opened))
}

#[cfg(not(feature = "sqs"))]
const NO_SQS: &str = "this surus is built without SQS; build it with the feature `sqs`";

#[cfg(not(feature = "sqs"))]
async fn sqs(_: &str, _: &Wanted<'_>, _: u64) -> anyhow::Result<Arc<dyn Source>> {
    bail!(NO_SQS)
}

#[cfg(not(feature = "sqs"))]
async fn sqs_of_transport(
    _: &str,
    _: &Queue,
    _: &Transport,
    _: Duration,
    _: u64,
) -> anyhow::Result<Arc<dyn Source>> {
    bail!(NO_SQS)
}

/// Logs a queue, and the table or Redis key with its jobs, which may have the application's prefix.
fn announce(queue: &Queue, source: &str, jobs_in: Option<&str>) {
    info!(
        queue = queue.name,
        source,
        jobs_in,
        weight = queue.weight,
        "queue found"
    );
}
