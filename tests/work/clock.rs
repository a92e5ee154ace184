//! Tests of a wall clock that is set ahead or back while jobs run.

use std::fs::File;
use std::os::unix::fs::FileExt;

use serde_json::json;

use super::database::Kind;
use super::plain::Plain;
use super::redis::Site as RedisSite;
use super::table::now;
use super::work::Work;
use crate::common::preload::Preload;

/// The clock of Surus and its workers.
struct Clock {
    _library: Preload,
    ahead: File,
}

impl Clock {
    /// Starts `surus work` with such a clock.
    fn start(plain: &Plain) -> (Clock, Work) {
        let library = Preload::compile("work/clock.c");
        let path = plain.site.tmp().join("clock");
        std::fs::write(&path, [0; 8]).unwrap();
        let ahead = File::options().write(true).open(&path).unwrap();
        let env = [
            ("LD_PRELOAD", library.path()),
            ("TEST_CLOCK", path.to_str().unwrap()),
        ];
        let work = plain.start_with(&["--workers", "2"], &env);
        let clock = Clock {
            _library: library,
            ahead,
        };
        (clock, work)
    }

    fn set(&self, seconds: i64) {
        self.ahead.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }
}

/// A broker that keeps times of the wall clock.
struct Broker<'a> {
    plain: &'a Plain,
    push: &'a dyn Fn(&str),
    is_empty: &'a dyn Fn() -> bool,
}

impl Broker<'_> {
    fn push(&self, number: usize, what: &str) {
        (self.push)(&json!({ "n": number, "do": what }).to_string());
    }
}

/// Runs a test with jobs in a database, and in Redis.
fn in_each(test: fn(&Broker<'_>)) {
    // No extension comes between a jump of an hour and the next poll.
    let settings = "backoff = '1s'\nlease = '30m'\n";
    let plain = Plain::new(Kind::Sqlite, settings);
    test(&Broker {
        plain: &plain,
        // Due whatever the clock says.
        push: &|job| {
            plain.table.push_at("default", job, now() - 24 * 3600);
        },
        is_empty: &|| plain.table.is_empty(),
    });
    let site = RedisSite::new(settings);
    test(&Broker {
        plain: &site.plain,
        push: &|job| site.push_json(job),
        is_empty: &|| site.is_empty(),
    });
}

#[test]
fn clock_that_is_set_ahead_makes_no_job_run_twice() {
    in_each(|broker| {
        let plain = broker.plain;
        broker.push(0, "wait");
        let (clock, work) = Clock::start(plain);
        work.wait_until(|| plain.count("begins 0") == 1);
        // Now the reservation has expired.
        clock.set(3600);
        work.wait_for_log(|log| log.contains("not run twice"));
        broker.push(1, "");
        work.wait_until(|| plain.count("done 1") == 1);
        plain.go(true);
        work.wait_until(broker.is_empty);
        let counts = (plain.count("begins 0"), plain.count("begins 1"));
        assert_eq!(counts, (1, 1), "{}", work.log());
    });
}

#[test]
fn clock_that_is_set_back_holds_up_no_job() {
    in_each(|broker| {
        let plain = broker.plain;
        broker.push(0, "wait");
        let (clock, work) = Clock::start(plain);
        work.wait_until(|| plain.count("begins 0") == 1);
        clock.set(-3600);
        broker.push(1, "throw once");
        work.wait_until(|| plain.count("done 1") == 1);
        plain.go(true);
        work.wait_until(broker.is_empty);
        let counts = (plain.count("begins 0"), plain.count("begins 1"));
        assert_eq!(counts, (1, 2), "{}", work.log());
    });
}
