//! The file of a SQLite database.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context, bail};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{OpenFlags, Statement, ToSql, params_from_iter};
use surus_sys::watch::DirectoryWatch;
use tracing::warn;

use super::Request;
use super::connection::{Connection, Dialect, Row, Value};

/// How long to wait for another process that writes.
const TIMEOUT: Duration = Duration::from_secs(5);

const DIALECT: Dialect = Dialect {
    // A transaction that began as a reader could not become a writer.
    begin: "begin immediate",
    lock: "",
    least: "min",
    text: "text",
    utc: "datetime('now')",
    quoted: |table| format!("\"{}\"", table.replace('"', "\"\"")),
    is_watched: true,
};

pub struct Sqlite {
    file: PathBuf,
    connection: rusqlite::Connection,
}

impl Sqlite {
    pub fn open(file: &Path) -> anyhow::Result<Sqlite> {
        let path = file.display();
        let file = file.canonicalize().with_context(|| {
            format!(
                "cannot open {path}; create the database, for example with `php artisan migrate`"
            )
        })?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = rusqlite::Connection::open_with_flags(&file, flags)
            .with_context(|| format!("cannot open the database {path}"))?;
        connection.busy_timeout(TIMEOUT)?;
        // `synchronous` stays FULL, the default. With NORMAL, a power failure can undo commits to a
        // write-ahead log (https://www.sqlite.org/pragma.html#pragma_synchronous). A job with one
        // try would then run twice, because its reservation and its try are lost.
        Ok(Sqlite { file, connection })
    }
}

impl Connection for Sqlite {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn name(&self) -> String {
        self.file.display().to_string()
    }

    fn query(&mut self, sql: &str, values: &[Value<'_>]) -> anyhow::Result<Vec<Row>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        query(&mut statement, values)
    }

    fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> anyhow::Result<u64> {
        let mut statement = self.connection.prepare_cached(sql)?;
        Ok(statement.execute(params_from_iter(values))? as u64)
    }

    fn run(&mut self, sql: &str) -> anyhow::Result<()> {
        Ok(self.connection.execute_batch(sql)?)
    }

    fn roll_back(&mut self) -> anyhow::Result<()> {
        match self.connection.is_autocommit() {
            true => Ok(()),
            false => self.run("rollback"),
        }
    }

    fn columns(&mut self, table: &str) -> anyhow::Result<Vec<(String, String)>> {
        if table.contains('\0') {
            bail!("a table's name has a NUL byte");
        }
        let sql = "select name, type from pragma_table_info(?)";
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

fn query(statement: &mut Statement<'_>, values: &[Value<'_>]) -> anyhow::Result<Vec<Row>> {
    let columns = statement.column_count();
    let mut rows = statement.query(params_from_iter(values))?;
    let mut read = Vec::new();
    while let Some(row) = rows.next()? {
        let cells = (0..columns).map(|column| {
            Ok(match row.get_ref(column)? {
                ValueRef::Null => None,
                ValueRef::Integer(number) => Some(number.to_string().into_bytes()),
                ValueRef::Real(number) => Some(number.to_string().into_bytes()),
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes.to_vec()),
            })
        });
        read.push(cells.collect::<rusqlite::Result<Row>>()?);
    }
    Ok(read)
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Number(number) => ToSqlOutput::from(*number),
            Value::Text(bytes) => ToSqlOutput::Borrowed(ValueRef::Text(bytes)),
        })
    }
}

/// Ends the watch of a database when it is dropped.
pub struct WatchGuard(Arc<DirectoryWatch>);

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Reports writes to a database's files in a thread of its own. Without, the database is polled
/// once a second.
pub fn watch(file: &Path, changes: Sender<Request>) -> Option<WatchGuard> {
    let file = file.canonicalize().ok()?;
    let (directory, name) = (file.parent()?, file.file_name()?);
    let names = [
        name.to_os_string(),
        with(name, "-wal"),
        with(name, "-journal"),
    ];
    let watch = match DirectoryWatch::open(directory) {
        Ok(watch) => Arc::new(watch),
        Err(error) => {
            let directory = directory.display();
            warn!(%directory, %error, "cannot watch for new jobs; they begin up to a second later");
            return None;
        }
    };
    let guard = WatchGuard(watch.clone());
    let run = move || {
        while let Ok(written) = watch.wait() {
            let is_ours = written.iter().any(|name| names.contains(name));
            if is_ours && changes.send(Request::Changed).is_err() {
                return;
            }
        }
    };
    // Without this thread, the database is polled once a second.
    let _ = std::thread::Builder::new()
        .name("sqlite watch".into())
        .spawn(run);
    Some(guard)
}

fn with(name: &OsStr, end: &str) -> OsString {
    let mut name = name.to_os_string();
    name.push(end);
    name
}
