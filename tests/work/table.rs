//! Laravel's tables in a SQLite database.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, params};

pub struct Table {
    pub file: PathBuf,
    connection: Connection,
}

/// A row of `jobs`.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub id: i64,
    pub attempts: i64,
    pub is_reserved: bool,
    pub available_at: i64,
}

impl Table {
    /// Creates the tables as Laravel's migrations do.
    pub fn create(file: &Path) -> Table {
        let connection = Connection::open(file).unwrap();
        connection.busy_timeout(Duration::from_secs(20)).unwrap();
        let tables = "create table if not exists jobs (id integer not null primary key \
            autoincrement, \
             queue varchar not null, payload text not null, attempts integer not null, \
             reserved_at integer, available_at integer not null, created_at integer not null);
             create index if not exists jobs_queue_index on jobs (queue);
             create table if not exists failed_jobs (id integer not null primary key \
             autoincrement, \
             uuid varchar not null, connection text not null, queue text not null, \
             payload text not null, exception text not null, \
             failed_at datetime not null default CURRENT_TIMESTAMP);
             create unique index if not exists failed_jobs_uuid_unique on failed_jobs (uuid);";
        connection.execute_batch(tables).unwrap();
        Table {
            file: file.into(),
            connection,
        }
    }

    pub fn push(&self, queue: &str, payload: &str) -> i64 {
        self.push_at(queue, payload, now())
    }

    pub fn push_at(&self, queue: &str, payload: &str, available_at: i64) -> i64 {
        let sql = "insert into jobs (queue, payload, attempts, available_at, created_at) \
             values (?, ?, 0, ?, ?)";
        let row = params![queue, payload, available_at, now()];
        self.connection.execute(sql, row).unwrap();
        self.connection.last_insert_rowid()
    }

    pub fn rows(&self) -> Vec<Row> {
        let sql =
            "select id, attempts, reserved_at is not null, available_at from jobs order by id";
        let mut select = self.connection.prepare(sql).unwrap();
        let rows = select.query_map([], |row| {
            Ok(Row {
                id: row.get(0)?,
                attempts: row.get(1)?,
                is_reserved: row.get(2)?,
                available_at: row.get(3)?,
            })
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.rows().is_empty()
    }

    /// Queue, payload and exception of the failed jobs.
    pub fn failed(&self) -> Vec<(String, String, String)> {
        let sql = "select queue, payload, exception from failed_jobs order by id";
        let mut select = self.connection.prepare(sql).unwrap();
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        rows.unwrap().map(Result::unwrap).collect()
    }

    pub fn run(&self, sql: &str) {
        self.connection.execute_batch(sql).unwrap();
    }
}

pub fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap().as_secs() as i64
}
