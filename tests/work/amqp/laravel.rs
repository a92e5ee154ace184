//! Laravel's jobs in RabbitMQ, as a package for Laravel publishes them: decided by Laravel.

use std::fs;

use super::super::laravel::{Laravel, RUNS, debian};
use super::{Broker, Kind, stays};

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn jobs_of_laravel_run_as_laravel_decides() {
    let _running = stays();
    let broker = Broker::get();
    for kind in [Kind::Classic, Kind::Quorum] {
        let queue = broker.create(kind);
        let laravel = Laravel::new(&debian());
        let config = format!(
            "[[queue]]\nname = '{queue}'\nformat = 'laravel'\n\
             source = 'amqp://guest:guest@127.0.0.1:{}'\n",
            broker.port()
        );
        fs::write(laravel.site.www().join("surus.toml"), config).unwrap();
        // Payloads as Laravel writes them, whatever the broker.
        laravel.push(&["well", "throw", "release", "fail", "well"]);
        for row in laravel.table.ask("select payload from jobs order by id") {
            broker.push(&queue, &row[0]);
        }
        laravel.table.run("delete from jobs");
        let work = laravel.start(&["--workers", "1"]);
        work.wait_until(|| laravel.notes().len() >= RUNS.len());
        work.wait_until(|| laravel.table.failed().len() == 2);
        work.end();
        assert_eq!(laravel.runs(&format!("jobs/{queue}")), RUNS, "{kind:?}");
        assert!(broker.take(&queue).is_empty(), "{kind:?}");
        assert!(
            broker.take(&format!("{queue}.failed")).is_empty(),
            "{kind:?}"
        );
    }
}
