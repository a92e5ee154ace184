//! Servers of AMQP that send what RabbitMQ does not: `surus work` goes on with the next connection.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::runtime::Runtime;

use super::frames::{self, BODY, HEADER, first_text, frame, header, long, method, nested, short};
use super::plain::Plain;
use super::work::Work;

/// Of a queue with groups, Surus keeps the consumer. The server knows one for each connection.
const GROUPS: &str = "group = 'n'\n";
/// The properties of a message that has none.
const NONE: [u8; 2] = [0, 0];

/// A server with one queue.
struct Hostile {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// What each consumer gets, one after the other.
    script: VecDeque<Step>,
    /// Messages that were published: their queues, properties and bodies.
    published: Vec<(String, Vec<u8>, Vec<u8>)>,
    /// The queues that were declared.
    declared: Vec<String>,
    /// How long it takes to confirm a message.
    confirms_after: Duration,
}

/// What one consumer gets.
struct Step {
    /// The number of a good job.
    job: usize,
    /// What follows once that is done.
    bytes: Vec<u8>,
    /// Then the server ends the connection.
    ends: bool,
}

impl Hostile {
    fn start(script: Vec<Step>) -> Hostile {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = Arc::new(Mutex::new(State {
            script: script.into(),
            ..State::default()
        }));
        let hostile = Hostile {
            port: listener.local_addr().unwrap().port(),
            state: state.clone(),
        };
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let state = state.clone();
                // An error ends this connection.
                std::thread::spawn(move || serve(client.unwrap(), &state));
            }
        });
        hostile
    }
}

fn serve(mut client: TcpStream, state: &Mutex<State>) -> io::Result<()> {
    client.read_exact(&mut [0; 8])?;
    let start = [&[0, 9][..], &long(&[]), &long(b"PLAIN"), &long(b"en_US")].concat();
    client.write_all(&method(0, [10, 10], &start))?;
    let mut publishing = (String::new(), Vec::new(), Vec::new());
    let mut missing = 0;
    let mut confirmed = 0_u64;
    let mut step: Option<Step> = None;
    loop {
        let got = frames::read(&mut client)?;
        let channel = got.channel;
        let (name, args) = got.method();
        let answer = match (got.kind, name) {
            (HEADER, _) => {
                let (head, properties) = got.payload.split_at(12);
                missing = u64::from_be_bytes(*head.last_chunk().unwrap()) as usize;
                publishing.1 = properties.to_vec();
                publishing.2 = Vec::new();
                continue;
            }
            (BODY, _) => {
                publishing.2.extend(&got.payload);
                missing -= got.payload.len();
                if missing > 0 {
                    continue;
                }
                let pause = state.lock().unwrap().confirms_after;
                std::thread::sleep(pause);
                state.lock().unwrap().published.push(publishing.clone());
                confirmed += 1;
                let acknowledged = [&confirmed.to_be_bytes()[..], &[0]].concat();
                method(channel, [60, 80], &acknowledged)
            }
            (_, [10, 11]) => method(0, [10, 30], &[7, 0xff, 0, 2, 0, 0, 0, 0]),
            (_, [10, 40]) => method(0, [10, 41], &[0]),
            (_, [10, 50]) => method(0, [10, 51], &[]),
            (_, [20, 10]) => method(channel, [20, 11], &[0, 0, 0, 0]),
            (_, [20, 40]) => method(channel, [20, 41], &[]),
            (_, [50, 10]) => {
                let queue = first_text(&args[2..]);
                state.lock().unwrap().declared.push(queue.clone());
                let declared = [&short(&queue)[..], &[0; 8]].concat();
                method(channel, [50, 11], &declared)
            }
            (_, [60, 10]) => method(channel, [60, 11], &[]),
            (_, [60, 20]) => {
                client.write_all(&method(channel, [60, 21], &short("tag")))?;
                step = state.lock().unwrap().script.pop_front();
                if let Some(step) = &step {
                    client.write_all(&job(step.job))?;
                }
                continue;
            }
            (_, [60, 80]) => {
                if let Some(step) = step.take() {
                    client.write_all(&step.bytes)?;
                    if step.ends {
                        client.shutdown(Shutdown::Write)?;
                    }
                }
                continue;
            }
            (_, [60, 30]) => method(channel, [60, 31], args.strip_suffix(&[0]).unwrap_or(args)),
            (_, [60, 40]) => {
                let exchange = usize::from(args[2]);
                publishing.0 = first_text(&args[3 + exchange..]);
                continue;
            }
            (_, [85, 10]) => method(channel, [85, 11], &[]),
            _ => continue,
        };
        client.write_all(&answer)?;
    }
}

