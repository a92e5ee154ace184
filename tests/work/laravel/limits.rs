//! Tests the limits that jobs of Laravel set for themselves: `retryUntil`, `maxExceptions` and
//! `timeout`.

use std::fs;

use super::super::site::framework;
use super::super::work::with_longer_times;
use super::features::application;
use super::runs;

/// A job for each limit.
pub const CLASSES: [(&str, &str); 3] = [
    (
        "Bounded",
        r"final class Bounded extends Noted
{
    public $tries = 10;
    public $maxExceptions = 2;
}",
    ),
    (
        "Lasting",
        r"final class Lasting extends Noted
{
    public $tries = 1;
    public function retryUntil(): int
    {
        return time() + ($this->what === 'broken too late' ? -60 : 3600);
    }
}",
    ),
    (
        "Hanging",
        r"final class Hanging extends Noted
{
    public $tries = 10;
    public $maxExceptions = 1;
    public $timeout;
    public function __construct(string $what)
    {
        parent::__construct($what);
        $this->timeout = (int) getenv('HANG');
    }
    public function handle(): void
    {
        parent::handle();
        sleep(600);
    }
}",
    ),
];

/// Pushes such jobs, and pauses their queue.
pub const LIMITS: &str = r#"<?php
require __DIR__.'/vendor/autoload.php';
$app = require __DIR__.'/bootstrap/app.php';
$app->make(Illuminate\Contracts\Console\Kernel::class)->bootstrap();
$queue = $app->make('queue');
$push = static fn (object $job) => $queue->connection()->push($job);
match ($argv[1]) {
    'push' => array_map($push, [
        new App\Bounded('broken twice'),
        new App\Lasting('broken too late'),
        new App\Lasting('broken in time'),
    ]),
    'hang' => $push(new App\Hanging('hang')),
    'pause' => $queue->pause('jobs', 'mails'),
    'resume' => $queue->resume('jobs', 'mails'),
    'pause schedule' => $app->make('cache.store')->forever('illuminate:schedule:paused', true),
    'resume schedule' => $app->make('cache.store')->forget('illuminate:schedule:paused'),
};
"#;

#[test]
fn retry_until_and_max_exceptions_decide_how_often_a_job_runs() {
    for version in ["laravel10", "laravel13"] {
        let laravel = application(&framework(version));
        laravel.run("limits.php", &["push"]);
        let work = laravel.start(&["--workers", "1"]);
        // Its only try would be the first, were it not in time.
        work.wait_until(|| runs(&laravel.notes(), "broken in time") > 3);
        fs::write(laravel.notes_file().with_extension("mended"), "").unwrap();
        work.wait_until(|| laravel.table.is_empty());
        let notes = laravel.notes();
        assert_eq!(runs(&notes, "broken twice"), 2, "{version}: {notes:?}");
        assert_eq!(runs(&notes, "broken too late"), 0, "{version}: {notes:?}");
        let failed = laravel.table.failed();
        assert_eq!(failed.len(), 2, "{version}: {failed:?}");
    }
}

#[test]
fn timeout_counts_as_an_exception_and_is_told_to_listeners() {
    with_longer_times(a_job_that_hangs_fails_by_its_first_timeout);
}

/// Whether it began before that.
fn a_job_that_hangs_fails_by_its_first_timeout(timeout: &str) -> bool {
    let seconds = timeout.trim_end_matches('s');
    for (version, told) in [
        ("laravel10", "timed out: App\\Hanging".to_string()),
        (
            "laravel13",
            format!("timed out: App\\Hanging after {seconds} s"),
        ),
    ] {
        let mut laravel = application(&framework(version));
        laravel.set("HANG", seconds);
        laravel.run("limits.php", &["hang"]);
        let work = laravel.start(&["--workers", "1"]);
        work.wait_until(|| laravel.table.is_empty());
        let notes = laravel.notes();
        if runs(&notes, "hang") == 0 {
            return false;
        }
        assert_eq!(runs(&notes, "hang"), 1, "{version}: {notes:?}");
        assert!(notes.contains(&told), "{version}: {notes:?}");
        let failed = laravel.table.failed();
        assert_eq!(failed.len(), 1, "{version}: {failed:?}");
        assert!(
            failed[0].2.contains("TimeoutExceededException"),
            "{failed:?}"
        );
    }
    true
}
