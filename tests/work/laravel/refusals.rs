//! Tests that jobs wait, and lose no try, while the application refuses them: in maintenance mode,
//! after `queue:pause`, and as long as a listener of `Looping` says so.

use std::fs;

use super::super::operate::said;
use super::super::site::framework;
use super::features::application;
use super::{Laravel, debian, runs};

/// Asserts that jobs wait between `refuse` and `allow`, and are run as their first attempt then.
fn assert_jobs_wait(laravel: &Laravel, refuse: impl Fn(), allow: impl Fn()) {
    refuse();
    laravel.push(&["well", "well", "well"]);
    let work = laravel.start(&["--workers", "2"]);
    let refusal = "the application runs no jobs at present";
    work.wait_for_log(|log| log.contains(refusal));
    work.wait_until(|| {
        let rows = laravel.table.rows();
        let is_returned = rows.iter().all(|row| !row.is_reserved && row.attempts == 0);
        rows.len() == 3 && is_returned
    });
    let status = said(&laravel.site, &work, &["work", "status"]);
    assert!(status.contains("resting"), "{status}");
    assert!(laravel.notes().is_empty(), "{:?}", laravel.notes());
    allow();
    work.wait_until(|| laravel.table.is_empty());
    let notes = laravel.notes();
    assert_eq!(runs(&notes, "well"), 3, "{notes:?}");
    for note in &notes {
        assert!(note.starts_with("well, attempt 1"), "{notes:?}");
    }
    // The application is asked meanwhile, and no job is tried.
    assert_eq!(work.log().matches(refusal).count(), 1, "{}", work.log());
    assert!(laravel.table.failed().is_empty());
}

#[test]
fn jobs_wait_while_the_application_is_down_for_maintenance() {
    for libraries in [debian(), framework("laravel10"), framework("laravel13")] {
        let laravel = Laravel::new(&libraries);
        let down = laravel.site.tmp().join("storage/framework/down");
        fs::create_dir_all(down.parent().unwrap()).unwrap();
        assert_jobs_wait(
            &laravel,
            || fs::write(&down, "{}").unwrap(),
            || fs::remove_file(&down).unwrap(),
        );
    }
}

#[test]
fn jobs_wait_while_laravel_has_paused_their_queue() {
    let laravel = application(&framework("laravel13"));
    let run = |what: &str| {
        laravel.run("limits.php", &[what]);
    };
    assert_jobs_wait(&laravel, || run("pause"), || run("resume"));
}

#[test]
fn jobs_wait_while_a_listener_of_looping_returns_false() {
    let laravel = application(&framework("laravel10"));
    let held = laravel.notes_file().with_extension("held");
    assert_jobs_wait(
        &laravel,
        || fs::write(&held, "").unwrap(),
        || fs::remove_file(&held).unwrap(),
    );
}

const SCHEDULE: &str = r#"<?php
namespace App;
use Illuminate\Console\Scheduling\Schedule;
final class ConsoleKernel extends \Illuminate\Foundation\Console\Kernel
{
    protected function schedule(Schedule $schedule)
    {
        $schedule->call(static fn () => Notes::note('always'))
            ->everyFiveSeconds()->evenWhenPaused()->name('always');
        $schedule->call(static fn () => Notes::note('resumed'))
            ->everyFiveSeconds()->name('resumed');
        $schedule->call(static fn () => Notes::note('one server'))
            ->everyFiveSeconds()->evenWhenPaused()->name('one server')->onOneServer();
        $held = $schedule->call(static fn () => Notes::note('held'))
            ->everyFiveSeconds()->evenWhenPaused()->name('held')->withoutOverlapping();
        $held->mutex->create($held);
    }
}
"#;

/// Waits for the next minute.
#[test]
fn events_do_not_run_while_laravel_has_paused_its_schedule() {
    let mut laravel = application(&framework("laravel13"));
    laravel.set("QUEUE_CONNECTION", "sync");
    fs::write(laravel.site.www().join("app/ConsoleKernel.php"), SCHEDULE).unwrap();
    laravel.run("limits.php", &["pause schedule"]);
    let work = laravel.start(&["--schedule"]);
    let count = |note: &str| laravel.notes().iter().filter(|it| *it == note).count();
    work.wait_for_minutes(2, || count("always") > 3);
    // Each run in a minute is for one server, and not only the first.
    work.wait_until(|| count("one server") > 1 || count("always") > 10);
    assert!(count("one server") > 1, "{:?}", laravel.notes());
    assert_eq!(count("resumed"), 0, "{:?}", laravel.notes());
    laravel.run("limits.php", &["resume schedule"]);
    work.wait_for_minutes(2, || count("resumed") > 0);
    // The lock of an event is told once, although it skips many runs.
    let log = work.log();
    assert_eq!(log.matches("held is skipped").count(), 1, "{log}");
    assert_eq!(count("held"), 0);
}
