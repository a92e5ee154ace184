//! Tests of how runs are settled that have no answer of PHP, and of what adapters are told.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::*;
use crate::engine::{Engine, Pending, Prepared, Report};
use crate::event::{Body, Event, Response, ResponseBody, Script};
use crate::fronts::queue::job::Lease;
use crate::observe::status::EngineStatus;

/// An engine that gives the same answer to every job, and notes what it gets.
struct Answering {
    /// None: its master process has exited and cannot boot.
    answer: Option<&'static str>,
    asked: Mutex<Vec<serde_json::Value>>,
}

impl Engine for Answering {
    fn handle(&self, event: Box<Event>) -> Pending<'_, Result<Response, Failure>> {
        if let Body::Memory(bytes) = event.request.body()
            && let Ok(json) = serde_json::from_slice(bytes)
        {
            self.asked.lock().expect("no test has panicked").push(json);
        }
        let answer = match self.answer {
            Some(answer) => Ok(Response::new(ResponseBody::from(answer))),
            None => Err(Failure::Busy("PHP is restarting")),
        };
        Box::pin(async move { answer })
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

fn engine(answer: Option<&'static str>) -> Arc<Answering> {
    Arc::new(Answering {
        answer,
        asked: Mutex::default(),
    })
}

fn program(engine: Arc<Answering>) -> JobProgram {
    let script = Script {
        root: "/".into(),
        filename: Path::new("/events.php").into(),
        name: "/events.php".into(),
        path_info: OsString::new(),
        query: None,
        rewritten: None,
    };
    JobProgram::Php(Arc::new(Runner::new(engine, script)))
}

/// Runs a job of a queue, and returns how it is settled.
async fn run(runs: &JobProgram, name: &str, format: Format) -> Verdict {
    let queue = Queue {
        name: name.into(),
        format: Some(format),
        ..Queue::default()
    };
    let suspects = Suspects::default();
    let jobs = Jobs {
        runs,
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
    assert!(suspects.is_empty());
    verdict
}

#[tokio::test]
async fn job_that_no_worker_could_take_is_postponed() {
    let runs = program(engine(None));
    for format in [
        Format::Plain,
        Format::Laravel,
        Format::Messenger,
        Format::RoadRunner,
    ] {
        let verdict = run(&runs, "default", format).await;
        assert_eq!(
            verdict.disposition,
            Disposition::Postpone(BUSY),
            "{format:?}"
        );
        assert_eq!(verdict.outcome.name(), "busy");
    }
}

#[tokio::test(start_paused = true)]
async fn laravel_is_asked_now_and_then_whether_a_queue_is_paused() {
    let engine = engine(Some("{}"));
    let runs = program(engine.clone());
    for (queue, wait) in [("a", 0), ("a", 60), ("b", 0), ("a", 60), ("a", 0)] {
        tokio::time::advance(Duration::from_millis(wait)).await;
        let verdict = run(&runs, queue, Format::Laravel).await;
        assert_eq!(verdict.outcome, Outcome::Done);
    }
    let asked = engine.asked.lock().expect("no test has panicked");
    let unpaused: Vec<_> = asked.iter().map(|it| it["unpaused"] == true).collect();
    assert_eq!(unpaused, [false, true, false, false, true]);
}

#[tokio::test]
async fn refusal_does_not_say_that_a_queue_is_not_paused() {
    let engine = engine(Some(r#"{"refused":true,"release":3}"#));
    let runs = program(engine.clone());
    for _ in 0..2 {
        let verdict = run(&runs, "default", Format::Laravel).await;
        assert_eq!(verdict.outcome, Outcome::Refused(None));
    }
    let asked = engine.asked.lock().expect("no test has panicked");
    assert!(asked.iter().all(|it| it.get("unpaused").is_none()));
}

#[test]
fn timeout_of_laravel_is_read_from_numbers_and_strings() {
    for (written, seconds) in [
        ("120", Some(120)),
        (r#""120""#, Some(120)),
        ("1.2", Some(2)),
        (r#"" 1.2 ""#, Some(2)),
        ("0", Some(0)),
        ("-5", Some(0)),
        (r#""-0.5""#, Some(0)),
        ("null", None),
        (r#""soon""#, None),
        (r#""inf""#, None),
        ("[1]", None),
        ("1e400", None),
        ("1,\"timeout\":2", Some(2)),
    ] {
        let payload = format!(r#"{{"timeout":{written},"uuid":"u","displayName":"App\\A"}}"#);
        let options = PayloadOptions::read(&payload);
        assert_eq!(options.timeout(), seconds, "{written}");
        assert_eq!(options.uuid, "u");
        assert_eq!(options.class, r"App\A");
    }
    let payload = r#"{"timeout":20,"uuid":7,"displayName":null}"#;
    assert_eq!(PayloadOptions::read(payload).timeout(), Some(20));
    assert_eq!(PayloadOptions::read("{}").timeout(), None);
}

#[test]
fn reason_of_a_timeout_has_the_limit() {
    assert_eq!(
        reason(&Failure::TimedOut, Duration::from_secs(90)),
        "no response before the deadline: its time limit is 90s"
    );
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

#[tokio::test]
async fn message_that_a_rate_limiter_refuses_goes_back_without_a_pause_of_its_own() {
    let runs = program(engine(Some(r#"{"refused":true}"#)));
    let verdict = run(&runs, "default", Format::Messenger).await;
    assert_eq!(verdict.disposition, Disposition::Return);
    assert_eq!(verdict.outcome, Outcome::Refused(None));
}

#[tokio::test]
async fn refusal_carries_the_wait_of_the_limiter_within_bounds() {
    for (answer, wait) in [
        (r#"{"refused":true,"wait_ms":1500}"#, 1500),
        (r#"{"refused":true,"wait_ms":0}"#, 50),
        (r#"{"refused":true,"wait_ms":18446744073709551615}"#, 60_000),
    ] {
        let verdict = run(&program(engine(Some(answer))), "default", Format::Messenger).await;
        let wait = Duration::from_millis(wait);
        assert_eq!(verdict.outcome, Outcome::Refused(Some(wait)), "{answer}");
    }
}
