//! Selects the broker that a `source` names.

#[cfg(feature = "amqp")]
pub mod amqp;
#[cfg(any(feature = "sqlite", feature = "mysql", feature = "postgres"))]
pub mod database;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "schedule")]
pub mod schedule;
#[cfg(feature = "sqs")]
pub mod sqs;
#[cfg(any(feature = "amqp", feature = "postgres"))]
mod tls;

use std::path::{Path, PathBuf};

use anyhow::bail;

/// Where a source's jobs are.
#[derive(Clone, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(Debug))]
pub enum Place {
    /// The file of a SQLite database.
    Sqlite(PathBuf),
    /// The URL of a database of MySQL or MariaDB, which may have a password.
    MySql(String),
    /// The URL of a database of PostgreSQL, which may have a password.
    Postgres(String),
    /// The URL of a server of Redis or Valkey, which may have a password.
    Redis(String),
    /// The URL of a server of RabbitMQ, which may have a password.
    Amqp(String),
    /// The URL of queues of SQS without their names; empty for those of the environment's account
    /// and region.
    Sqs(String),
}

impl Place {
    /// Reads `sqlite:FILE`, relative to the project, or the URL of a server.
    pub fn read(source: &str, project: &Path) -> anyhow::Result<Place> {
        match source.split_once(':') {
            Some(("sqlite", file)) if !file.is_empty() => {
                // `sqlite:///srv/app.sqlite` means the same file as `sqlite:/srv/app.sqlite`.
                let file = file.strip_prefix("//").unwrap_or(file);
                Ok(Place::Sqlite(project.join(file)))
            }
            Some(("mysql" | "mariadb", rest)) => Ok(Place::MySql(format!("mysql:{rest}"))),
            Some(("postgres" | "postgresql" | "pgsql", rest)) => {
                Ok(Place::Postgres(format!("postgresql:{rest}")))
            }
            Some(("redis" | "rediss" | "redis+unix" | "valkey" | "valkeys" | "valkey+unix", _)) => {
                Ok(Place::Redis(source.into()))
            }
            Some(("amqp" | "amqps", _)) => Ok(Place::Amqp(source.into())),
            Some(("sqs", "")) => Ok(Place::Sqs(String::new())),
            Some(("https" | "http", _)) => Ok(Place::Sqs(source.into())),
            // It may have a password.
            _ => bail!(
                "queue.source begins with {:?}; expected sqlite:FILE, sqs: or a URL that begins \
                 with mysql://, postgresql://, redis://, amqp:// or https:// (SQS), such as \
                 \"sqlite:database/database.sqlite\" or \"redis://127.0.0.1:6379\"",
                source.split(':').next().unwrap_or_default()
            ),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn source_names_a_file_of_the_project_or_a_server() {
        let project = Path::new("/srv/app");
        for (source, file) in [
            ("sqlite:database/a.sqlite", "/srv/app/database/a.sqlite"),
            ("sqlite:/var/a.sqlite", "/var/a.sqlite"),
            ("sqlite:///var/a.sqlite", "/var/a.sqlite"),
        ] {
            let place = Place::read(source, project).unwrap();
            assert_eq!(place, Place::Sqlite(file.into()), "{source}");
        }
        let mysql = Place::read("mariadb://u:p@h/app", project).unwrap();
        assert_eq!(mysql, Place::MySql("mysql://u:p@h/app".into()));
        for scheme in ["postgres", "postgresql", "pgsql"] {
            let place = Place::read(&format!("{scheme}://h/app"), project).unwrap();
            assert_eq!(place, Place::Postgres("postgresql://h/app".into()));
        }
        for (source, base) in [("sqs:", ""), ("https://sqs.x/1", "https://sqs.x/1")] {
            let place = Place::read(source, project).unwrap();
            assert_eq!(place, Place::Sqs(base.into()));
        }
        for source in ["sqlite:", "database.sqlite", "oracle://a:secret@b"] {
            let error = Place::read(source, project).unwrap_err().to_string();
            assert!(error.contains("queue.source"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
