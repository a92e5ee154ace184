//! The interface of a database: statements with values, and its SQL dialect.

use std::time::Duration;

/// A value of a statement.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    #[cfg_attr(not(feature = "mysql"), allow(dead_code))]
    Null,
    Number(i64),
    /// Bytes, because SQLite keeps payloads that are not UTF-8.
    Text(&'a [u8]),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Value<'a> {
        Value::Text(text.as_bytes())
    }
}

/// The columns of a row as text; None for NULL.
pub type Row = Vec<Option<Vec<u8>>>;

/// A connection that its thread alone uses. One that has failed is opened again by the next
/// statement.
pub trait Connection {
    fn dialect(&self) -> &'static Dialect;

    /// Where the database is, without its password.
    fn name(&self) -> String;

    /// Runs a query, whose placeholders are `?`.
    fn query(&mut self, sql: &str, values: &[Value<'_>]) -> anyhow::Result<Vec<Row>>;

    /// Changes rows, and returns how many match.
    fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> anyhow::Result<u64>;

    /// Runs a statement that has no values and no result.
    fn run(&mut self, sql: &str) -> anyhow::Result<()>;

    /// Ends a transaction that has failed.
    fn roll_back(&mut self) -> anyhow::Result<()>;

    /// The names and types of a table's columns; none if there is no such table.
    fn columns(&mut self, table: &str) -> anyhow::Result<Vec<(String, String)>>;
}

/// How the SQL of databases differs.
pub struct Dialect {
    /// Begins a transaction that writes.
    pub begin: &'static str,
    /// Ends a query whose rows the transaction changes next, and leaves out rows that others
    /// change.
    pub lock: &'static str,
    /// The smaller of two numbers.
    pub least: &'static str,
    /// The type of texts in casts.
    pub text: &'static str,
    /// The time of a failed job.
    pub utc: &'static str,
    pub quoted: fn(table: &str) -> String,
    /// Whether changes are reported. Otherwise the database is polled more often.
    pub is_watched: bool,
}

impl Dialect {
    /// How often a database is polled without a sign of a change. A watch does not see other
    /// machines, and clocks may jump.
    pub fn poll_interval(&self) -> Duration {
        match self.is_watched {
            true => Duration::from_secs(1),
            false => Duration::from_millis(250),
        }
    }
}

/// The name and the type of a column, from a row that has just them.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub fn column(row: Row) -> anyhow::Result<(String, String)> {
    let mut cells = row.into_iter().map(Option::unwrap_or_default);
    let mut text = || String::from_utf8(cells.next().unwrap_or_default());
    Ok((text()?, text()?))
}

/// A name with its schema or database, quoted.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub fn quoted(table: &str, quote: char) -> String {
    let doubled = format!("{quote}{quote}");
    let parts = table.split('.');
    let parts = parts.map(|part| format!("{quote}{}{quote}", part.replace(quote, &doubled)));
    parts.collect::<Vec<_>>().join(".")
}