/// The beginning of a message; `surus work` opens channel 1 first.
fn deliver(tag: u64) -> Vec<u8> {
    let args = [
        &short("tag")[..],
        &tag.to_be_bytes(),
        &[0, 0],
        &short("key"),
    ]
    .concat();
    method(1, [60, 60], &args)
}

fn message(tag: u64, properties: &[u8], body: &[u8]) -> Vec<u8> {
    let header = header(1, body.len() as u64, properties);
    let mut bytes = [deliver(tag), header].concat();
    for piece in body.chunks(100_000) {
        bytes.extend(frame(BODY, 1, piece));
    }
    bytes
}

fn job(number: usize) -> Vec<u8> {
    let job = json!({ "n": number }).to_string();
    message(1, &NONE, job.as_bytes())
}

#[test]
fn server_that_breaks_the_protocol_costs_a_connection_and_no_more() {
    let deep_start = [
        &[0, 9][..],
        &nested(20_000)[2..],
        &long(b"PLAIN"),
        &long(b"en_US"),
    ];
    let broken: Vec<(Vec<u8>, bool, &str)> = vec![
        // A frame of 4 GiB.
        (
            vec![BODY, 0, 1, 0xff, 0xff, 0xff, 0xff, 0],
            false,
            "at most 131072 are agreed on",
        ),
        (
            vec![BODY, 0, 1, 0, 0, 0, 9, b'x'],
            true,
            "ended within a frame",
        ),
        (
            [&frame(8, 0, &[])[..7], &[0xcd]].concat(),
            false,
            "ends with 0xcd instead of 0xce",
        ),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            false,
            "a frame of the type 72",
        ),
        (
            [deliver(2), header(1, 3, &NONE), frame(BODY, 1, b"four")].concat(),
            false,
            "a body that is longer than its header says",
        ),
        (
            [
                deliver(2),
                header(1, 30, &NONE),
                frame(BODY, 1, b"short"),
                deliver(3),
            ]
            .concat(),
            false,
            "a method within the content of a message",
        ),
        (
            [
                deliver(2),
                header(1, 1 << 60, &NONE),
                frame(BODY, 1, b"short"),
            ]
            .concat(),
            true,
            "",
        ),
        (
            method(0, [10, 10], &deep_start.concat()),
            false,
            "connection.start with malformed properties",
        ),
        (
            method(1, [50, 10], &nested(20_000)),
            false,
            "a method that only clients send",
        ),
    ];
    // A job that is done resets the pause before the next connection.
    let script = broken
        .iter()
        .enumerate()
        .map(|(number, (bytes, ends, _))| Step {
            job: number,
            bytes: bytes.clone(),
            ends: *ends,
        });
    let last = Step {
        job: broken.len(),
        bytes: Vec::new(),
        ends: false,
    };
    let hostile = Hostile::start(script.chain([last]).collect());
    let source = format!("amqp://guest:guest@127.0.0.1:{}", hostile.port);
    let plain = Plain::from(&source, GROUPS);
    let work = plain.start(&["--workers", "1"]);
    work.wait_for_minutes(3, || plain.count(&format!("done {}", broken.len())) == 1);
    let log = work.log();
    for (_, _, why) in &broken {
        assert!(log.contains(why), "{why} is not in\n{log}");
    }
    work.end();
}

