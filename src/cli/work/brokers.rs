//! Opens the brokers of queues, as `surus.toml` or the Laravel application names them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tracing::info;

use super::laravel::Application;
use crate::fronts::queue::front::Lane;
use crate::fronts::queue::sources::Place;
use crate::fronts::queue::sources::sqlite::{Database, SqliteQueue, Tables};
use crate::fronts::queue::{Format, Queue};

/// The lease of a queue that names none.
const LEASE: Duration = Duration::from_secs(90);

/// Databases that are open, each once.
pub struct Brokers {
    project: PathBuf,
    databases: HashMap<(PathBuf, Tables), Arc<Database>>,
}

impl Brokers {
    pub fn new(project: &Path) -> Brokers {
        Brokers {
            project: project.to_path_buf(),
            databases: HashMap::new(),
        }
    }

    /// Opens the broker of a queue.
    pub fn lane(
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
        let prefixed = |table: &str| {
            let prefix = own.and_then(|it| it.database.as_ref());
            format!("{}{table}", prefix.map_or("", |it| &it.prefix))
        };
        let table = queue.table.clone();
        let failed = queue.failed_table.clone();
        let tables = Tables {
            jobs: table.unwrap_or_else(|| {
                prefixed(own.and_then(|it| it.table.as_deref()).unwrap_or("jobs"))
            }),
            failed: failed.unwrap_or_else(|| {
                let named = own.and_then(|it| it.failed_table.as_deref());
                prefixed(named.unwrap_or("failed_jobs"))
            }),
        };
        let retry_after = own.and_then(|it| it.retry_after).map(Duration::from_secs);
        let lease = queue
            .lease
            .map(|lease| lease.0)
            .or(retry_after)
            .unwrap_or(LEASE);
        let connection = application
            .map_or("database", |it| &it.connection)
            .to_string();
        let Place::Sqlite(file) = place;
        info!(
            queue = queue.name,
            source = %file.display(),
            weight = queue.weight,
            "queue"
        );
        let key = (file, tables);
        let database = match self.databases.get(&key) {
            Some(database) => database.clone(),
            None => {
                let opened = Database::open(&key.0, &key.1)
                    .with_context(|| format!("queue {}", queue.name))?;
                self.databases.insert(key, opened.clone());
                opened
            }
        };
        let source = Arc::new(SqliteQueue {
            database,
            name: queue.name.as_str().into(),
            connection: connection.as_str().into(),
            lease: lease.max(Duration::from_secs(3)),
            moves_released: queue.format() == Format::Laravel,
        });
        Ok(Lane {
            lease: source.lease,
            source,
            queue,
            connection,
        })
    }
}

/// The broker of the application's own queue connection.
fn place(application: &Application, project: &Path) -> anyhow::Result<Place> {
    let (name, driver) = (&application.connection, &application.driver);
    if driver != "database" {
        bail!(
            "the application's queue connection {name:?} has the driver {driver:?}; surus work \
             serves the driver database with SQLite (QUEUE_CONNECTION, config/queue.php)"
        );
    }
    match &application.database {
        Some(database) if database.driver == "sqlite" => {
            Ok(Place::Sqlite(project.join(&database.database)))
        }
        Some(database) => bail!(
            "the application's queue connection {name:?} is in a database of the driver {:?}; \
             surus work serves sqlite",
            database.driver
        ),
        None => bail!("the application's queue connection {name:?} names no database"),
    }
}
