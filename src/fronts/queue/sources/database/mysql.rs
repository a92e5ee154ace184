//! Client of MySQL and MariaDB.

use anyhow::{Context, anyhow, bail};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, SslOpts};

use super::connection::{Connection, Dialect, Row, Value, quoted};
use super::server::{Calls, is_older};

const DIALECT: Dialect = Dialect {
    begin: "begin",
    lock: " for update skip locked",
    least: "least",
    text: "char",
    utc: "utc_timestamp()",
    quoted: |table| quoted(table, '`'),
    is_watched: false,
};

/// The first versions with SKIP LOCKED.
const OLDEST_MYSQL: [u32; 3] = [8, 0, 1];
const OLDEST_MARIADB: [u32; 3] = [10, 6, 0];
/// Without the locks of gaps, with which workers and producers would end in deadlocks.
const ISOLATION: &str = "set session transaction isolation level read committed";

pub struct MySql {
    calls: Calls,
    options: Opts,
    open: Option<Conn>,
}

impl MySql {
    pub fn open(url: &str) -> anyhow::Result<MySql> {
        // The URL has a password, so no message repeats it.
        let options = Opts::from_url(url).map_err(|error| {
            anyhow!(
                "queue.source is not the URL of a MySQL server: {error}; expected \
                 mysql://USER:PASSWORD@HOST:PORT/DATABASE"
            )
        })?;
        let tls = options.ssl_opts().cloned().map(with_system_authorities);
        let options = OptsBuilder::from_opts(options)
            .ssl_opts(tls)
            // An extension within the same second changes nothing, and must not count as lost.
            .client_found_rows(true)
            .prefer_socket(false)
            .setup(vec![ISOLATION]);
        let mut mysql = MySql {
            calls: Calls::new()?,
            options: options.into(),
            open: None,
        };
        let name = mysql.name();
        let rows = mysql.query("select version()", &[]).with_context(|| {
            format!(
                "cannot use the database {name}; check that it runs, and its address and password \
                 (queue.source, or DB_HOST, DB_PASSWORD and the like)"
            )
        })?;
        let version = rows.into_iter().flatten().next().flatten();
        let version = String::from_utf8(version.unwrap_or_default())?;
        let oldest = match version.contains("MariaDB") {
            true => OLDEST_MARIADB,
            false => OLDEST_MYSQL,
        };
        if is_older(&version, oldest) {
            bail!(
                "the database {name} has the version {version}; surus work needs MySQL 8.0.1 or \
                 MariaDB 10.6, or newer"
            );
        }
        Ok(mysql)
    }

    /// Asks the server, and connects to it first if necessary. After any error the next call
    /// connects again, which also ends a transaction.
    fn ask<T>(
        &mut self,
        ask: impl AsyncFnOnce(&mut Conn) -> mysql_async::Result<T>,
    ) -> anyhow::Result<T> {
        let (open, options) = (&mut self.open, &self.options);
        let answer = self.calls.wait(async {
            let connection = match open {
                Some(connection) => connection,
                None => open.insert(Conn::new(options.clone()).await?),
            };
            ask(connection).await
        });
        if answer.is_err() {
            self.open = None;
        }
        answer
    }
}

impl Connection for MySql {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn name(&self) -> String {
        let options = &self.options;
        let database = options.db_name().unwrap_or_default();
        match options.socket() {
            Some(socket) => format!("mysql {socket}/{database}"),
            None => {
                let (host, port) = (options.ip_or_hostname(), options.tcp_port());
                format!("mysql {host}:{port}/{database}")
            }
        }
    }

    fn query(&mut self, sql: &str, values: &[Value<'_>]) -> anyhow::Result<Vec<Row>> {
        let values = parameters(values);
        let read = |row: mysql_async::Row| -> Row { row.unwrap().into_iter().map(cell).collect() };
        self.ask(async move |connection| connection.exec_map(sql, values, read).await)
    }

    fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> anyhow::Result<u64> {
        let values = parameters(values);
        self.ask(async move |connection| {
            connection.exec_drop(sql, values).await?;
            Ok(connection.affected_rows())
        })
    }

    fn run(&mut self, sql: &str) -> anyhow::Result<()> {
        self.ask(async move |connection| connection.query_drop(sql).await)
    }

    fn roll_back(&mut self) -> anyhow::Result<()> {
        self.open = None;
        Ok(())
    }

    fn columns(&mut self, table: &str) -> anyhow::Result<Vec<(String, String)>> {
        let (database, table) = match table.split_once('.') {
            Some((database, table)) => (Value::from(database), table),
            None => (Value::Null, table),
        };
        let sql = "select column_name, column_type from information_schema.columns \
                   where table_schema = coalesce(?, database()) and table_name = ?";
        let rows = self.query(sql, &[database, Value::from(table)])?;
        rows.into_iter().map(super::connection::column).collect()
    }
}

/// The client has a list of authorities built in; the machine's own counts.
fn with_system_authorities(tls: SslOpts) -> SslOpts {
    let certificates = rustls_native_certs::load_native_certs().certs;
    let certificates = certificates.into_iter().map(|it| it.to_vec().into());
    tls.with_disable_built_in_roots(true)
        .with_root_certs(certificates.collect())
}

fn parameters(values: &[Value<'_>]) -> mysql_async::Params {
    let values = values.iter().map(|value| match value {
        Value::Null => mysql_async::Value::NULL,
        Value::Number(number) => mysql_async::Value::Int(*number),
        Value::Text(bytes) => mysql_async::Value::Bytes(bytes.to_vec()),
    });
    match values.len() {
        0 => mysql_async::Params::Empty,
        _ => mysql_async::Params::Positional(values.collect()),
    }
}

fn cell(value: mysql_async::Value) -> Option<Vec<u8>> {
    match value {
        mysql_async::Value::NULL => None,
        mysql_async::Value::Bytes(bytes) => Some(bytes),
        mysql_async::Value::Int(number) => Some(number.to_string().into_bytes()),
        mysql_async::Value::UInt(number) => Some(number.to_string().into_bytes()),
        // Times are asked for as text.
        other => Some(other.as_sql(false).into_bytes()),
    }
}
