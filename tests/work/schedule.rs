//! Schedules: entries of `surus.toml`, and those of a Laravel application.

use std::path::PathBuf;
use std::process::Command;

use super::laravel::{Laravel, debian};
use super::operate::metrics;
use super::plain::Plain;
use super::site::{Site, framework};
use super::work::Work;

/// A site with handlers and without queues.
fn site(config: &str) -> Plain {
    let plain = Plain::from("sqlite:none", "");
    let config = format!("[lambda]\nscript = 'surus/lambda/events.php'\n{config}");
    std::fs::write(plain.site.www().join("surus.toml"), config).unwrap();
    plain
}

const SECOND: &str = r#"<?php
return static function (array $run): void {
    $note = static fn (string $what) => file_put_contents(
        getenv('NOTES'), "$what $run[schedule]\n", FILE_APPEND | LOCK_EX);
    $note('begins');
    new DateTimeImmutable($run['due']);
    usleep('slow' === $run['schedule'] ? 2500000 : 0);
    if ('failing' === $run['schedule']) {
        throw new RuntimeException('as told');
    }
    $note('ends');
};
"#;

#[test]
fn entries_run_each_second_one_at_a_time_and_fail_alone() {
    let entry = |name: &str, does: &str| {
        format!("[[schedule]]\nname = '{name}'\ncron = '* * * * * *'\n{does}\n")
    };
    let config = [
        entry("fast", "handler = 'second.php'"),
        entry("slow", "handler = 'second.php'"),
        entry("failing", "handler = 'second.php'"),
        entry(
            "command",
            "command = ['sh', '-c', 'echo said; echo ends command >> ../tmp/notes']",
        ),
        entry("wrong", "command = ['sh', '-c', 'exit 7']"),
    ];
    let plain = site(&config.concat());
    std::fs::write(plain.site.www().join("second.php"), SECOND).unwrap();
    let work = plain.start(&["--workers", "3"]);
    work.wait_until(|| {
        plain.count("ends fast") > 3
            && plain.count("ends slow") > 1
            && plain.count("ends command") > 1
    });
    let mut running = 0;
    for note in plain.notes().iter().filter(|note| note.ends_with(" slow")) {
        running += if note.starts_with("begins") { 1 } else { -1 };
        assert!((0..=1).contains(&running), "{:?}", plain.notes());
    }
    work.wait_for_log(|log| {
        [
            "the last run has not ended",
            "as told",
            "exit status 7",
            "said",
        ]
        .iter()
        .all(|part| log.contains(part))
    });
}

#[test]
fn mistake_in_a_schedule_stops_the_start() {
    for (entry, error) in [
        ("cron = '* * * * *'\ncommand = ['a']", "schedule.name"),
        (
            "name = 'a'\ncron = '* * *'\ncommand = ['a']",
            "schedule.cron",
        ),
        (
            "name = 'a'\ncron = '* * * * *'",
            "schedule.handler or a schedule.command",
        ),
        (
            "name = 'a'\ncron = '* * * * *'\ncommand = ['a']\ntimezone = 'Mars/Base'",
            "schedule.timezone",
        ),
    ] {
        let plain = site(&format!("[[schedule]]\n{entry}\n"));
        let mut work = Work::spawn(&plain.site, &[], &[]);
        assert_eq!(work.wait().code(), Some(1), "{entry}");
        work.wait_for_log(|log| log.contains(error));
    }
    let site = Site::new();
    let output = Command::new(env!("CARGO_BIN_EXE_surus"))
        .args(["work", "--schedule"])
        .arg(site.www())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("no file `artisan`"), "{error}");
}

