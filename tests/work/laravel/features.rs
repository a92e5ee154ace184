//! Tests Laravel's own features of jobs in Surus: chains, batches, locks, encryption, limits, and
//! the tools for failed jobs.

use std::fs;
use std::path::Path;

use super::super::database::{Client, Kind};
use super::super::site::framework;
use super::super::table::now;
use super::Laravel;

/// A job for each feature, and what they need.
pub const CLASSES: [(&str, &str); 8] = [
    (
        "Noted",
        r#"class Noted implements \Illuminate\Contracts\Queue\ShouldQueue
{
    use \Illuminate\Bus\Batchable, \Illuminate\Foundation\Bus\Dispatchable;
    use \Illuminate\Queue\InteractsWithQueue, \Illuminate\Bus\Queueable;
    public function __construct(public string $what) {}
    public function handle(): void
    {
        Notes::note("$this->what, attempt {$this->attempts()}");
        if (str_starts_with($this->what, 'broken') && !is_file(getenv('NOTES').'.mended')) {
            throw new \RuntimeException('thrown by the job');
        }
    }
}"#,
    ),
    (
        "Single",
        r"final class Single extends Noted
    implements \Illuminate\Contracts\Queue\ShouldBeUnique {}",
    ),
    (
        "Secret",
        r"final class Secret extends Noted
    implements \Illuminate\Contracts\Queue\ShouldBeEncrypted {}",
    ),
    (
        "Limited",
        r"final class Limited extends Noted
{
    public function middleware(): array
    {
        return [new \Illuminate\Queue\Middleware\RateLimited('one a minute')];
    }
}",
    ),
    (
        "Exclusive",
        r"final class Exclusive extends Noted
{
    public function middleware(): array
    {
        $same = new \Illuminate\Queue\Middleware\WithoutOverlapping('same');
        return [$same->releaseAfter(3600)];
    }
}",
    ),
    (
        "Contextual",
        r#"final class Contextual extends Noted
{
    public function handle(): void
    {
        $log = app('log');
        Notes::note("$this->what after ".json_encode($log->sharedContext()));
        $log->shareContext(['job' => $this->what]);
    }
}"#,
    ),
    (
        "Callbacks",
        r#"final class Callbacks
{
    public static function then($batch): void
    {
        Notes::note("$batch->totalJobs jobs of a batch are done");
    }
    public static function failed($batch): void
    {
        Notes::note('a batch has failed');
    }
}"#,
    ),
    (
        "Limits",
        r#"final class Limits extends \Illuminate\Support\ServiceProvider
{
    public function boot(): void
    {
        $listen = $this->app['events']->listen(...);
        $listen(
            \Illuminate\Queue\Events\Looping::class,
            static fn () => file_exists(getenv('NOTES').'.held') ? false : null,
        );
        $listen(
            \Illuminate\Queue\Events\JobTimedOut::class,
            static fn (object $event) => Notes::note(
                "timed out: {$event->job->resolveName()}"
                    .(isset($event->timeout) ? " after $event->timeout s" : ''),
            ),
        );
        getenv('STOPPING') && $listen(
            \Illuminate\Queue\Events\WorkerStopping::class,
            static function (object $event): void {
                Notes::note("stopping, status $event->status");
                throw new \RuntimeException('thrown by a listener');
            },
        );
        \Illuminate\Support\Facades\RateLimiter::for(
            'one a minute',
            static fn () => \Illuminate\Cache\RateLimiting\Limit::perMinute(1),
        );
    }
}"#,
    ),
];

/// Pushes the jobs of a feature.
pub const FEATURES: &str = r#"<?php
require __DIR__.'/vendor/autoload.php';
$app = require __DIR__.'/bootstrap/app.php';
$app->make(Illuminate\Contracts\Console\Kernel::class)->bootstrap();
use App\{Callbacks, Contextual, Exclusive, Limited, Noted, Secret, Single};
use Illuminate\Support\Facades\Bus;
function console($app)
{
    $app->register(Illuminate\Foundation\Providers\ArtisanServiceProvider::class);
    return $app->make(Illuminate\Contracts\Console\Kernel::class);
}
match ($argv[1]) {
    'chain' => Bus::chain([new Noted('first'), new Noted('second'), new Noted('third')])
        ->dispatch(),
    'broken chain' => Bus::chain([new Noted('broken'), new Noted('never')])->dispatch(),
    'batch' => Bus::batch([new Noted('one'), new Noted('two')])
        ->then([Callbacks::class, 'then'])->dispatch(),
    'broken batch' => Bus::batch([new Noted('broken'), new Noted('other')])
        ->catch([Callbacks::class, 'failed'])->allowFailures()->dispatch(),
    'unique' => [Single::dispatch('single'), Single::dispatch('single')],
    'secret' => Secret::dispatch('secret'),
    'limited' => [Limited::dispatch('limited'), Limited::dispatch('limited')],
    'exclusive' => Exclusive::dispatch('exclusive'),
    'contextual' => array_map([Contextual::class, 'dispatch'], ['first', 'second', 'third']),
    'held' => Illuminate\Support\Facades\Cache::lock(
        'laravel-queue-overlap:App\Exclusive:same', 3600)->get(),
    'failed', 'retry' => console($app)->call(
        "queue:$argv[1]", 'retry' === $argv[1] ? ['id' => ['all']] : [],
        new Symfony\Component\Console\Output\StreamOutput(STDOUT)),
};
"#;

