//! The queues that a Laravel application reports.

use serde::Deserialize;

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
    /// `database`, `redis`, `sync` and others.
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
