//! The queues that a Laravel application reports.

use std::path::Path;

use anyhow::bail;
use serde::Deserialize;

use crate::fronts::queue::sources::Place;

/// The default queue connection of an application.
#[derive(Deserialize)]
#[cfg_attr(
    not(all(
        feature = "redis",
        any(feature = "sqlite", feature = "mysql", feature = "postgres")
    )),
    allow(dead_code)
)]
pub struct LaravelApplication {
    /// The connection's name.
    pub connection: String,
    /// `database`, `redis`, `sync`, `OVERFLOW` and others.
    pub driver: String,
    /// The name of its default queue.
    pub queue: String,
    pub table: Option<String>,
    /// The lease in seconds.
    pub retry_after: u64,
    pub failed_table: Option<String>,
    /// The database of the driver `database`.
    pub database: Option<Database>,
    /// The server of the driver `redis`.
    pub redis: Option<Redis>,
    /// The account of the driver `sqs`.
    pub sqs: Option<Sqs>,
}

#[derive(Deserialize)]
#[cfg_attr(not(feature = "sqs"), allow(dead_code))]
pub struct Sqs {
    /// The URLs of queues without their names.
    pub prefix: String,
    /// What the names of queues end with.
    pub suffix: String,
    pub region: Option<String>,
    /// Key, secret and, for temporary credentials, token; None for those of the environment.
    pub credentials: Option<(String, String, Option<String>)>,
}

#[derive(Deserialize)]
#[cfg_attr(not(feature = "redis"), allow(dead_code))]
pub struct Redis {
    /// The server's URL, with the password.
    pub url: String,
    /// Prefix of all keys.
    pub prefix: String,
}

#[derive(Deserialize)]
#[cfg_attr(
    not(any(feature = "sqlite", feature = "mysql", feature = "postgres")),
    allow(dead_code)
)]
pub struct Database {
    /// `sqlite`, `mysql`, `pgsql` and others.
    pub driver: String,
    /// The file, for SQLite.
    pub database: String,
    /// For MySQL, MariaDB and PostgreSQL, with the password.
    pub url: Option<String>,
    /// Names of its settings that Surus cannot keep, such as a certificate of the client.
    #[serde(default)]
    pub unsupported: Vec<String>,
    /// Prefix of all table names.
    pub prefix: String,
}

/// The driver of a connection whose messages are pointers to jobs.
const OVERFLOW: &str = "sqs with overflow storage";

impl LaravelApplication {
    /// The broker of the default queue connection.
    pub fn place(&self, project: &Path) -> anyhow::Result<Place> {
        let (name, driver) = (&self.connection, &self.driver);
        match (driver.as_str(), &self.redis, &self.database) {
            ("redis", Some(redis), _) => Ok(Place::Redis(redis.url.clone())),
            ("redis", None, _) => bail!(
                "the application's queue connection {name:?} is on a cluster of Redis, or its \
                 Redis connection is not in config/database.php; surus work serves single servers: \
                 name one in queue.source"
            ),
            ("sqs", _, _) => {
                let sqs = self.sqs.as_ref();
                Ok(Place::Sqs(
                    sqs.map_or(String::new(), |it| it.prefix.clone()),
                ))
            }
            (OVERFLOW, _, _) => bail!(
                "the application's queue connection {name:?} is SQS with overflow storage, which \
                 surus work does not serve; set overflow.enabled of the connection in \
                 config/queue.php to false"
            ),
            ("database", _, Some(database)) if database.driver == "sqlite" => {
                Ok(Place::Sqlite(project.join(&database.database)))
            }
            ("database", _, Some(database)) if !database.unsupported.is_empty() => bail!(
                "the application's queue connection {name:?} is in a database with settings that \
                 surus work cannot keep: {}; name a server that needs none of them in queue.source",
                database.unsupported.join(", ")
            ),
            ("database", _, Some(database)) => match &database.url {
                // The names of Laravel's drivers are those of the schemes.
                Some(url) => Place::read(url, project),
                None => bail!(
                    "the application's queue connection {name:?} is in a database of the driver \
                     {:?}; surus work serves sqlite, mysql, mariadb and pgsql",
                    database.driver
                ),
            },
            ("database", _, None) => {
                bail!("the application's queue connection {name:?} names no database")
            }
            _ => bail!(
                "the application's queue connection {name:?} has the driver {driver:?}; surus work \
                 serves the drivers database, redis and sqs (QUEUE_CONNECTION, config/queue.php)"
            ),
        }
    }

    /// Whether the default queue connection is at this place.
    pub fn is_at(&self, place: &Place, project: &Path) -> bool {
        self.place(project).is_ok_and(|own| own == *place)
    }

    /// Whether it is surely at another one: two texts may mean the same server.
    pub fn is_elsewhere(&self, place: &Place, project: &Path) -> bool {
        match self.place(project) {
            Ok(own) => std::mem::discriminant(&own) != std::mem::discriminant(place),
            Err(_) => match self.driver.as_str() {
                "sync" => true,
                OVERFLOW => !matches!(place, Place::Sqs(_)),
                _ => false,
            },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn application(driver: &str, connection: &str) -> LaravelApplication {
        let json = format!(
            r#"{{"connection": "c", "driver": "{driver}", "queue": "q", "retry_after": 30,
                {connection}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn source_is_the_default_connection_if_it_names_the_same_place() {
        let redis = r#""redis": {"url": "redis://h:6379/0", "prefix": "app_"}"#;
        let file = r#""database": {"driver": "sqlite", "database": "/srv/a.sqlite", "prefix": ""}"#;
        let sqs = r#""sqs": {"prefix": "https://sqs.x/1", "suffix": "-test"}"#;
        let project = Path::new("/srv");
        for (driver, connection, source) in [
            ("redis", redis, "redis://h:6379/0"),
            ("database", file, "sqlite:a.sqlite"),
            ("sqs", sqs, "https://sqs.x/1"),
        ] {
            let application = application(driver, connection);
            let found = |source: &str| {
                let place = Place::read(source, project).unwrap();
                let is_at = application.is_at(&place, project);
                (is_at, application.is_elsewhere(&place, project))
            };
            assert_eq!(found(source), (true, false), "{source}");
            for other in ["redis://other:6379/0", "sqlite:b.sqlite", "https://sqs.x/2"] {
                // Two texts may mean the same server.
                let is_another_kind = source.split(':').next() != other.split(':').next();
                assert_eq!(found(other), (false, is_another_kind), "{driver}: {other}");
            }
        }
        let place = Place::read("amqp://h", project).unwrap();
        // A connection that is not used need not be one that Surus serves.
        let error = application(OVERFLOW, redis).place(project).unwrap_err();
        assert!(error.to_string().contains("overflow.enabled"), "{error}");
        for (driver, is_elsewhere) in [("sync", true), ("rabbitmq", false), (OVERFLOW, true)] {
            let application = application(driver, redis);
            assert!(!application.is_at(&place, project), "{driver}");
            let found = application.is_elsewhere(&place, project);
            assert_eq!(found, is_elsewhere, "{driver}");
        }
    }
}
