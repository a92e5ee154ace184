//! The end of `surus work`, of its workers, and of the network: nothing is lost, and nothing is
//! acknowledged that has not finished.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::super::kills::{self, Event};
use super::super::proxy::Proxy;
use super::super::work::signal;
use super::{Site, counts, dead};

#[test]
fn sigterm_finishes_the_running_job_and_returns_the_others() {
    let Some(site) = Site::new("") else { return };
    let mut work = site.start(&["--workers", "1"]);
    // After short jobs Surus takes several at once.
    for number in 10..30 {
        site.push(number, "");
    }
    work.wait_until(|| site.is_empty());
    site.push(0, "wait");
    work.wait_until(|| site.count("begins 0") == 1);
    for number in 1..6 {
        site.push(number, "");
    }
    work.wait_until(|| counts(&site.queue)[1] > 1);
    work.signal("TERM");
    work.wait_for_log(|log| log.contains("shutting down"));
    site.plain.go(true);
    assert!(work.wait().success(), "{}", work.log());
    assert_eq!(site.count("done 0"), 1);
    assert_eq!(counts(&site.queue), [5, 0], "{}", work.log());
}

#[test]
fn job_that_outlasts_the_grace_period_is_released_at_once() {
    let settings = "timeout = '60s'\n[work]\nshutdown_timeout = '1s'\n";
    let Some(site) = Site::new(settings) else {
        return;
    };
    site.push(0, "hang");
    let mut work = site.start(&["--workers", "1"]);
    work.wait_until(|| site.count("begins 0") == 1);
    work.signal("TERM");
    assert!(work.wait().success(), "{}", work.log());
    assert_eq!(counts(&site.queue), [1, 0]);
}

#[test]
fn lease_is_extended_while_a_job_runs() {
    // Long enough to be extended in time on a busy machine.
    let Some(site) = Site::new("lease = '10s'\n") else {
        return;
    };
    site.push_json(r#"{"n": 0, "do": "sleep", "ms": 15000}"#, 0);
    let work = site.start(&["--workers", "1"]);
    work.wait_until(|| site.count("begins 0") == 1);
    // Another process with the same queue would take an expired reservation.
    let other = site.start(&["--workers", "1"]);
    work.wait_until(|| site.is_empty());
    assert_eq!(site.count("begins 0"), 1);
    drop(other);
}

#[test]
fn job_of_a_killed_surus_is_delivered_again_after_its_lease() {
    let Some(site) = Site::new("lease = '3s'\n") else {
        return;
    };
    site.push(0, "wait");
    let work = site.start(&["--workers", "1"]);
    work.wait_until(|| site.count("begins 0") == 1);
    signal(work.pid(), "KILL");
    drop(work);
    site.plain.go(true);
    let work = site.start(&["--workers", "1"]);
    work.wait_until(|| site.is_empty());
    assert_eq!(site.count("begins 0"), 2);
}

#[test]
fn message_that_another_consumer_has_is_logged_and_not_extended() {
    let Some(site) = Site::new("lease = '3s'\n") else {
        return;
    };
    site.push(0, "wait");
    let work = site.start(&["--workers", "1"]);
    work.wait_until(|| site.count("begins 0") == 1);
    let asked = json!({ "QueueUrl": site.queue.url() });
    site.queue.call("PurgeQueue", asked);
    work.wait_for_log(|log| log.contains("the reservation of a job is lost"));
    site.plain.go(true);
    site.push(1, "");
    work.wait_until(|| site.is_empty() && site.count("done 1") == 1);
}

/// A site whose connections can be cut.
fn behind_a_proxy(settings: &str, is_fifo: bool) -> Option<(Site, Proxy)> {
    let proxy = OnceCell::new();
    let site = Site::of(settings, is_fifo, |queue| {
        let port = queue.address().rsplit_once(':').unwrap().1;
        let proxy = proxy.get_or_init(|| Proxy::to(port.parse().unwrap()));
        format!("http://127.0.0.1:{}/000000000000", proxy.port)
    })?;
    Some((site, proxy.into_inner().unwrap()))
}

#[test]
fn cut_network_is_waited_for() {
    let Some((site, proxy)) = behind_a_proxy("lease = '3s'\n", false) else {
        return;
    };
    let work = site.start(&["--workers", "1"]);
    for round in 0..3 {
        let (first, second) = (10 * round, 10 * round + 1);
        site.push(first, "wait");
        work.wait_until(|| site.count(&format!("begins {first}")) == 1);
        proxy.cut();
        // It arrives while Surus cannot see it.
        site.push(second, "");
        site.plain.go(true);
        work.wait_until(|| site.count(&format!("done {first}")) == 1);
        work.wait_for_log(|log| log.matches("cannot settle a job").count() > round);
        proxy.mend();
        work.wait_until(|| site.is_empty());
        site.plain.go(false);
        assert_eq!(site.count(&format!("begins {second}")), 1);
    }
}

/// `make test-work` has more jobs.
#[test]
fn killed_processes_lose_no_job_in_sqs() {
    no_job_is_lost(false);
}

#[test]
fn killed_processes_lose_no_job_in_a_fifo_queue() {
    no_job_is_lost(true);
}

fn no_job_is_lost(is_fifo: bool) {
    let settings = "lease = '3s'\ntries = 0\nbackoff = '1s'\n[work]\nmax_losses = 100\n";
    let Some((site, proxy)) = behind_a_proxy(settings, is_fifo) else {
        return;
    };
    let jobs = kills::jobs(300);
    let job = |number| json!({ "n": number, "do": "sleep", "ms": number % 10 }).to_string();
    let all: Vec<_> = (0..jobs).map(|number| (job(number), number % 20)).collect();
    site.queue.send(&all);
    let args = ["--workers", "3"];
    let work = site.start(&args);
    let work = kills::at_random(work, jobs / 12, |event| match event {
        Event::Killed => Some(site.start(&args)),
        Event::Outage => {
            proxy.cut();
            std::thread::sleep(Duration::from_millis(20));
            proxy.mend();
            None
        }
    });
    work.wait_until_none(|| site.queue.len());
    let notes: BTreeSet<_> = site.plain.notes().into_iter().collect();
    for number in 0..jobs {
        let done = notes.contains(&format!("done {number}"));
        assert!(done, "{number} was lost");
    }
    let letters = dead(&site.queue);
    assert!(letters.is_empty(), "{letters:?}");
}
