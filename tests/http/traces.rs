//! Tests the traces that Surus exports, with a collector that reads OpenTelemetry's own messages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use crate::common::Surus;
use crate::wire::{Answer, Wire, site};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const PATIENCE: Duration = Duration::from_secs(60);

/// A stand-in for the collector.
struct Collector {
    address: String,
    received: mpsc::Receiver<(String, ExportTraceServiceRequest)>,
}

impl Collector {
    /// Answers the first exports with these responses, and the others with 200.
    fn start(first: &'static [&'static str]) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, received) = mpsc::channel();
        std::thread::spawn(move || {
            let mut first = first.iter();
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.unwrap());
                loop {
                    let mut head = String::new();
                    while reader.read_line(&mut head).unwrap_or(0) > 2 {}
                    let lower = head.to_ascii_lowercase();
                    let Some((_, length)) = lower.split_once("content-length: ") else {
                        break;
                    };
                    let length = length.lines().next().unwrap().parse().unwrap();
                    let mut body = vec![0; length];
                    reader.read_exact(&mut body).unwrap();
                    let answer = first
                        .next()
                        .unwrap_or(&"200 OK\r\ncontent-length: 0\r\n\r\n");
                    let answer = format!("HTTP/1.1 {answer}");
                    let _ = reader.get_mut().write_all(answer.as_bytes());
                    let request = ExportTraceServiceRequest::decode(&*body).unwrap();
                    if sender.send((head, request)).is_err() {
                        return;
                    }
                }
            }
        });
        Collector { address, received }
    }

    fn next(&self) -> (String, ExportTraceServiceRequest) {
        self.received.recv_timeout(PATIENCE).unwrap()
    }

    /// The spans of the next trace, the server's first.
    fn spans(&self) -> Vec<Span> {
        let (_, request) = self.next();
        let mut resources = request.resource_spans.into_iter();
        let mut scopes = resources.next().unwrap().scope_spans.into_iter();
        scopes.next().unwrap().spans
    }
}

