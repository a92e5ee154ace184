//! Tests of what the generator sends: connections, protocols, cookies, weights, files of requests.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{
    answer, header_section, http2, http2_ending, ok, plan, plan_of, response, run, serve,
};
use surus_load::{Mix, Protocol, Request, RequestFailure, Url, parse_file};

/// A server that answers with `ok`, and the requests that it got.
fn recording() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let seen = received.clone();
    let address = answer(move |request| {
        seen.lock().unwrap().push(request.to_string());
        ok(request)
    });
    (address, received)
}

#[test]
fn connections_are_reused_with_keep_alive_and_opened_for_each_request_without() {
    let (address, received) = recording();
    let mut plan = plan(address, 40);
    let outcome = run(&plan);
    assert_eq!((outcome.totals.responses, outcome.totals.failed()), (40, 0));
    let each = ok("").unwrap().len() as u64;
    assert_eq!(outcome.totals.received, 40 * each, "bytes are counted");
    assert!(
        received
            .lock()
            .unwrap()
            .iter()
            .all(|request| !request.contains("Connection"))
    );

    let url = Url::parse(&format!("http://{address}/")).unwrap();
    plan.keeps_alive = false;
    plan.mix = Arc::new(Mix::new(&[Request::get(url)], false).unwrap());
    assert_eq!(run(&plan).totals.connections, 40);
    assert!(
        received.lock().unwrap()[40..]
            .iter()
            .all(|request| request.contains("Connection: close"))
    );
}

#[test]
fn connection_that_the_server_closes_politely_is_opened_again() {
    let address = answer(|_| Some(response(200, "Connection: close\r\n", "x")));
    let outcome = run(&plan(address, 20));
    assert_eq!((outcome.totals.responses, outcome.totals.failed()), (20, 0));
}

#[test]
fn file_of_many_requests_is_sent_in_its_order_and_different_weights_have_a_limit() {
    let (address, received) = recording();
    let base = Url::parse(&format!("http://{address}")).unwrap().origin;
    let lines: Vec<_> = (0..10_001).map(|number| format!("/{number}")).collect();
    let requests = parse_file(&lines.join("\n"), Some(&base)).unwrap();
    let mut plan = plan_of(&requests, 3);
    plan.concurrency = 1;
    assert_eq!(run(&plan).totals.responses, 3);
    let received = received.lock().unwrap();
    let paths = received
        .iter()
        .map(|request| request.split(' ').nth(1).unwrap());
    assert_eq!(paths.collect::<Vec<_>>(), ["/0", "/1", "/2"]);

    let mut requests = requests;
    requests[0].weight = 2;
    let error = Mix::new(&requests, true).unwrap_err();
    assert_eq!(
        error,
        "the weights of 10001 requests add up to 10002; at most 10000 are allowed unless all \
         weights are the same"
    );
}

#[test]
fn weights_decide_how_often_each_url_is_sent() {
    let (address, received) = recording();
    let request = |path: &str, weight| Request {
        weight,
        ..Request::get(Url::parse(&format!("http://{address}{path}")).unwrap())
    };
    run(&plan_of(&[request("/a", 30), request("/b", 10)], 40));
    let mut counts = BTreeMap::new();
    for request in received.lock().unwrap().iter() {
        *counts
            .entry(request.split(' ').nth(1).unwrap().to_string())
            .or_insert(0) += 1;
    }
    assert_eq!(
        counts,
        BTreeMap::from([("/a".into(), 30), ("/b".into(), 10)])
    );
}

#[test]
fn cookies_are_kept_per_connection_and_deleted_when_they_expire() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let received = seen.clone();
    let count = AtomicU64::new(0);
    let address = answer(move |request| {
        received.lock().unwrap().push(request.to_string());
        let cookie = match count.fetch_add(1, Ordering::Relaxed) {
            0 => "Set-Cookie: id=1; Path=/\r\nSet-Cookie: other=2\r\n",
            1 => "Set-Cookie: id=; Max-Age=0\r\n",
            _ => "",
        };
        Some(response(200, cookie, ""))
    });
    let mut plan = plan(address, 3);
    plan.concurrency = 1;
    plan.keeps_cookies = true;
    run(&plan);
    let seen = seen.lock().unwrap();
    assert!(!seen[0].contains("Cookie"), "{seen:?}");
    assert!(
        seen[1].contains("\r\nCookie: id=1; other=2\r\n"),
        "{seen:?}"
    );
    assert!(seen[2].contains("\r\nCookie: other=2\r\n"), "{seen:?}");
}

