//! Failures are counted as what they are, with servers that misbehave on purpose.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::time::Duration;

use common::{answer, header_section, ok, plan, plan_of, response, run, serve};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::sys::socket::{bind, listen, socket};
use surus_load::{Pace, Plan, Request, RequestFailure, RunOutcome, Schedule, StatusSet};
use surus_load::{Stop, Url};

/// Checks that all requests failed, and in this way.
fn assert_all(outcome: &RunOutcome, failure: RequestFailure) {
    let totals = &outcome.totals;
    assert!(totals.requests > 0);
    assert_eq!(totals.failures_of(failure), totals.requests, "{totals:?}");
    // Only requests without a response in time count in the percentiles.
    let waited = match failure {
        RequestFailure::Timeout | RequestFailure::Unfinished => totals.requests,
        _ => 0,
    };
    assert_eq!((totals.responses, outcome.latencies.count()), (0, waited));
}

#[test]
fn port_without_a_listener_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let outcome = run(&plan(address, 8));
    assert_all(&outcome, RequestFailure::Refused);
    // The generator is busy with failures, which says nothing of what the server can do.
    let own_cpu_in_time = outcome.elapsed * 2;
    let busy = RunOutcome {
        own_cpu_in_time,
        ..outcome
    };
    assert!(!busy.is_generator_limited());
}

#[test]
fn connection_that_is_reset_after_the_request_is_reset() {
    // Closing with unread bytes resets the connection.
    let address = serve(|stream| {
        let mut byte = [0];
        while stream.peek(&mut byte).is_ok_and(|count| count == 0) {}
    });
    assert_all(&run(&plan(address, 8)), RequestFailure::Reset);
}

#[test]
fn connection_that_ends_in_a_body_is_closed() {
    let address = serve(|mut stream| {
        header_section(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
    });
    assert_all(&run(&plan(address, 8)), RequestFailure::Closed);
}

#[test]
fn server_that_never_answers_is_a_timeout() {
    let address = serve(|mut stream| while header_section(&mut stream).is_some() {});
    let mut plan = plan(address, 8);
    plan.timeout = Duration::from_millis(50);
    let outcome = run(&plan);
    assert_all(&outcome, RequestFailure::Timeout);
    // Percentiles without them would be those of the clients that had luck.
    assert!(outcome.latencies.percentile_ms(50.0) >= 50.0);
}

#[test]
fn body_without_end_is_unfinished() {
    let address = serve(|mut stream| {
        header_section(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 1000]).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let mut plan = plan(address, 4);
    plan.timeout = Duration::from_secs(1);
    let outcome = run(&plan);
    assert_all(&outcome, RequestFailure::Unfinished);
    assert!(outcome.totals.received > 0, "what came is counted");
    assert!(outcome.latencies.percentile_ms(50.0) >= 1000.0);
}

#[test]
fn unix_socket_with_a_full_backlog_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let socket = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::empty(),
        None,
    )
    .unwrap();
    bind(socket.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&socket, Backlog::new(0).unwrap()).unwrap();
    // The backlog takes one connection, and no one accepts it.
    let _first = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let mut request = Request::get(Url::parse("http://any/").unwrap());
    request.url.origin.unix = Some(path);
    let outcome = run(&plan_of(&[request], 8));
    assert_all(&outcome, RequestFailure::Refused);
    let error = outcome.totals.first_error.unwrap();
    assert!(error.contains("queue of the listener is full"), "{error}");
}

/// A run of 10 s that is interrupted after 100 ms. The path of its Unix socket is too long, so
/// connect() fails at once.
fn interrupted_without_connections(pace: Pace) -> (Plan, RunOutcome) {
    let mut request = Request::get(Url::parse("http://any/").unwrap());
    request.url.origin.unix = Some("x".repeat(200).into());
    let mut plan = plan_of(&[request], 0);
    plan.pace = pace;
    plan.stop = Stop::After(Duration::from_secs(10));
    let stop = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let outcome = surus_load::run(&plan, None, stop).unwrap();
    let (totals, elapsed) = (&outcome.totals, outcome.elapsed);
    assert!(outcome.is_interrupted, "{totals:?}");
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
    let failed = totals.failures_of(RequestFailure::Other);
    assert!(failed > 0 && failed == totals.requests, "{totals:?}");
    (plan, outcome)
}