fn serve(dir: &tempfile::TempDir, endpoint: &str, env: &[(&str, &str)]) -> Surus {
    let mut all = vec![
        ("SURUS_ENGINE_WORKERS", "1"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b"),
        ("OTEL_SERVICE_NAME", "shop"),
        ("OTEL_BSP_SCHEDULE_DELAY", "10"),
    ];
    all.extend(env);
    Surus::spawn(dir.path(), &[], &all).unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
}

fn ask(surus: &Surus, target: &str, headers: &str) -> Answer {
    let request = format!("GET {target} HTTP/1.1\r\nHost: a.test:81\r\n{headers}\r\n");
    Wire::connect(surus).ask(&request).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute(list: &[KeyValue], key: &str) -> Option<String> {
    let found = list.iter().find(|attribute| attribute.key == key)?;
    match found.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    }
}

fn metrics(socket: &str) -> String {
    let mut admin = UnixStream::connect(socket).unwrap();
    admin
        .write_all(b"GET /-/metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    admin.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn request_is_a_span_of_its_caller_and_php_continues_it() {
    let collector = Collector::start(&[]);
    let dir = site();
    let surus = serve(&dir, &format!("http://{}", collector.address), &[]);
    let headers = format!("traceparent: {PARENT}\r\ntracestate: a=1\r\ntracestate: b=2\r\n");
    let answer = ask(&surus, "/x?a=1&sig=secret", &headers);
    let php = answer.seen("TRACEPARENT");
    assert_eq!(answer.seen("HTTP_TRACEPARENT"), php);
    assert_eq!(answer.seen("TRACESTATE"), "a=1,b=2");
    assert_eq!(answer.seen("HTTP_TRACESTATE"), "a=1,b=2");

    let (head, request) = collector.next();
    assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
    assert!(
        head.contains("application/x-protobuf") && head.contains("x-key: a b"),
        "{head}"
    );
    let resource = &request.resource_spans[0];
    let service = &resource.resource.as_ref().unwrap().attributes;
    assert_eq!(attribute(service, "service.name").unwrap(), "shop");
    let spans = &resource.scope_spans[0].spans;
    let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["GET /index.php", "queue", "php", "send"]);
    let own = &spans[0];
    assert_eq!(
        (own.kind, hex(&own.parent_span_id)),
        (2, "00f067aa0ba902b7".into())
    );
    for span in spans {
        assert_eq!(hex(&span.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(span.start_time_unix_nano >= own.start_time_unix_nano);
        assert_eq!(span.trace_state, "a=1,b=2");
    }
    assert!(
        spans[1..]
            .iter()
            .all(|span| span.parent_span_id == own.span_id)
    );
    let expected = format!("00-{}-{}-01", hex(&own.trace_id), hex(&spans[2].span_id));
    assert_eq!(php, expected);
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.route", "/index.php"),
        ("url.path", "/x"),
        ("url.query", "a=1&sig=REDACTED"),
        ("url.scheme", "http"),
        ("server.address", "a.test"),
        ("server.port", "81"),
        ("client.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("http.response.status_code", "200"),
        ("surus.engine", "classic"),
    ] {
        assert_eq!(
            attribute(&own.attributes, key).as_deref(),
            Some(value),
            "{key}"
        );
    }
    assert!(own.status.as_ref().is_none_or(|status| status.code == 0));
}

#[test]
fn malformed_context_begins_a_trace_and_an_unsampled_one_is_passed_on_without_spans() {
    let collector = Collector::start(&[]);
    let dir = site();
    let surus = serve(&dir, &format!("http://{}", collector.address), &[]);
    let answer = ask(
        &surus,
        "/",
        &format!("traceparent: {}\r\n", PARENT.replace("-01", "-00")),
    );
    let php = answer.seen("TRACEPARENT");
    assert!(
        php.starts_with(&PARENT[..36]) && php.ends_with("-00"),
        "{php}"
    );
    let bad = format!(
        "traceparent: {}\r\ntracestate: a=1\r\n",
        PARENT.to_uppercase()
    );
    let answer = ask(&surus, "/?status=503", &bad);
    assert_eq!(answer.seen("TRACESTATE"), "null");
    // The first one that is exported.
    let spans = collector.spans();
    let own = &spans[0];
    assert_eq!(own.parent_span_id, Vec::<u8>::new());
    assert!(answer.seen("TRACEPARENT").contains(&hex(&own.trace_id)));
    assert_eq!(own.status.as_ref().unwrap().code, 2);
    assert_eq!(attribute(&own.attributes, "error.type").unwrap(), "503");
    let answer = ask(&surus, "/static.txt", "");
    assert_eq!(answer.status, 200);
    let names: Vec<String> = collector
        .spans()
        .into_iter()
        .map(|span| span.name)
        .collect();
    assert_eq!(names, ["GET", "send"]);
}

#[test]
fn route_is_the_path_of_the_rule_or_of_the_script() {
    let collector = Collector::start(&[]);
    let dir = site();
    let rules = "[[route]]\nprefix = '/old'\nredirect = '/new'\n\
                 [[route]]\nsuffix = '.json'\nengine = 'api'\n\
                 [[route]]\nregex = '^/v[0-9]+/'\ndeny = true\n\
                 [pool.api]\nworkers = 1\n";
    std::fs::write(dir.path().join("surus.toml"), rules).unwrap();
    std::fs::write(dir.path().join("page.php"), "<?php echo 'page';").unwrap();
    let surus = serve(&dir, &format!("http://{}", collector.address), &[]);
    for (target, status, route) in [
        ("/old/7", 302, Some("/old*")),
        ("/a.json", 200, Some("*.json")),
        ("/v1/x", 403, Some("^/v[0-9]+/")),
        ("/page.php?id=7", 200, Some("/page.php")),
        ("/any/path", 200, Some("/index.php")),
        ("/static.txt", 200, None),
    ] {
        assert_eq!(ask(&surus, target, "").status, status, "{target}");
        let own = &collector.spans()[0];
        let found = attribute(&own.attributes, "http.route");
        assert_eq!(found.as_deref(), route, "{target}");
        let name = route.map_or("GET".into(), |route| format!("GET {route}"));
        assert_eq!(own.name, name, "{target}");
    }
}

#[test]
fn without_a_collector_php_gets_the_headers_of_the_client() {
    let dir = site();
    let surus = serve(&dir, "", &[]);
    let answer = ask(&surus, "/", &format!("traceparent: {PARENT}\r\n"));
    assert_eq!(answer.seen("HTTP_TRACEPARENT"), PARENT);
    assert_eq!(answer.seen("TRACEPARENT"), "null");
}

#[test]
fn last_traces_are_exported_at_the_end() {
    let collector = Collector::start(&[]);
    let dir = site();
    let endpoint = format!("http://{}", collector.address);
    let mut surus = serve(&dir, &endpoint, &[("OTEL_BSP_SCHEDULE_DELAY", "600000")]);
    ask(&surus, "/", "");
    surus.signal("TERM");
    assert!(surus.wait().success());
    assert_eq!(collector.spans()[0].name, "GET /index.php");
}

#[test]
fn collector_that_is_busy_gets_the_batch_again_and_its_rejections_are_counted() {
    let collector = Collector::start(&[
        "503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n",
        // partial_success { rejected_spans: 1 }
        "200 OK\r\ncontent-length: 4\r\n\r\n\x0a\x02\x08\x01",
    ]);
    let dir = site();
    let socket = dir.path().join("admin.sock");
    let admin = format!("unix:{}", socket.display());
    let endpoint = format!("http://{}", collector.address);
    let surus = serve(&dir, &endpoint, &[("SURUS_ADMIN_LISTEN", &admin)]);
    ask(&surus, "/", "");
    assert_eq!(collector.next().1, collector.next().1);
    let has = |text: &str, result: &str, count: u32| {
        text.contains(&format!(
            "surus_trace_spans_total{{result=\"{result}\"}} {count}\n"
        ))
    };
    for _ in 0..6000 {
        let text = metrics(socket.to_str().unwrap());
        if has(&text, "exported", 3) && has(&text, "rejected", 1) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{}", metrics(socket.to_str().unwrap()));
}

#[test]
fn collector_that_never_answers_costs_no_request_and_lost_spans_are_counted() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let dir = site();
    let socket = dir.path().join("admin.sock");
    let admin = format!("unix:{}", socket.display());
    let mut surus = serve(
        &dir,
        &endpoint,
        &[
            ("SURUS_ADMIN_LISTEN", &admin),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "2"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "600000"),
        ],
    );
    for _ in 0..20 {
        assert_eq!(ask(&surus, "/", "").status, 200);
    }
    let text = metrics(socket.to_str().unwrap());
    assert!(
        text.contains("surus_trace_spans_total{result=\"dropped\"}"),
        "{text}"
    );
    surus.signal("TERM");
    assert!(surus.wait().success());
    surus.wait_for_log(|log| log.contains("the last traces could not be sent in time"));
}
