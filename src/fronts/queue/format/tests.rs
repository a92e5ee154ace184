//! Tests of how runs are settled that have no answer of PHP.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::engine::{Engine, Pending, Prepared, Report};
use crate::event::{Event, Response, Script};
use crate::fronts::queue::job::Lease;
use crate::observe::status::EngineStatus;

/// An engine whose master process has exited and cannot boot.
struct Restarting;

impl Engine for Restarting {
    fn handle(&self, _: Box<Event>) -> Pending<'_, Result<Response, Failure>> {
        Box::pin(async { Err(Failure::Busy("PHP is restarting")) })
    }

    fn prepare(&self) -> Pending<'_, anyhow::Result<Prepared>> {
        Box::pin(async { Err(anyhow::anyhow!("it cannot boot")) })
    }

    fn drain(&self) -> Pending<'_, ()> {
        Box::pin(async {})
    }

    fn ready(&self) -> Result<(), String> {
        Err("PHP is restarting".into())
    }

    fn report(&self) -> Report {
        Report::default()
    }

    fn status(&self) -> EngineStatus {
        EngineStatus::default()
    }
}

fn runner() -> JobProgram {
    let script = Script {
        root: "/".into(),
        filename: Path::new("/events.php").into(),
        name: "/events.php".into(),
        path_info: OsString::new(),
        query: None,
    };
    JobProgram::Php(Arc::new(Runner::new(Arc::new(Restarting), script)))
}

#[tokio::test]
async fn job_that_no_worker_could_take_is_postponed() {
    let runs = runner();
    for format in [
        Format::Plain,
        Format::Laravel,
        Format::Messenger,
        Format::RoadRunner,
    ] {
        let queue = Queue {
            format: Some(format),
            ..Queue::default()
        };
        let suspects = Suspects::default();
        let jobs = Jobs {
            runs: &runs,
            queue: &queue,
            connection: "",
            suspects: &suspects,
            max_losses: 3,
            crashes: 0,
        };
        let mut job = Job {
            lease: Lease {
                id: "1".into(),
                token: Bytes::new(),
            },
            payload: Bytes::from_static(b"{}"),
            unread: None,
            attempts: 1,
        };
        let verdict = jobs.run(&mut job).await;
        assert_eq!(
            verdict.disposition,
            Disposition::Postpone(BUSY),
            "{format:?}"
        );
        assert_eq!(verdict.outcome.name(), "busy");
        assert!(suspects.is_empty());
    }
}

#[test]
fn long_reason_of_a_buried_job_is_cut_at_a_character() {
    let Disposition::Bury(why) = Verdict::buried("\u{e4}".repeat(50_000)).disposition else {
        panic!("it is not buried");
    };
    assert_eq!(why.len(), LONGEST_REASON);
    let odd = format!("x{}", "\u{e4}".repeat(50_000));
    let Disposition::Bury(why) = Verdict::buried(odd).disposition else {
        panic!("it is not buried");
    };
    assert_eq!(why.len(), LONGEST_REASON - 1);
}
