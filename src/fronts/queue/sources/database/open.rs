//! Selects the connection, the tables and the watch of a database.

use std::sync::mpsc::Sender;

use super::connection::Connection;
use super::job_table::JobTable;
use super::messenger::MessengerTable;
use super::tables::OpenTables;
use super::{Request, Tables};
use crate::fronts::queue::sources::Place;

/// Opens a connection.
pub fn open(place: &Place) -> anyhow::Result<Box<dyn Connection>> {
    match place {
        #[cfg(feature = "sqlite")]
        Place::Sqlite(file) => Ok(Box::new(super::sqlite::Sqlite::open(file)?)),
        #[cfg(feature = "mysql")]
        Place::MySql(url) => Ok(Box::new(super::mysql::MySql::open(url)?)),
        #[cfg(feature = "postgres")]
        Place::Postgres(url) => Ok(Box::new(super::postgres::Postgres::open(url)?)),
        _ => anyhow::bail!(
            "this surus is built without this database; build it with the feature `sqlite`, \
             `mysql` or `postgres`"
        ),
    }
}

/// Opens a connection, and checks the tables.
pub fn tables(place: &Place, tables: &Tables) -> anyhow::Result<Box<dyn JobTable>> {
    let connection = open(place)?;
    Ok(match tables {
        Tables::Laravel {
            jobs,
            failed,
            max_payload,
        } => Box::new(OpenTables::open(connection, jobs, failed, *max_payload)?),
        Tables::Messenger {
            table,
            zone,
            max_payload,
        } => Box::new(MessengerTable::open(connection, table, zone, *max_payload)?),
    })
}

/// A guard that ends the watch of a database when it is dropped.
pub type Watch = Box<dyn Send + Sync>;

/// Reports changes of a database as far as it tells them.
#[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
pub fn watch(place: &Place, channel: &str, changes: Sender<Request>) -> Watch {
    match place {
        #[cfg(feature = "sqlite")]
        Place::Sqlite(file) => Box::new(super::sqlite::watch(file, changes)),
        #[cfg(feature = "postgres")]
        Place::Postgres(url) => Box::new(super::postgres::watch(url, channel, changes)),
        _ => Box::new(()),
    }
}
