//! Client of PostgreSQL.

mod tls;

use std::error::Error;
use std::future::poll_fn;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

use super::Request;
use super::connection::{Connection, Dialect, Row, Value, quoted};
use super::server::{Calls, is_older};

const DIALECT: Dialect = Dialect {
    begin: "begin",
    lock: " for update skip locked",
    least: "least",
    text: "text",
    utc: "date_trunc('second', now() at time zone 'utc')",
    quoted: |table| quoted(table, '"'),
    is_watched: false,
};

/// The first version with SKIP LOCKED.
const OLDEST: [u32; 3] = [9, 5, 0];
/// How long to wait before listening again after the server has closed the connection.
const AGAIN: Duration = Duration::from_secs(5);

pub struct Postgres {
    calls: Calls,
    config: Config,
    open: Option<Client>,
}

impl Postgres {
    pub fn open(url: &str) -> anyhow::Result<Postgres> {
        let mut postgres = Postgres {
            calls: Calls::new()?,
            config: read(url)?,
            open: None,
        };
        let name = postgres.name();
        let rows = postgres.query("show server_version", &[]);
        let rows = rows.with_context(|| {
            format!(
                "cannot use the database {name}; check that it runs, and its address and password \
                 (queue.source, or DB_HOST, DB_PASSWORD and the like); sslmode=require uses TLS"
            )
        })?;
        let version = rows.into_iter().flatten().next().flatten();
        let version = String::from_utf8(version.unwrap_or_default())?;
        if is_older(&version, OLDEST) {
            bail!(
                "the database {name} has the version {version}; surus work needs PostgreSQL 9.5 \
                 or newer"
            );
        }
        Ok(postgres)
    }

    /// Asks the server, and connects to it first if necessary. After any error the next call
    /// connects again, which also ends a transaction.
    fn ask<T>(
        &mut self,
        ask: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> anyhow::Result<T> {
        let (open, config) = (&mut self.open, &self.config);
        let answer = self.calls.wait(async {
            let client = match open {
                Some(client) => client,
                None => open.insert(connect(config, None).await?.0),
            };
            ask(client).await
        });
        if answer.is_err() {
            self.open = None;
        }
        answer
    }
}

/// Reads a URL, which may have a password, so no message repeats it.
fn read(url: &str) -> anyhow::Result<Config> {
    let wrong = |why: &str| {
        anyhow!(
            "queue.source is not the URL of a PostgreSQL server: {why}; expected \
             postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        )
    };
    let config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        let why = error.source().map(ToString::to_string);
        wrong(&why.unwrap_or_else(|| error.to_string()))
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(wrong("it names no host"));
    }
    Ok(config)
}

/// Connects, with TLS only if the URL requires it. `changes` are told of notifications. The task
/// ends with the connection.
async fn connect(
    config: &Config,
    changes: Option<Sender<Request>>,
) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
    match config.get_ssl_mode() {
        SslMode::Require => {
            let (client, connection) = config.connect(tls::Tls).await?;
            Ok((client, tokio::spawn(drive(connection, changes))))
        }
        _ => {
            let (client, connection) = config.connect(NoTls).await?;
            Ok((client, tokio::spawn(drive(connection, changes))))
        }
    }
}

/// Reads and writes a connection until it ends, or nothing waits for its notifications any more.
async fn drive<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    changes: Option<Sender<Request>>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let (AsyncMessage::Notification(_), Some(changes)) = (message, &changes)
            && changes.send(Request::Changed).is_err()
        {
            return;
        }
    }
}

/// Listens for notifications of new jobs, in a thread and on a connection of its own. Without, the
/// database is polled more rarely. Returns a guard that ends them when it is dropped.
pub fn watch(url: &str, channel: &str, changes: Sender<Request>) -> Option<DropGuard> {
    let config = read(url).ok()?;
    let end = CancellationToken::new();
    let guard = end.clone().drop_guard();
    // Messenger's channel has its table's name, also with a schema.
    let listen = format!("listen \"{}\"", channel.replace('"', "\"\""));
    let run = move || {
        let Ok(calls) = Calls::new() else { return };
        loop {
            let listening = calls.wait(async {
                let (client, driven) = connect(&config, Some(changes.clone())).await?;
                client.batch_execute(&listen).await?;
                Ok::<_, tokio_postgres::Error>((client, driven))
            });
            match listening {
                // The connection ends when its client is dropped.
                Ok((_client, driven)) => drop(calls.run(end.run_until_cancelled(driven))),
                Err(error) => debug!(error = format!("{error:#}"), "cannot listen for new jobs"),
            }
            let pause = async { end.run_until_cancelled(tokio::time::sleep(AGAIN)).await };
            if calls.run(pause).is_none() {
                return;
            }
        }
    };
    // Without this thread, the database is polled four times a second.
    let _ = std::thread::Builder::new()
        .name("postgresql watch".into())
        .spawn(run);
    Some(guard)
}

