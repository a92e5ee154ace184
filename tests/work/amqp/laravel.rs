//! Laravel's jobs in RabbitMQ, as a package for Laravel publishes them: decided by Laravel.

use std::fs;

use super::super::laravel::{Laravel, debian};
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
        let mut runs = [
            "well, attempt 1",
            "throw, attempt 1",
            "release, attempt 1",
            "fail, attempt 1",
            "fail failed: failed by the job",
            "well, attempt 1",
            "throw, attempt 2",
            "throw failed: thrown by the job",
            "release, attempt 2",
        ]
        .map(str::to_string);
        work.wait_until(|| laravel.notes().len() >= runs.len());
        work.wait_until(|| laravel.table.failed().len() == 2);
        work.end();
        let mut noted = laravel.notes();
        let of_queue = format!(" of jobs/{queue}");
        for note in &mut noted {
            let run = note.split(&of_queue).next().unwrap().len();
            note.truncate(run);
        }
        noted.sort();
        runs.sort();
        assert_eq!(noted, runs, "{kind:?}");
        assert!(broker.take(&queue).is_empty(), "{kind:?}");
        assert!(
            broker.take(&format!("{queue}.failed")).is_empty(),
            "{kind:?}"
        );
    }
}
