//! Messenger's transports that a Symfony application reports, and their queues.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use tracing::{info, warn};

use crate::fronts::queue::Queue;
use crate::fronts::queue::sources::Place;
#[cfg(feature = "redis")]
use crate::fronts::queue::sources::redis::Stream;
#[cfg(feature = "sqs")]
use crate::{aws::Provider, fronts::queue::sources::sqs::Access};

/// What Surus serves, as Surus names it.
const DRIVERS: [&str; 4] = ["database", "redis", "amqp", "sqs"];

#[derive(Deserialize)]
pub struct Messenger {
    /// Those that are not failure transports.
    transports: Vec<Transport>,
}

#[derive(Deserialize, Clone)]
#[cfg_attr(
    not(all(feature = "amqp", feature = "redis", feature = "sqs")),
    allow(dead_code)
)]
pub struct Transport {
    name: String,
    /// One of [`DRIVERS`], or what Surus does not serve.
    driver: String,
    /// The queue's name in its table, or the stream.
    #[serde(default)]
    pub queue: String,
    /// The queues of RabbitMQ.
    #[serde(default)]
    pub queues: Vec<String>,
    /// Messenger's `redeliver_timeout` or `visibility_timeout` in seconds.
    pub lease: Option<u64>,
    table: Option<String>,
    /// The time zone of the table's times.
    timezone: Option<String>,
    /// The file of SQLite.
    file: Option<String>,
    /// The server, with its password; the queue for SQS.
    url: Option<String>,
    /// Scheme and host of SQS, if the application names them.
    endpoint: Option<String>,
    /// The region of SQS.
    region: Option<String>,
    /// Key, secret and, for temporary credentials, token; None for those of the environment.
    credentials: Option<(String, String, Option<String>)>,
    /// The group of a stream's consumers.
    #[serde(default)]
    group: String,
    /// How many entries a stream keeps; 0 for all.
    #[serde(default)]
    max_entries: u64,
    /// Whether done messages are deleted from their stream.
    #[serde(default)]
    deletes: bool,
    /// How phpredis writes a stream's messages: `none`, `php` or `other`.
    #[serde(default)]
    serializer: String,
}

impl Messenger {
    /// The transport of a queue; all that Surus serves for a queue without a name.
    pub fn chosen(&self, queue: Queue) -> anyhow::Result<Vec<(Queue, Transport)>> {
        let served = |it: &&Transport| DRIVERS.contains(&&*it.driver);
        let names = || {
            let named = self.transports.iter();
            let named = named.map(|it| format!("{} ({})", it.name, it.driver));
            named.collect::<Vec<_>>().join(", ")
        };
        if !queue.name.is_empty() {
            let found = self.transports.iter().find(|it| it.name == queue.name);
            let found = found.filter(served).with_context(|| {
                format!(
                    "queue {}: Messenger has no such transport in a database, in Redis, RabbitMQ \
                     or SQS; it has {}",
                    queue.name,
                    names()
                )
            })?;
            return Ok(vec![(queue, found.clone())]);
        }
        for other in self.transports.iter().filter(|it| !served(it)) {
            match other.is_scheduler() {
                true => warn!(
                    transport = other.name,
                    driver = other.driver,
                    "Symfony Scheduler is not run: use messenger:consume for this transport, or \
                     [[schedule]]"
                ),
                false => info!(
                    transport = other.name,
                    driver = other.driver,
                    "transport is not served: surus work serves doctrine://, redis://, amqp:// \
                     and sqs://"
                ),
            }
        }
        let chosen: Vec<_> = self
            .transports
            .iter()
            .filter(served)
            .map(|transport| {
                let name = transport.name.clone();
                (
                    Queue {
                        name,
                        ..queue.clone()
                    },
                    transport.clone(),
                )
            })
            .collect();
        ensure!(
            !chosen.is_empty(),
            "Messenger has no transport in a database, in Redis, RabbitMQ or SQS \
             (framework.messenger.transports, MESSENGER_TRANSPORT_DSN); it has {}",
            match names() {
                names if names.is_empty() => "none".into(),
                names => names,
            }
        );
        Ok(chosen)
    }
}

impl Transport {
    /// Whether its messages are those of a schedule of Symfony.
    fn is_scheduler(&self) -> bool {
        self.driver.ends_with("\\SchedulerTransport")
    }

    #[cfg(feature = "redis")]
    pub fn stream(&self, max_payload: u64) -> anyhow::Result<Stream> {
        ensure!(
            self.serializer != "other",
            "phpredis serializes its messages neither as PHP does nor not at all; surus work \
             serves the transport's option `serializer` with Redis::SERIALIZER_PHP, the default, \
             and Redis::SERIALIZER_NONE"
        );
        Ok(Stream {
            key: self.queue.clone(),
            group: self.group.clone(),
            max_entries: self.max_entries,
            deletes: self.deletes,
            is_serialized: self.serializer == "php",
            queue: self.name.clone(),
            max_payload,
        })
    }

    #[cfg(feature = "sqs")]
    pub fn access(&self) -> Access {
        let keys = self.credentials.clone();
        Access {
            base: String::new(),
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            credentials: keys.map(|(key, secret, token)| Provider::fixed(&key, &secret, token)),
        }
    }

    /// The table, and the time zone of its times.
    #[cfg(any(feature = "sqlite", feature = "mysql", feature = "postgres"))]
    pub fn table(&self) -> (String, String) {
        let table = self.table.clone();
        (
            table.unwrap_or_else(|| "messenger_messages".into()),
            self.timezone.clone().unwrap_or_else(|| "UTC".into()),
        )
    }

    /// The database or the server.
    pub fn place(&self, project: &Path) -> anyhow::Result<Place> {
        match (&self.file, &self.url) {
            (Some(file), _) if !file.is_empty() => Ok(Place::Sqlite(project.join(file))),
            (_, Some(url)) => Place::read(url, project),
            _ => bail!(
                "queue {}: surus work does not serve its database, only sqlite, mysql, mariadb \
                 and pgsql",
                self.name
            ),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn transport_of_symfony_scheduler_is_distinguished_from_other_unserved_ones() {
        let is_scheduler = |class: &str| {
            let driver = format!("Symfony\\Component\\{class}");
            let told = json!({ "name": "one", "driver": driver });
            serde_json::from_value::<Transport>(told)
                .unwrap()
                .is_scheduler()
        };
        assert!(is_scheduler("Scheduler\\Messenger\\SchedulerTransport"));
        assert!(!is_scheduler("Messenger\\Transport\\Sync\\SyncTransport"));
    }
}
