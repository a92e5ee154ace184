//! Laravel's tables in a database.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::database::{Client, Kind, Server};

pub struct Table {
    pub kind: Kind,
    /// What `queue.source` says.
    pub source: String,
    /// The file of SQLite, or the database's name on its server.
    pub name: String,
    pub server: Option<Arc<Server>>,
    client: Client,
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
    /// Creates the tables as Laravel's migrations do: in a new file of a directory, or in a new
    /// database of a server.
    pub fn create(kind: Kind, directory: &Path) -> Table {
        match kind {
            Kind::Sqlite => Table::in_file(&directory.join("jobs.sqlite")),
            _ => {
                let server = Server::shared(kind);
                let mut table = Table::on(&server);
                table.server = Some(server);
                table
            }
        }
    }

    fn in_file(file: &Path) -> Table {
        let name = file.to_str().unwrap().to_string();
        Table::new(Kind::Sqlite, format!("sqlite:{name}"), name.clone(), &name)
    }

    /// Creates them on a server that the test may kill.
    pub fn on(server: &Server) -> Table {
        let name = server.create();
        let url = server.url(&name);
        Table::new(server.kind, url.clone(), name, &url)
    }

    fn new(kind: Kind, source: String, name: String, to: &str) -> Table {
        let client = Client::connect(kind, to).unwrap();
        client.run(match kind {
            Kind::Sqlite => SQLITE,
            Kind::MySql => MYSQL,
            Kind::Postgres => POSTGRES,
        });
        Table {
            kind,
            source,
            name,
            server: None,
            client,
        }
    }

    /// Connects again, after the server has been killed.
    pub fn connect_again(&mut self) {
        self.client = Client::connect(self.kind, &self.source).unwrap();
    }

    pub fn push(&self, queue: &str, payload: &str) -> i64 {
        self.push_at(queue, payload, now())
    }

    pub fn push_at(&self, queue: &str, payload: &str, available_at: i64) -> i64 {
        let (payload, now) = (payload.replace('\'', "''"), now());
        self.client.run(&format!(
            "insert into jobs (queue, payload, attempts, available_at, created_at) \
             values ('{queue}', '{payload}', 0, {available_at}, {now})"
        ));
        let id = match self.kind {
            Kind::Sqlite => "select last_insert_rowid()",
            Kind::MySql => "select last_insert_id()",
            Kind::Postgres => "select lastval()",
        };
        self.client.rows(id)[0][0].parse().unwrap()
    }

    pub fn rows(&self) -> Vec<Row> {
        let sql = "select id, attempts, case when reserved_at is null then 0 else 1 end, \
                   available_at from jobs order by id";
        let rows = self.client.rows(sql).into_iter().map(|row| {
            let number = |column: usize| row[column].parse::<i64>().unwrap();
            Row {
                id: number(0),
                attempts: number(1),
                is_reserved: number(2) == 1,
                available_at: number(3),
            }
        });
        rows.collect()
    }

    pub fn is_empty(&self) -> bool {
        self.rows().is_empty()
    }

    /// Queue, payload and exception of the failed jobs.
    pub fn failed(&self) -> Vec<(String, String, String)> {
        let sql = "select queue, payload, exception from failed_jobs order by id";
        let rows = self.client.rows(sql).into_iter().map(|row| {
            let mut cells = row.into_iter();
            let mut next = || cells.next().unwrap();
            (next(), next(), next())
        });
        rows.collect()
    }

    pub fn run(&self, sql: &str) {
        self.client.run(sql);
    }

    pub fn ask(&self, sql: &str) -> Vec<Vec<String>> {
        self.client.rows(sql)
    }
}

pub fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap().as_secs() as i64
}

const SQLITE: &str = "
    create table if not exists jobs (id integer not null primary key autoincrement,
        queue varchar not null, payload text not null, attempts integer not null,
        reserved_at integer, available_at integer not null, created_at integer not null);
    create index if not exists jobs_queue_index on jobs (queue);
    create table if not exists failed_jobs (id integer not null primary key autoincrement,
        uuid varchar not null, connection text not null, queue text not null,
        payload text not null, exception text not null,
        failed_at datetime not null default CURRENT_TIMESTAMP);
    create unique index if not exists failed_jobs_uuid_unique on failed_jobs (uuid);";

const MYSQL: &str = "
    create table jobs (id bigint unsigned not null auto_increment primary key,
        queue varchar(255) not null, payload longtext not null,
        attempts tinyint unsigned not null, reserved_at int unsigned,
        available_at int unsigned not null, created_at int unsigned not null,
        index jobs_queue_index (queue)) default character set utf8mb4;
    create table failed_jobs (id bigint unsigned not null auto_increment primary key,
        uuid varchar(255) not null unique, connection text not null, queue text not null,
        payload longtext not null, exception longtext not null,
        failed_at timestamp not null default current_timestamp) default character set utf8mb4;";

const POSTGRES: &str = "
    create table jobs (id bigserial primary key, queue varchar(255) not null,
        payload text not null, attempts smallint not null, reserved_at integer,
        available_at integer not null, created_at integer not null);
    create index jobs_queue_index on jobs (queue);
    create table failed_jobs (id bigserial primary key, uuid varchar(255) not null unique,
        connection text not null, queue text not null, payload text not null,
        exception text not null,
        failed_at timestamp(0) without time zone not null default current_timestamp);";