#[test]
fn cookies_that_are_no_ascii_come_back_as_they_were_set() {
    let address = serve(|mut stream| {
        let mut request = Vec::new();
        let mut byte = [0];
        while matches!(stream.read(&mut byte), Ok(1..)) {
            request.push(byte[0]);
            if request.ends_with(b"\r\n\r\n") {
                let cookie = b"Cookie: name=Jos\xe9\r\n";
                let has_it = request.windows(cookie.len()).any(|it| it == cookie);
                let status: &[u8] = if has_it { b"200" } else { b"401" };
                let fields = b" X\r\nContent-Length: 0\r\nSet-Cookie: name=Jos\xe9\r\n\r\n";
                let _ = stream.write_all(&[b"HTTP/1.1 ", status, fields].concat());
                request.clear();
            }
        }
    });
    for (protocol, address) in [
        (Protocol::Http1, address),
        (Protocol::Http2, http2(|tcp| async { tcp })),
    ] {
        let url = Url::parse(&format!("http://{address}/cookie")).unwrap();
        let mut plan = plan_of(&[Request::get(url)], 3);
        plan.protocol = protocol;
        plan.concurrency = 1;
        plan.keeps_cookies = true;
        let statuses = run(&plan).totals.statuses;
        assert_eq!(statuses.get(&401), Some(&1), "{protocol:?}: {statuses:?}");
        assert_eq!(statuses.get(&200), Some(&2), "{protocol:?}: {statuses:?}");
    }
}

#[test]
fn cookies_of_one_origin_are_not_sent_to_another() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let serve = |name: &'static str| {
        let seen = seen.clone();
        answer(move |request| {
            seen.lock().unwrap().push(request.to_string());
            Some(response(200, &format!("Set-Cookie: {name}=1\r\n"), ""))
        })
    };
    let addresses = [serve("a"), serve("b")];
    let requests =
        addresses.map(|address| Request::get(Url::parse(&format!("http://{address}/")).unwrap()));
    let mut plan = plan_of(&requests, 6);
    plan.concurrency = 1;
    plan.keeps_cookies = true;
    run(&plan);
    let seen = seen.lock().unwrap();
    let of = |address: SocketAddr| {
        let host = format!("Host: {address}\r\n");
        let received = seen.iter().filter(move |request| request.contains(&host));
        received.map(String::as_str).collect::<Vec<_>>()
    };
    for (address, name) in [(addresses[0], "a"), (addresses[1], "b")] {
        let received = of(address);
        assert!(!received[0].contains("Cookie"), "{received:?}");
        let own = format!("\r\nCookie: {name}=1\r\n");
        assert!(
            received[1..].iter().all(|request| request.contains(&own)),
            "{received:?}"
        );
    }
}

/// As in browsers: 4096 bytes for a cookie, and 180 cookies, of which the oldest goes.
#[test]
fn cookies_beyond_the_limits_of_browsers_are_not_kept() {
    let sent = Arc::new(Mutex::new(String::new()));
    let last = sent.clone();
    let count = AtomicU64::new(0);
    let address = answer(move |request| {
        *last.lock().unwrap() = request.to_string();
        let cookies = match count.fetch_add(1, Ordering::Relaxed) {
            number @ 0..10 => {
                let name = |cookie| format!("Set-Cookie: n{}=v\r\n", number * 20 + cookie);
                (0..20).map(name).collect::<String>()
            }
            10 => format!(
                "Set-Cookie: long={}\r\nSet-Cookie: longest={}\r\nSet-Cookie: n25=new\r\n",
                "x".repeat(4096),
                "x".repeat(4089)
            ),
            _ => String::new(),
        };
        Some(response(200, &cookies, ""))
    });
    let mut plan = plan(address, 12);
    plan.concurrency = 1;
    plan.keeps_cookies = true;
    run(&plan);
    let request = sent.lock().unwrap();
    let line = request
        .lines()
        .find_map(|line| line.strip_prefix("Cookie: "));
    let cookies: Vec<_> = line.unwrap().split("; ").collect();
    let names: Vec<_> = cookies
        .iter()
        .map(|cookie| cookie.split('=').next().unwrap())
        .collect();
    assert_eq!(names.len(), 180, "{names:?}");
    let kept = |name: &str| names.contains(&name);
    assert!(
        !kept("long") && kept("longest") && cookies.contains(&"n25=new"),
        "{names:?}"
    );
    assert!(!kept("n20") && kept("n21") && kept("n199"), "{names:?}");
}

#[test]
fn header_with_a_line_break_is_rejected() {
    let mut request = Request::get(Url::parse("http://a/").unwrap());
    request.headers.push(("X".into(), "a\r\nEvil: b".into()));
    assert!(Mix::new(&[request.clone()], true).is_err());
    request.headers[0] = ("Host".into(), "a\r\nEvil: b".into());
    assert!(Mix::new(&[request], true).is_err());
}

