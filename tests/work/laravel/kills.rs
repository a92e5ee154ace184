//! Kills workers, Surus and Redis while jobs of Laravel run: none is lost.

use std::collections::BTreeSet;
use std::fs;

use super::super::kills::{self, Event};
use super::super::redis::Redis;
use super::{Laravel, debian};

const MAILS: &str = "app_queues:mails";

pub const CLASS: (&str, &str) = (
    "Counted",
    r#"final class Counted extends Noted
{
    public $tries = 0;
    public function handle(): void
    {
        usleep((int) $this->what % 10 * 1000);
        Notes::note("done $this->what");
    }
}"#,
);

/// Pushes as many jobs as its argument says.
pub const COUNTED: &str = r#"<?php
require __DIR__.'/vendor/autoload.php';
$app = require __DIR__.'/bootstrap/app.php';
$app->make(Illuminate\Contracts\Console\Kernel::class)->bootstrap();
$queue = $app->make('queue')->connection();
for ($number = 0; $number < (int) $argv[1]; ++$number) {
    $queue->push(new App\Counted((string) $number));
}
"#;

/// `make test-work` has more jobs.
#[test]
fn killed_processes_lose_no_job_of_laravel() {
    let mut redis = Redis::start();
    let laravel = Laravel::on_redis(&debian(), redis.port);
    let config = "[[queue]]\nname = 'mails'\nlease = '3s'\n[work]\nmax_losses = 100\n";
    fs::write(laravel.site.www().join("surus.toml"), config).unwrap();
    let jobs = kills::jobs(150);
    laravel.run("counted.php", &[&jobs.to_string()]);
    let args = ["--workers", "3"];
    let work = laravel.start(&args);
    let work = kills::at_random(work, jobs / 12, |event| match event {
        Event::Killed => Some(laravel.start(&args)),
        Event::Outage => {
            redis.kill();
            redis.revive();
            None
        }
    });
    work.wait_until_none(|| redis.jobs(MAILS).concat().len());
    let notes: BTreeSet<_> = laravel.notes().into_iter().collect();
    for number in 0..jobs {
        assert!(
            notes.contains(&format!("done {number}")),
            "{number} was lost: {}",
            work.log()
        );
    }
    let failed = laravel.table.failed();
    assert!(failed.is_empty(), "{failed:?}");
}
