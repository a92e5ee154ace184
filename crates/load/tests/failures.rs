//! Failures are counted as what they are, with servers that misbehave on purpose.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use common::{answer, head, ok, plan, response, run, serve};
use surus_load::{Failure, Outcome, StatusSet};

/// Checks that all requests failed, and in this way.
fn assert_all(outcome: &Outcome, failure: Failure) {
    let totals = &outcome.totals;
    assert!(totals.requests > 0);
    assert_eq!(totals.failures_of(failure), totals.requests, "{totals:?}");
    assert_eq!((totals.responses, outcome.latencies.count()), (0, 0));
}

#[test]
fn port_without_a_listener_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let outcome = run(&plan(address, 8));
    assert_all(&outcome, Failure::Refused);
    // The generator is busy with failures, which says nothing of what the server can do.
    let own_cpu = outcome.elapsed * 2;
    let busy = Outcome { own_cpu, ..outcome };
    assert!(!busy.is_generator_limited());
}

#[test]
fn connection_that_is_reset_after_the_request_is_reset() {
    // Closing with unread bytes resets the connection.
    let address = serve(|stream| {
        let mut byte = [0];
        while stream.peek(&mut byte).is_ok_and(|count| count == 0) {}
    });
    assert_all(&run(&plan(address, 8)), Failure::Reset);
}

#[test]
fn connection_that_ends_in_a_body_is_closed() {
    let address = serve(|mut stream| {
        head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
    });
    assert_all(&run(&plan(address, 8)), Failure::Closed);
}

#[test]
fn server_that_never_answers_is_a_timeout() {
    let address = serve(|mut stream| while head(&mut stream).is_some() {});
    let mut plan = plan(address, 8);
    plan.timeout = Duration::from_millis(50);
    assert_all(&run(&plan), Failure::Timeout);
}

#[test]
fn body_without_end_is_unfinished() {
    let address = serve(|mut stream| {
        head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 1000]).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let mut plan = plan(address, 4);
    plan.timeout = Duration::from_secs(1);
    let outcome = run(&plan);
    assert_all(&outcome, Failure::Unfinished);
    assert!(outcome.totals.received > 0, "what came is counted");
}

#[test]
fn bytes_that_are_no_response_are_malformed() {
    let address = answer(|_| Some(b"220 mail.example ESMTP\r\n".to_vec()));
    assert_all(&run(&plan(address, 8)), Failure::Malformed);
}

#[test]
fn bytes_after_the_response_are_malformed() {
    let address = answer(|_| Some([response(200, "", "a"), response(200, "", "b")].concat()));
    assert_all(&run(&plan(address, 8)), Failure::Malformed);
}

#[test]
fn unexpected_status_fails_and_names_the_actual_one() {
    let address = answer(|_| Some(response(503, "", "try\nagain later")));
    let outcome = run(&plan(address, 8));
    assert_all(&outcome, Failure::Status);
    assert_eq!(outcome.totals.statuses[&503], 8);
    let first = outcome.totals.unexpected.unwrap();
    assert_eq!(
        (first.status, first.body.as_str()),
        (503, "try again later")
    );
    assert_eq!(first.request, format!("GET http://{address}/"));
}

#[test]
fn status_that_is_expected_is_no_failure() {
    let address = answer(|_| Some(response(503, "", "")));
    let mut plan = plan(address, 8);
    plan.expectations.status = StatusSet::parse("2xx,503").unwrap();
    assert_eq!(run(&plan).totals.responses, 8);
}

#[test]
fn unexpected_body_fails_and_expected_one_does_not() {
    let address = answer(ok);
    let mut plan = plan(address, 8);
    plan.expectations.body = Some("ell".into());
    assert_eq!(run(&plan).totals.responses, 8);
    plan.expectations.body = Some("other".into());
    assert_all(&run(&plan), Failure::Body);
}

#[test]
fn invalid_statuses_are_refused() {
    for text in ["", "abc", "20", "2xx,", "200-"] {
        assert!(StatusSet::parse(text).is_err(), "{text}");
    }
}