#[test]
fn unix_socket_carries_requests() {
    use std::io::Write;
    let path = std::env::temp_dir().join(format!("surus-load-{}", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 1024];
            let _ = std::io::Read::read(&mut stream, &mut request);
            let _ = stream.write_all(&response(200, "Connection: close\r\n", "x"));
        }
    });
    let mut request = Request::get(Url::parse("http://any/").unwrap());
    request.url.origin.unix = Some(path.clone());
    let outcome = run(&plan_of(&[request], 5));
    std::fs::remove_file(path).unwrap();
    assert_eq!((outcome.totals.responses, outcome.totals.failed()), (5, 0));
}

#[test]
fn connections_without_keep_alive_to_this_machine_come_from_many_addresses() {
    let peers = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = peers.clone();
    let address = serve(move |mut stream| {
        seen.lock()
            .unwrap()
            .insert(stream.peer_addr().unwrap().ip());
        while header_section(&mut stream).is_some() {
            stream.write_all(&response(200, "", "x")).unwrap();
        }
    });
    let request = Request::get(Url::parse(&format!("http://{address}/")).unwrap());
    for (keeps_alive, addresses) in [(true, 1), (false, 16)] {
        let mut plan = plan_of(std::slice::from_ref(&request), 40);
        (plan.keeps_alive, plan.concurrency) = (keeps_alive, 1);
        peers.lock().unwrap().clear();
        let outcome = run(&plan);
        assert_eq!((outcome.totals.responses, outcome.totals.failed()), (40, 0));
        let peers = peers.lock().unwrap();
        assert_eq!(peers.len(), addresses, "{peers:?}");
    }
}

#[test]
fn http2_responses_and_failures_are_counted() {
    let address = http2(|tcp| async { tcp });
    let run_path = |path: &str| {
        let url = Url::parse(&format!("http://{address}{path}")).unwrap();
        let mut plan = plan_of(&[Request::get(url)], 20);
        plan.protocol = Protocol::Http2;
        if path == "/silent" {
            plan.timeout = Duration::from_millis(100);
        }
        run(&plan).totals
    };
    let totals = run_path("/");
    assert_eq!(
        (totals.responses, totals.failed(), totals.connections),
        (20, 0, 4)
    );
    assert!(totals.received >= 20 * 100_000);
    // Names and values of the fields, as of responses. No header section of HTTP/1.1 was sent.
    let authority = address.to_string();
    let agent = format!("surus-bench/{}", env!("CARGO_PKG_VERSION"));
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", &authority),
        (":path", "/"),
        ("user-agent", &agent),
    ];
    let length: usize = fields
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    assert_eq!(totals.sent, 20 * length as u64);
    assert_eq!(run_path("/reset").failures_of(RequestFailure::Reset), 20);
    assert_eq!(run_path("/silent").failures_of(RequestFailure::Timeout), 20);
}

#[test]
fn te_is_sent_over_http2_only_with_the_value_that_http2_allows() {
    let address = http2(|tcp| async { tcp });
    let sent = |headers: &[(&str, &str)]| {
        let mut request = Request::get(Url::parse(&format!("http://{address}/")).unwrap());
        let owned = headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        request.headers = owned.collect();
        let mut plan = plan_of(&[request], 1);
        plan.protocol = Protocol::Http2;
        let totals = run(&plan).totals;
        assert_eq!((totals.responses, totals.failed()), (1, 0), "{totals:?}");
        totals.sent
    };
    let without = sent(&[]);
    assert_eq!(sent(&[("TE", "gzip")]), without);
    assert_eq!(
        sent(&[("TE", "Trailers")]),
        without + "tetrailers".len() as u64
    );
}

#[test]
fn http2_connection_that_the_server_ends_gracefully_costs_no_request() {
    let by_library = http2(|tcp| async { tcp });
    // Bytes, because h2 as a server announces the end one round trip ahead.
    let [abruptly, crossing] = [false, true].map(http2_ending);
    for address in [by_library, abruptly, crossing] {
        let url = Url::parse(&format!("http://{address}/leave")).unwrap();
        let mut plan = plan_of(&[Request::get(url)], 200);
        plan.protocol = Protocol::Http2;
        let totals = run(&plan).totals;
        assert_eq!((totals.responses, totals.failed()), (200, 0), "{totals:?}");
        assert!(totals.connections >= 100, "{totals:?}");
    }
}

#[test]
fn http2_against_a_server_of_http1_fails_and_ends() {
    let (address, _) = recording();
    let mut plan = plan(address, 4);
    plan.protocol = Protocol::Http2;
    plan.timeout = Duration::from_secs(2);
    let outcome = run(&plan);
    assert_eq!(outcome.totals.failed(), 4, "{:?}", outcome.totals);
}
