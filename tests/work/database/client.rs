//! Asks a database as a producer or an operator does.

use std::cell::RefCell;
use std::error::Error;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use rusqlite::types::ValueRef;
use tokio::runtime::Runtime;
use tokio_postgres::SimpleQueryMessage;

use super::Kind;

pub enum Client {
    Sqlite(rusqlite::Connection),
    MySql(Runtime, RefCell<mysql_async::Conn>),
    Postgres(Runtime, tokio_postgres::Client),
}

impl Client {
    /// Connects to a URL, or opens a file.
    pub fn connect(kind: Kind, to: &str) -> Result<Client, Box<dyn Error>> {
        if kind == Kind::Sqlite {
            let connection = rusqlite::Connection::open(to)?;
            connection.busy_timeout(Duration::from_secs(20))?;
            return Ok(Client::Sqlite(connection));
        }
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build()?;
        if kind == Kind::MySql {
            let options = mysql_async::Opts::from_url(to)?;
            let options = mysql_async::OptsBuilder::from_opts(options)
                .prefer_socket(false)
                // Texts and names as in the other databases.
                .setup(vec!["set sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES'"]);
            let connection = runtime.block_on(mysql_async::Conn::new(options))?;
            return Ok(Client::MySql(runtime, RefCell::new(connection)));
        }
        let connecting = tokio_postgres::connect(to, tokio_postgres::NoTls);
        let (client, connection) = runtime.block_on(connecting)?;
        runtime.spawn(connection);
        Ok(Client::Postgres(runtime, client))
    }

    pub fn run(&self, sql: &str) {
        let ran = match self {
            Client::Sqlite(connection) => connection.execute_batch(sql).map_err(Into::into),
            Client::MySql(runtime, connection) => runtime
                .block_on(connection.borrow_mut().query_drop(sql))
                .map_err(Into::into),
            Client::Postgres(runtime, client) => runtime
                .block_on(client.batch_execute(sql))
                .map_err(Box::<dyn Error>::from),
        };
        ran.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The rows of a result as text.
    pub fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        match self {
            Client::Sqlite(connection) => {
                // PHP makes tables when it first needs them.
                let mut select = match connection.prepare(sql) {
                    Err(error) if error.to_string().contains("no such table") => return Vec::new(),
                    select => select.unwrap(),
                };
                let columns = select.column_count();
                let rows = select.query_map([], |row| {
                    let cell = |column| {
                        Ok(match row.get_ref(column)? {
                            ValueRef::Integer(number) => number.to_string(),
                            other => String::from_utf8_lossy(other.as_bytes()?).into_owned(),
                        })
                    };
                    (0..columns).map(cell).collect()
                });
                rows.unwrap().map(Result::unwrap).collect()
            }
            Client::MySql(runtime, connection) => {
                let mut connection = connection.borrow_mut();
                let rows: Vec<mysql_async::Row> = runtime.block_on(connection.query(sql)).unwrap();
                let cell = |value| match value {
                    mysql_async::Value::Bytes(bytes) => String::from_utf8(bytes).unwrap(),
                    other => panic!("{other:?}"),
                };
                let rows = rows.into_iter().map(|row| row.unwrap());
                rows.map(|row| row.into_iter().map(cell).collect())
                    .collect()
            }
            Client::Postgres(runtime, client) => {
                let messages = runtime.block_on(client.simple_query(sql)).unwrap();
                let rows = messages.into_iter().filter_map(|message| match message {
                    SimpleQueryMessage::Row(row) => {
                        let cells = (0..row.len()).map(|at| row.get(at).unwrap().to_string());
                        Some(cells.collect())
                    }
                    _ => None,
                });
                rows.collect()
            }
        }
    }
}