impl Connection for Postgres {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn name(&self) -> String {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(host) => host.clone(),
            Host::Unix(directory) => directory.display().to_string(),
        });
        let hosts: Vec<_> = hosts.collect();
        let database = self.config.get_dbname().unwrap_or_default();
        format!("postgresql {}/{database}", hosts.join(","))
    }

    fn query(&mut self, sql: &str, values: &[Value<'_>]) -> anyhow::Result<Vec<Row>> {
        let sql = numbered(sql);
        let rows = self.ask(async |client| client.query_typed(&sql, &parameters(values)).await)?;
        let read = |row: tokio_postgres::Row| {
            let cell = |column| {
                let cell: Option<Cell> = row.try_get(column)?;
                Ok(cell.map(|Cell(bytes)| bytes))
            };
            (0..row.len()).map(cell).collect()
        };
        rows.into_iter().map(read).collect()
    }

    fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> anyhow::Result<u64> {
        let sql = numbered(sql);
        self.ask(async |client| client.execute_typed(&sql, &parameters(values)).await)
    }

    fn run(&mut self, sql: &str) -> anyhow::Result<()> {
        self.ask(async |client| client.batch_execute(sql).await)
    }

    fn roll_back(&mut self) -> anyhow::Result<()> {
        self.open = None;
        Ok(())
    }

    fn columns(&mut self, table: &str) -> anyhow::Result<Vec<(String, String)>> {
        let sql = "select cast(attname as text), format_type(atttypid, atttypmod) \
                   from pg_attribute where attrelid = to_regclass(cast(? as text)) \
                   and attnum > 0 and not attisdropped";
        let quoted = quoted(table, '"');
        let rows = self.query(sql, &[Value::from(&*quoted)])?;
        rows.into_iter().map(super::connection::column).collect()
    }
}

/// PostgreSQL numbers its placeholders.
fn numbered(sql: &str) -> String {
    let (mut numbered, mut number, mut is_name) = (String::new(), 0, false);
    for c in sql.chars() {
        is_name ^= c == '"';
        match c {
            '?' if !is_name => {
                number += 1;
                numbered.push_str(&format!("${number}"));
            }
            c => numbered.push(c),
        }
    }
    numbered
}

/// The server knows the types of values from the columns that they are compared with.
fn parameters<'a>(values: &'a [Value<'_>]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    let values = values.iter();
    values
        .map(|value| (value as &(dyn ToSql + Sync), Type::UNKNOWN))
        .collect()
}

type Wrong = Box<dyn Error + Sync + Send>;

impl ToSql for Value<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Wrong> {
        match self {
            Value::Null => return Ok(IsNull::Yes),
            Value::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
            // No text of PostgreSQL has a NUL, which names of anonymous classes have.
            Value::Text(bytes) => out.extend(bytes.iter().filter(|byte| **byte != 0)),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// A result as text.
struct Cell(Vec<u8>);

impl<'a> FromSql<'a> for Cell {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Cell, Wrong> {
        let number = match *kind {
            Type::INT2 => i64::from(i16::from_sql(kind, raw)?),
            Type::INT4 => i64::from(i32::from_sql(kind, raw)?),
            Type::INT8 => i64::from_sql(kind, raw)?,
            _ => return Ok(Cell(raw.to_vec())),
        };
        Ok(Cell(number.to_string().into_bytes()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_numbered_outside_of_names() {
        let sql = r#"select 1 from "a?" where b = ? and c in (?, ?)"#;
        let numbered = numbered(sql);
        assert_eq!(
            numbered,
            r#"select 1 from "a?" where b = $1 and c in ($2, $3)"#
        );
    }
}
