//! Long-running test: `rewind` must answer `SOAK_REQUESTS` requests correctly and keep its memory
//! flat. `make soak` sends a million.

mod kinds;
mod symfony;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::Surus;

const CLIENTS: u64 = 4;

/// A request and its expected response.
struct Question {
    request: String,
    status: u16,
    body: Body,
}

enum Body {
    Is(String),
    Has(String),
}

impl Question {
    fn get(target: &str, status: u16, body: Body) -> Question {
        Question::of("GET", target, "", "", status, body)
    }

    /// `head` contains more header lines with their line ends.
    fn of(method: &str, target: &str, head: &str, sent: &str, status: u16, body: Body) -> Question {
        let length = sent.len();
        Question {
            request: format!(
                "{method} {target} HTTP/1.1\r\n\
                 Host: soak\r\n\
                 Content-Length: {length}\r\n\
                 {head}\r\n{sent}"
            ),
            status,
            body,
        }
    }

    fn is_answered_by(&self, status: u16, body: &str) -> bool {
        status == self.status
            && match &self.body {
                Body::Is(wanted) => body == wanted,
                Body::Has(wanted) => body.contains(wanted),
            }
    }
}

struct Client {
    state: u64,
    /// The last cookie received.
    cookie: Option<String>,
}

impl Client {
    /// A pseudorandom number, the same in every run.
    fn below(&mut self, limit: u64) -> u64 {
        self.state = (self.state)
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.state >> 33) % limit
    }
}

/// Lets concurrent clients send requests until the requested number is reached.
fn soak<Ask>(surus: &Surus, asks: impl Fn() -> Ask)
where
    Ask: FnMut(&mut Client) -> Question + Send,
{
    let requests = std::env::var("SOAK_REQUESTS").map_or(20_000, |n| n.parse().unwrap());
    let (asked, began) = (AtomicU64::new(0), Instant::now());
    let mut memory = Vec::new();
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (1..=CLIENTS)
            .map(|state| {
                let client = Client {
                    state,
                    cookie: None,
                };
                let ask = asks();
                let (asked, address) = (&asked, &surus.address);
                scope.spawn(move || ask_all(client, ask, address, asked, requests))
            })
            .collect();
        while clients.iter().any(|client| !client.is_finished()) {
            let done = asked.load(Ordering::Relaxed).min(requests);
            let sizes = private_sizes(surus.pid());
            println!(
                "{:5} s {done:8} requests  {sizes:?}",
                began.elapsed().as_secs()
            );
            memory.push(sizes);
            std::thread::sleep(Duration::from_secs(if requests > 100_000 { 10 } else { 1 }));
        }
        (clients.into_iter())
            .flat_map(|client| client.join().unwrap())
            .collect()
    });
    println!(
        "{requests} requests in {:?}, {} wrong",
        began.elapsed(),
        wrong.len()
    );
    assert!(
        wrong.is_empty(),
        "{} wrong answers: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(20)]
    );
    let log = surus.log();
    assert!(
        !log.contains("replaced instead") && !log.contains("worker crashed"),
        "{log}"
    );
    // Compare only after every kind of request has been served.
    let settled = &memory[memory.len() / 2..];
    let total = |sample: &Vec<(String, u64)>| sample.iter().map(|(_, kib)| kib).sum::<u64>();
    let (first, last) = (total(&settled[0]), total(settled.last().unwrap()));
    assert!(
        last <= first + first / 10 + 4096,
        "{first} KiB have become {last} KiB"
    );
}

/// Returns the failures.
fn ask_all(
    mut client: Client,
    mut ask: impl FnMut(&mut Client) -> Question,
    address: &str,
    asked: &AtomicU64,
    requests: u64,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(40)))
        .unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while asked.fetch_add(1, Ordering::Relaxed) < requests && wrong.len() < 100 {
        let question = ask(&mut client);
        stream.write_all(question.request.as_bytes()).unwrap();
        let (status, body) = answer(&mut reader, &mut client);
        if !question.is_answered_by(status, &body) {
            let text = format!("{:?}: {status} {body:?}", question.request);
            println!("wrong: {text}");
            wrong.push(text);
        }
    }
    wrong
}

fn answer(reader: &mut impl BufRead, client: &mut Client) -> (u16, String) {
    let (mut status, mut length, mut chunked) = (0, 0, false);
    loop {
        let line = line(reader);
        if line.is_empty() {
            break;
        }
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest[..3].parse().unwrap();
        } else if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        } else if let Some(cookie) = line.strip_prefix("set-cookie: ") {
            client.cookie = cookie.split(';').next().map(str::to_string);
        } else if line == "transfer-encoding: chunked" {
            chunked = true;
        }
    }
    let mut body = Vec::new();
    if chunked {
        loop {
            let size = usize::from_str_radix(&line(reader), 16).unwrap();
            let at = body.len();
            body.resize(at + size, 0);
            reader.read_exact(&mut body[at..]).unwrap();
            line(reader);
            if size == 0 {
                break;
            }
        }
    } else {
        body.resize(length, 0);
        reader.read_exact(&mut body).unwrap();
    }
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim_end().to_string()
}

/// The private memory of surus, its prototype process and the workers in KiB; the rest is shared.
fn private_sizes(pid: u32) -> Vec<(String, u64)> {
    let mut found = vec![("surus".to_string(), private(crate::common::front(pid)))];
    for prototype in children(pid)
        .into_iter()
        .filter(|pid| !crate::common::is_surus(*pid))
    {
        found.push(("prototype".into(), private(prototype)));
        for worker in children(prototype) {
            found.push(("worker".into(), private(worker)));
        }
    }
    found
}

fn private(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with("Private_Dirty:"))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum()
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    let mut found = Vec::new();
    for task in std::fs::read_dir(tasks).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(
            text.split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    found
}