#[test]
fn connection_that_fails_at_once_is_tried_again_after_a_pause() {
    let (plan, outcome) = interrupted_without_connections(Pace::Closed);
    // Each connection fails at the beginning, and 10 ms or more after each failure.
    let each = outcome.elapsed.as_millis() / 10 + 1;
    let requests = u128::from(outcome.totals.requests);
    assert!(
        requests <= plan.concurrency as u128 * each,
        "{requests} in {:?}",
        outcome.elapsed
    );
}

#[test]
fn open_loop_whose_connections_fail_at_once_can_be_interrupted() {
    // Faster than connections fail.
    let schedule = Schedule::constant(10_000_000.0);
    interrupted_without_connections(Pace::Open(schedule));
}

#[test]
fn bytes_that_are_no_response_are_malformed() {
    let address = answer(|_| Some(b"220 mail.example ESMTP\r\n".to_vec()));
    assert_all(&run(&plan(address, 8)), RequestFailure::Malformed);
}

#[test]
fn bytes_after_the_response_are_malformed() {
    let address = answer(|_| Some([response(200, "", "a"), response(200, "", "b")].concat()));
    assert_all(&run(&plan(address, 8)), RequestFailure::Malformed);
}

#[test]
fn unexpected_status_fails_and_names_the_actual_one() {
    let address = answer(|_| Some(response(503, "", "try\nagain later")));
    let outcome = run(&plan(address, 8));
    assert_all(&outcome, RequestFailure::Status);
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
    assert_all(&run(&plan), RequestFailure::Body);
}

#[test]
fn invalid_statuses_are_rejected() {
    for text in ["", "abc", "20", "2xx,", "200-", "299-200"] {
        assert!(StatusSet::parse(text).is_err(), "{text}");
    }
}

/// A plan of uploads that no buffer of a socket holds.
fn upload(address: std::net::SocketAddr, count: u64) -> Plan {
    let url = Url::parse(&format!("http://{address}/")).unwrap();
    let request = Request {
        method: "POST".into(),
        body: vec![b'x'; LARGE].into(),
        ..Request::get(url)
    };
    plan_of(&[request], count)
}

const LARGE: usize = 16 << 20;

#[test]
fn large_body_is_sent_while_the_response_is_read() {
    let address = serve(|mut stream| {
        while let Some(request) = header_section(&mut stream) {
            assert!(request.contains(&format!("Content-Length: {LARGE}\r\n")));
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
            let mut reader = stream.try_clone().unwrap().take(LARGE as u64);
            std::io::copy(&mut reader, &mut stream).unwrap();
        }
    });
    let totals = run(&upload(address, 8)).totals;
    assert_eq!((totals.responses, totals.failed()), (8, 0), "{totals:?}");
    assert!(totals.received > 8 * LARGE as u64);
    assert!(totals.connections <= 4, "connections are kept");
}

#[test]
fn answer_before_the_body_is_read_counts() {
    let address = serve(|mut stream| {
        header_section(&mut stream);
        stream.write_all(&response(413, "", "too large")).unwrap();
        // Reads no more, and keeps the connection until the test process ends.
        std::mem::forget(stream);
    });
    let mut plan = upload(address, 4);
    plan.expectations.status = StatusSet::parse("413").unwrap();
    let totals = run(&plan).totals;
    assert_eq!((totals.responses, totals.failed()), (4, 0), "{totals:?}");
    assert_eq!(totals.connections, 4, "none carries a second request");
}

#[test]
fn header_section_with_too_many_headers_says_so() {
    let headers: String = (0..200)
        .map(|number| format!("X-{number}: x\r\n"))
        .collect();
    let address = answer(move |_| Some(response(200, &headers, "")));
    let outcome = run(&plan(address, 4));
    assert_all(&outcome, RequestFailure::Malformed);
    let error = outcome.totals.first_error.unwrap();
    assert!(error.contains("more than 128 headers"), "{error}");
}

#[test]
fn client_that_backs_off_sends_no_second_request_in_time() {
    let address = answer(|_| Some(response(503, "", "")));
    let mut plan = plan(address, 0);
    plan.stop = Stop::After(Duration::from_millis(300));
    plan.back_off = Duration::from_secs(3600);
    let outcome = run(&plan);
    assert_all(&outcome, RequestFailure::Status);
    assert_eq!(outcome.totals.requests, plan.concurrency as u64);
    plan.back_off = Duration::ZERO;
    assert!(run(&plan).totals.requests > plan.concurrency as u64);
}