/// Ends TLS and forwards to a port of this machine. Returns its own port and its certificate.
fn with_tls(runtime: &Runtime, port: u16) -> (u16, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0");
    let listener = runtime.block_on(listener).unwrap();
    let own = listener.local_addr().unwrap().port();
    runtime.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut client = acceptor.accept(client).await?;
                let mut server = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    (own, made.cert.pem())
}

#[test]
fn server_with_tls_is_used_if_its_certificate_is_trusted() {
    let step = Step {
        job: 0,
        bytes: job(1),
        ends: false,
    };
    let hostile = Hostile::start(vec![step]);
    let runtime = Runtime::new().unwrap();
    let (port, pem) = with_tls(&runtime, hostile.port);
    let plain = Plain::from(&format!("amqps://guest:guest@localhost:{port}"), GROUPS);
    let mut distrusting = Work::spawn(&plain.site, &["--workers", "1"], &[]);
    assert_eq!(distrusting.wait().code(), Some(1));
    distrusting.wait_for_log(|log| log.contains("invalid peer certificate"));
    let authorities = plain.site.tmp().join("authorities.pem");
    std::fs::write(&authorities, pem).unwrap();
    let env = [
        ("SSL_CERT_FILE", authorities.to_str().unwrap()),
        ("SURUS_ENV_NOTES", plain.notes.to_str().unwrap()),
    ];
    let work = Work::start(&plain.site, &["--workers", "1"], &env);
    work.wait_until(|| plain.count("done 1") == 1);
    work.end();
}

#[test]
fn messages_of_a_hostile_server_are_buried_with_what_could_be_kept() {
    let long_body = vec![b'x'; 250_000];
    let bytes = [
        message(1, &nested(20_000), b"{\"n\": 1}"),
        message(2, &NONE, &long_body),
        message(3, &NONE, b"{\"n\": 3}"),
    ];
    let step = Step {
        job: 0,
        bytes: bytes.concat(),
        ends: false,
    };
    let hostile = Hostile::start(vec![step]);
    let source = format!("amqp://guest:guest@127.0.0.1:{}", hostile.port);
    let plain = Plain::from(&source, &format!("{GROUPS}[work]\nmax_payload = '1K'\n"));
    let work = plain.start(&["--workers", "1"]);
    work.wait_until(|| plain.count("done 3") == 1);
    let published = || hostile.state.lock().unwrap().published.clone();
    let has = |body: &[u8]| published().iter().any(|it| it.2 == body);
    work.wait_until(|| has(b"{\"n\": 1}") && has(&long_body));
    for (queue, _, _) in published() {
        assert_eq!(queue, "default.failed");
    }
    work.end();
}

/// A server without memory takes messages late. The queue of a delayed one must not end before it.
#[test]
fn queue_of_a_delayed_job_is_declared_again_if_the_job_was_stored_late() {
    let step = Step {
        job: 0,
        bytes: message(2, &NONE, br#"{"n": 1, "do": "throw"}"#),
        ends: false,
    };
    let hostile = Hostile::start(vec![step]);
    hostile.state.lock().unwrap().confirms_after = Duration::from_secs(6);
    let source = format!("amqp://guest:guest@127.0.0.1:{}", hostile.port);
    // Without groups, the same rate keeps the consumer.
    let plain = Plain::from(&source, "rate = '1/s'\ntries = 2\nbackoff = '1s'\n");
    let work = plain.start(&["--workers", "1"]);
    let declared = || {
        let state = hostile.state.lock().unwrap();
        let declared = state.declared.iter();
        declared
            .filter(|queue| *queue == "surus.delay.default.1000")
            .count()
    };
    work.wait_until(|| declared() == 2);
    assert_eq!(hostile.state.lock().unwrap().published.len(), 1);
    work.end();
}
