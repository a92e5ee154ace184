//! Laravel's jobs in SQS without configuration: pushed by Laravel, decided by Laravel.

use std::fs;

use super::super::elasticmq::Queue;
use super::super::laravel::{Laravel, RUNS, debian, runs};
use super::super::site::framework;
use super::super::work::with_longer_times;
use super::{base, dead, queue};

/// An application whose queue's name has a suffix.
fn application(libraries: &std::path::Path) -> Option<(Laravel, Queue, String)> {
    let (name, queue) = queue("-test", false)?;
    let name = name.strip_suffix("-test").unwrap();
    let laravel = Laravel::on_sqs(libraries, &base(&queue), name);
    Some((laravel, queue, name.into()))
}

#[test]
fn jobs_of_an_unconfigured_application_run_as_laravel_decides() {
    for libraries in [debian(), framework("laravel10")] {
        let Some((laravel, queue, name)) = application(&libraries) else {
            return;
        };
        laravel.push(&["well", "throw", "release", "fail", "later well"]);
        let work = laravel.start(&["--workers", "1"]);
        work.wait_until(|| queue.len() == 0);
        let noted = laravel.runs(&format!("sqs/{name}"));
        assert_eq!(noted, RUNS, "{}: {}", libraries.display(), work.log());
        let failed = laravel.table.failed();
        assert_eq!(failed.len(), 2, "recorded by Laravel: {failed:?}");
        assert!(dead(&queue).is_empty());
        assert!(!work.log().contains("hidden"), "{}", work.log());
    }
}

#[test]
fn job_that_ends_its_process_is_tried_again_and_failed_by_laravel() {
    with_longer_times(a_job_that_never_ends_begins_twice);
}

/// Whether it does so before its timeout.
fn a_job_that_never_ends_begins_twice(timeout: &str) -> bool {
    let Some((mut laravel, queue, _)) = application(&debian()) else {
        return true;
    };
    laravel.set("HANG", timeout.trim_end_matches('s'));
    laravel.push(&["exit", "kill", "hang", "well"]);
    let work = laravel.start(&["--workers", "2"]);
    // The counts of the queue are approximate.
    work.wait_until(|| laravel.table.failed().len() == 3 && queue.len() == 0);
    let noted = laravel.notes();
    if runs(&noted, "hang") < 2 {
        return false;
    }
    for what in ["exit", "kill", "hang"] {
        assert_eq!(runs(&noted, what), 2, "{noted:?}");
    }
    assert_eq!(laravel.table.failed().len(), 3);
    true
}

#[test]
fn released_job_is_delivered_after_its_backoff_as_a_second_attempt() {
    let Some((laravel, queue, _)) = application(&debian()) else {
        return;
    };
    laravel.push(&["back off"]);
    let work = laravel.start(&["--workers", "1"]);
    work.wait_for_log(|log| log.contains("job failed; it will run again"));
    // For an hour.
    work.wait_until(|| super::counts(&queue) == [0, 1]);
    assert_eq!(laravel.notes().len(), 1);
}

#[test]
fn jobs_that_wait_for_the_end_of_maintenance_lose_no_try() {
    let Some((laravel, queue, _)) = application(&debian()) else {
        return;
    };
    let down = laravel.site.tmp().join("storage/framework/down");
    fs::create_dir_all(down.parent().unwrap()).unwrap();
    fs::write(&down, "{}").unwrap();
    laravel.push(&["well", "well"]);
    let work = laravel.start(&["--workers", "1"]);
    work.wait_for_log(|log| log.contains("the application runs no jobs at present"));
    work.wait_until(|| super::counts(&queue) == [2, 0]);
    fs::remove_file(&down).unwrap();
    work.wait_until(|| queue.len() == 0);
    let notes = laravel.notes();
    assert_eq!(notes.len(), 2, "{notes:?}");
    for note in &notes {
        assert!(note.starts_with("well, attempt 1"), "{notes:?}");
    }
}

#[test]
fn failure_that_laravel_cannot_record_is_kept_in_the_dead_letter_queue() {
    let Some((mut laravel, queue, _)) = application(&debian()) else {
        return;
    };
    laravel.set("FAILED_DATABASE", "missing");
    laravel.push(&["fail"]);
    let work = laravel.start(&["--workers", "1"]);
    work.wait_until(|| queue.len() == 0);
    let letters = dead(&queue);
    assert_eq!(letters.len(), 1, "{}", work.log());
    let why = letters[0]["MessageAttributes"]["surus-reason"].to_string();
    assert!(why.contains("the job has called fail()"), "{why}");
}

#[test]
fn overflow_storage_stops_the_start_of_its_own_queues() {
    let mut laravel = Laravel::on_sqs(&framework("laravel13"), "http://127.0.0.1:1/0", "a");
    laravel.set("SQS_OVERFLOW", "1");
    let mut work = laravel.spawn(&["--workers", "1"]);
    assert_eq!(work.wait().code(), Some(1));
    // The broker of the queue says so, and not the application.
    let why = "is SQS with overflow storage, which surus work does not serve";
    work.wait_for_log(|log| log.contains(why));
}
