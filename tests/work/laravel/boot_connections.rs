//! Tests jobs of an application whose provider connects to servers and databases while it boots.

use std::net::TcpListener;

use super::super::database::{Kind, in_each_database};
use super::super::operate::metrics;
use super::super::redis::Redis;
use super::super::site::framework;
use super::{Laravel, debian, runs};

/// A provider that does what the environment says.
pub const CLASS: (&str, &str) = (
    "Boots",
    r#"final class Boots extends \Illuminate\Support\ServiceProvider
{
    public function boot(): void
    {
        match (getenv('BOOTS')) {
            'query' => $this->app['db']->table('failed_jobs')->count(),
            'library' => $this->loads($this->app['db']),
            'setting' => $this->app['db']->statement('PRAGMA cache_size = 100'),
            'redis' => $this->app['redis']->connection()->get('booted'),
            'socket' => $this->app->instance('socket', stream_socket_client(getenv('SOCKET'))),
            false => null,
        };
    }

    private function loads(object $db): void
    {
        $body = 'BEGIN RETURN 1; END';
        $db->getPdo()->exec(
            "CREATE OR REPLACE FUNCTION one() RETURNS int LANGUAGE plpgsql AS '$body'"
        );
        $db->select('SELECT one()');
    }
}"#,
);

/// Runs jobs, none of which costs a worker, and returns the log.
fn log_of_jobs(laravel: &Laravel, is_empty: impl Fn() -> bool) -> String {
    laravel.push(&["well", "fail", "well"]);
    let work = laravel.start(&["--workers", "1"]);
    work.wait_until(is_empty);
    let notes = laravel.notes();
    assert_eq!(runs(&notes, "well"), 2, "{notes:?}");
    assert_eq!(laravel.table.failed().len(), 1, "{}", work.log());
    let metrics = metrics(&work);
    assert!(!metrics.contains("replaced_descriptor"), "{metrics}");
    work.log()
}

in_each_database! {
    jobs_run_if_a_provider_queries_the_database
}

fn jobs_run_if_a_provider_queries_the_database(kind: Kind) {
    for libraries in [debian(), framework("laravel13")] {
        let mut laravel = Laravel::on(kind, &libraries);
        laravel.set("BOOTS", "query");
        let log = log_of_jobs(&laravel, || laravel.table.is_empty());
        assert!(!log.contains("stays open"), "{log}");
    }
}

/// The library has settings of its own, which a new connection has not loaded.
#[test]
fn jobs_run_if_a_query_of_the_boot_loads_a_library_of_postgresql() {
    let mut laravel = Laravel::on(Kind::Postgres, &debian());
    laravel.set("BOOTS", "library");
    let log = log_of_jobs(&laravel, || laravel.table.is_empty());
    assert!(!log.contains("stays open"), "{log}");
}

#[test]
fn jobs_run_if_a_provider_uses_redis() {
    let redis = Redis::start();
    let mut laravel = Laravel::on_redis(&debian(), redis.port);
    laravel.set("BOOTS", "redis");
    log_of_jobs(&laravel, || redis.is_empty("app_queues:mails"));
}

/// The jobs use it, and do not close it.
#[test]
fn connection_that_stays_open_replaces_no_worker() {
    for libraries in [debian(), framework("laravel13")] {
        let mut laravel = Laravel::new(&libraries);
        laravel.set("BOOTS", "setting");
        let log = log_of_jobs(&laravel, || laravel.table.is_empty());
        let reason = "database connection app stays open: it may depend on PRAGMA cache_size";
        assert!(log.contains(reason), "{log}");
    }
}

/// Waits for the next minute.
#[test]
fn events_run_if_a_provider_queries_the_database() {
    let mut laravel = Laravel::on(Kind::MySql, &debian());
    laravel.set("BOOTS", "query");
    laravel.set("QUEUE_CONNECTION", "sync");
    let work = laravel.start(&["--schedule"]);
    work.wait_for_minutes(2, || laravel.notes().iter().any(|note| note == "called"));
}

#[test]
fn refused_boot_names_engines_that_run_the_jobs() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let mut laravel = Laravel::new(&debian());
    laravel.set("BOOTS", "socket");
    laravel.set("SOCKET", &format!("tcp://{address}"));
    let mut work = laravel.spawn(&[]);
    assert_eq!(work.wait().code(), Some(1), "{}", work.log());
    let refused = format!("the boot leaves a connection to {address} open");
    let remedy = "run the jobs on `worker` or `classic` (pool.work.engine, or --engine";
    work.wait_for_log(|log| log.contains(&refused) && log.contains(remedy));
    for engine in ["worker", "classic"] {
        laravel.push(&["well"]);
        let work = laravel.start(&["--workers", "1", "--engine", engine]);
        work.wait_until(|| laravel.table.is_empty());
    }
    assert_eq!(runs(&laravel.notes(), "well"), 2);
}