/// Waits for the next minute.
#[test]
fn events_of_laravel_run_when_they_are_due() {
    let run = |libraries: PathBuf| {
        let mut laravel = Laravel::new(&libraries);
        laravel.set("QUEUE_CONNECTION", "sync");
        let work = laravel.start(&["--schedule"]);
        work.wait_for_log(|log| log.contains("no queue is served"));
        let has = |note: &str| laravel.notes().iter().any(|it| it == note);
        let noted = ["called", "before", "executed", "of a package"];
        work.wait_for_minutes(2, || noted.iter().all(|note| has(note)));
        work.wait_for_log(|log| log.contains("thrown by an event") && log.contains("exit code 9"));
        work.wait_for_log(|log| log.contains("held is skipped: withoutOverlapping()"));
        // Its lock is there, too, but its filter skips it.
        let log = work.log();
        assert!(!log.contains("absent is skipped"), "{log}");
        let skipped = ["skipped", "another day", "overlapped", "absent"];
        assert!(
            !skipped.iter().any(|note| has(note)),
            "{:?}",
            laravel.notes()
        );
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(debian()));
        scope.spawn(|| run(framework("laravel10")));
    });
}

/// Adds an event as the `bootstrap/app.php` of Laravel 11 and newer does, and finds another one.
const BUILDER: &str = r"(new Illuminate\Foundation\Configuration\ApplicationBuilder($app))
    ->withCommands([dirname(__DIR__).'/routes/console.php'])
    ->withSchedule(static fn ($schedule) => $schedule
        ->call(static fn () => App\Notes::note('of withSchedule'))->everyMinute()->name('built'));
return $app;";

const ROUTES: &str = r"<?php
Illuminate\Support\Facades\Schedule::call(static fn () => App\Notes::note('of routes'))
    ->everyMinute()->name('routed');
";

/// Waits for the next minute.
#[test]
fn events_of_with_schedule_and_of_console_routes_run() {
    let mut laravel = Laravel::new(&framework("laravel13"));
    laravel.set("QUEUE_CONNECTION", "sync");
    let www = laravel.site.www();
    std::fs::write(www.join("routes/console.php"), ROUTES).unwrap();
    let file = www.join("bootstrap/app.php");
    let text = std::fs::read_to_string(&file).unwrap();
    // Only the kernel of Laravel itself reads routes of commands.
    let kernel = r"Illuminate\Foundation\Console\Kernel";
    let changed = text.replace(r"App\ConsoleKernel", kernel);
    let changed = changed.replace("return $app;", BUILDER);
    assert!(
        changed.contains(kernel) && changed.contains(BUILDER),
        "{text}"
    );
    std::fs::write(file, changed).unwrap();
    let work = laravel.start(&["--schedule"]);
    let has = |note: &str| laravel.notes().iter().any(|it| it == note);
    work.wait_for_minutes(2, || has("of withSchedule") && has("of routes"));
}

/// As many long events as there are workers, and a short one.
const LONG: &str = r#"<?php
namespace App;
use Illuminate\Console\Scheduling\Schedule;
final class ConsoleKernel extends \Illuminate\Foundation\Console\Kernel
{
    protected function schedule(Schedule $schedule)
    {
        foreach (['first', 'second'] as $name) {
            $schedule->call(static function () use ($name): void {
                Notes::note("$name begins");
                Notes::wait();
            })->everyMinute()->name($name);
        }
        $schedule->call(static fn () => Notes::note('short'))->everyMinute()->name('short');
    }
}
"#;

/// Waits for the next two minutes.
#[test]
fn application_is_asked_for_its_events_also_while_all_workers_run_long_ones() {
    let mut laravel = Laravel::new(&debian());
    laravel.set("QUEUE_CONNECTION", "sync");
    // Without the event of the package.
    laravel.set("APP_RUNNING_IN_CONSOLE", "false");
    std::fs::write(laravel.site.www().join("app/ConsoleKernel.php"), LONG).unwrap();
    let work = laravel.start(&["--schedule"]);
    let has = |note: &str| laravel.notes().iter().any(|it| it == note);
    work.wait_for_minutes(2, || has("first begins") && has("second begins"));
    let none = "surus_broker_jobs{queue=\"schedule\",state=\"delayed\"} 0\n";
    // The short event waits for a worker outside of the schedule. Those of the next minute come.
    work.wait_until(|| metrics(&work).contains(none));
    work.wait_for_minutes(2, || !metrics(&work).contains(none));
    assert!(!has("short"), "{:?}", laravel.notes());
    laravel.go();
    work.wait_until(|| has("short"));
    let log = work.log();
    assert!(!log.contains("the broker failed"), "{log}");
}