/// An application with a cache that outlives processes, and a database for batches of its own:
/// SQLite refuses a transaction that reads first if another process writes meanwhile.
pub fn application(libraries: &Path) -> Laravel {
    let laravel = Laravel::new(libraries);
    let www = laravel.site.www();
    let change = |file: &str, from: &str, to: &str| {
        let file = www.join(file);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(file, text.replacen(from, to, 1)).unwrap();
    };
    change(
        "config/app.php",
        "App\\Routes::class",
        "App\\Routes::class, App\\Limits::class",
    );
    change(
        "config/cache.php",
        "'default' => 'array'",
        "'default' => 'file'",
    );
    let store = "'stores' => ['file' => ['driver' => 'file', \
                 'path' => getenv('APP_STORAGE').'/cache'],";
    change("config/cache.php", "'stores' => [", store);
    let batches =
        "'batching' => ['database' => 'batches', 'table' => 'job_batches'],\n    'failed'";
    change("config/queue.php", "'failed'", batches);
    let database = "'batches' => ['driver' => 'sqlite', 'prefix' => '', \
                    'database' => getenv('DATABASE').'.batches'],\n        'mysql'";
    change("config/database.php", "'mysql'", database);
    let file = format!("{}.batches", laravel.table.name);
    Client::connect(Kind::Sqlite, &file).unwrap().run(
        "create table job_batches (id varchar not null primary key, name varchar not null,
         total_jobs integer not null, pending_jobs integer not null, failed_jobs integer not null,
         failed_job_ids text not null, options text, cancelled_at integer,
         created_at integer not null, finished_at integer)",
    );
    laravel
}

#[test]
fn features_of_laravel_and_its_tools_work() {
    let laravel = application(&framework("laravel10"));
    let features = [
        "chain",
        "broken chain",
        "batch",
        "broken batch",
        "unique",
        "secret",
        "limited",
        "held",
        "exclusive",
    ];
    for feature in features {
        laravel.run("features.php", &[feature]);
    }
    let secret = "select payload from jobs where payload like '%Secret%'";
    let secret = laravel.table.ask(secret).remove(0).remove(0);
    assert!(
        !secret.contains("s:4:\\\"what\\\""),
        "it is encrypted: {secret}"
    );
    let work = laravel.start(&["--workers", "1"]);
    let count = |note: &str| laravel.notes().iter().filter(|it| *it == note).count();
    work.wait_until(|| count("third, attempt 1") == 1 && laravel.table.rows().len() == 2);
    for (note, times) in [
        ("first, attempt 1", 1),
        ("second, attempt 1", 1),
        ("broken, attempt 1", 2),
        ("never, attempt 1", 0),
        ("2 jobs of a batch are done", 1),
        ("a batch has failed", 1),
        ("single, attempt 1", 1),
        ("secret, attempt 1", 1),
        // One of two, until the minute is over.
        ("limited, attempt 1", 1),
        // While another process has its lock.
        ("exclusive, attempt 1", 0),
    ] {
        assert_eq!(count(note), times, "{note}: {:?}", laravel.notes());
    }
    let mut left = laravel.table.rows();
    left.sort_by_key(|row| row.available_at);
    let due = |row: usize| left[row].available_at - now();
    assert!(
        (0..=70).contains(&due(0)) && (3000..=3600).contains(&due(1)),
        "{left:?}"
    );
    // The lock of the unique job has been released with it.
    laravel.run("features.php", &["unique"]);
    work.wait_until(|| count("single, attempt 1") == 2);
    // Laravel's own tools see the failed jobs, and Surus runs those that they put back.
    assert_eq!(laravel.table.failed().len(), 2);
    let shown = laravel.run("features.php", &["failed"]);
    assert_eq!(shown.matches("jobs@mails App\\Noted").count(), 2, "{shown}");
    fs::write(laravel.notes_file().with_extension("mended"), "").unwrap();
    laravel.run("features.php", &["retry"]);
    work.wait_until(|| count("broken, attempt 1") == 4 && count("never, attempt 1") == 1);
    work.wait_until(|| laravel.table.rows().len() == 2);
    assert!(laravel.table.failed().is_empty());
}

#[test]
fn log_context_of_a_job_does_not_reach_the_next_one_of_its_process() {
    for version in ["laravel10", "laravel13"] {
        let laravel = application(&framework(version));
        laravel.run("features.php", &["contextual"]);
        let work = laravel.start(&["--workers", "1", "--engine", "worker"]);
        work.wait_until(|| laravel.table.is_empty());
        let notes = laravel.notes();
        // Three jobs in two processes, one of which is kept for questions.
        let clean = ["first", "second", "third"].map(|job| format!("{job} after []"));
        assert_eq!(notes, clean, "{version}");
    }
}

#[test]
fn worker_stopping_is_told_after_each_job_whose_process_keeps_nothing() {
    for (version, engine, times) in [
        ("laravel10", "rewind", 2),
        ("laravel13", "rewind", 2),
        ("laravel13", "worker", 0),
    ] {
        let mut laravel = application(&framework(version));
        laravel.set("STOPPING", "1");
        laravel.push(&["well", "fail"]);
        let work = laravel.start(&["--workers", "1", "--engine", engine]);
        work.wait_until(|| laravel.table.is_empty());
        let notes = laravel.notes();
        let told = notes.iter().filter(|it| *it == "stopping, status 0");
        assert_eq!(told.count(), times, "{version} {engine}: {notes:?}");
        // Exceptions of listeners fail no job.
        assert_eq!(laravel.table.failed().len(), 1, "{version} {engine}");
    }
}
