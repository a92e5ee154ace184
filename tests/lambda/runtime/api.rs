//! A stand-in for Lambda's Runtime API and Extensions API that tests control.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

/// Longer than any test needs, on a busy machine, too.
const LIMIT: Duration = Duration::from_secs(600);

/// Records all requests of a runtime; the test provides the events.
#[derive(Clone)]
pub struct Api {
    pub address: String,
    shared: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    calls: Vec<Call>,
    rules: Vec<Rule>,
    may_restore: bool,
    /// How many requests wait for an event.
    waiting: usize,
    /// What has arrived of a chunked body.
    seen: Vec<u8>,
    /// Limit of what is read of chunked bodies, until the test lifts it.
    max: Option<usize>,
}

impl State {
    fn has_seen(&self, text: &str) -> bool {
        let text = text.as_bytes();
        self.seen.windows(text.len()).any(|piece| piece == text)
    }
}

struct Rule {
    path: String,
    reply: Reply,
    left: usize,
}

/// A reply that replaces the usual one.
#[derive(Clone)]
pub enum Reply {
    Status(u16),
    /// Closes the connection without a reply.
    Cut,
    /// The usual reply, later.
    After(Duration),
    /// The usual reply, then closes the connection.
    Last,
}

#[derive(Clone)]
pub struct Event {
    pub id: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Event {
    /// An event with the headers that Lambda sends to every function, and a deadline that a
    /// busy machine keeps: as late as Lambda allows.
    pub fn new(id: &str, body: &Value) -> Event {
        let event = Event {
            id: id.into(),
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        };
        event
            .with("Lambda-Runtime-Aws-Request-Id", id)
            .with(
                "Lambda-Runtime-Invoked-Function-Arn",
                "arn:aws:lambda:eu-central-1:1:function:f",
            )
            .with("Lambda-Runtime-Trace-Id", &format!("Root=1-{id}"))
            .with("Content-Type", "application/json")
            .within(Duration::from_secs(900))
    }

    pub fn with(mut self, name: &str, value: &str) -> Event {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the deadline, at which Lambda would end the function.
    pub fn within(self, time: Duration) -> Event {
        let at = SystemTime::now() + time;
        let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        self.with("Lambda-Runtime-Deadline-Ms", &at.as_millis().to_string())
    }
}

/// A request of a runtime.
#[derive(Debug, Clone)]
pub struct Call {
    pub path: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The trailers, if the body was chunked.
    pub trailers: Option<Vec<(String, String)>>,
    /// The number of connections before this one.
    pub connection: usize,
}

impl Call {
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    pub fn trailer(&self, name: &str) -> Option<&str> {
        find(self.trailers.as_ref()?, name)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// Whether it reports that the event ran into its deadline.
    pub fn is_timeout(&self) -> bool {
        self.header("Lambda-Runtime-Function-Error-Type") == Some("Function.Timeout")
    }

    /// The body of an HTTP response in format 2.0.
    pub fn text(&self) -> String {
        let json = self.json();
        json["body"]
            .as_str()
            .unwrap_or_else(|| panic!("no body in {json}"))
            .to_string()
    }
}

fn find<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let field = fields
        .iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name));
    field.map(|(_, value)| value.as_str())
}

impl Api {
    pub fn start() -> Api {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let api = Api {
            address: listener.local_addr().unwrap().to_string(),
            shared: Arc::default(),
        };
        let accepting = api.clone();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (api, stream) = (accepting.clone(), stream.unwrap());
                std::thread::spawn(move || api.serve(stream, number));
            }
        });
        api
    }

    /// Delivers an event to the next request for one.
    pub fn send(&self, event: Event) {
        self.change(|state| state.events.push_back(event));
    }

    /// Changes the reply to the next `times` calls whose path ends with `path`.
    pub fn reply(&self, path: &str, times: usize, reply: Reply) {
        let path = path.to_string();
        self.change(|state| {
            state.rules.push(Rule {
                path,
                reply,
                left: times,
            });
        });
    }

    /// Lets the process continue after the snapshot.
    pub fn restore(&self) {
        self.change(|state| state.may_restore = true);
    }

    /// Waits for a call whose path ends with `path`, and removes it.
    pub fn take(&self, path: &str) -> Call {
        self.take_if(path, |call| call.path.ends_with(path))
    }

    /// Waits for the response or the error of an event.
    pub fn answer(&self, id: &str) -> Call {
        let of = format!("/invocation/{id}/");
        self.take_if(&of, |call| call.path.contains(&of))
    }

    fn take_if(&self, what: &str, is: impl Fn(&Call) -> bool) -> Call {
        self.wait(what, |state| {
            let at = state.calls.iter().position(&is)?;
            Some(state.calls.remove(at))
        })
    }

    /// Waits until this many requests wait for an event.
    pub fn until_waiting(&self, count: usize) {
        self.wait("requests for events", |state| {
            (state.waiting >= count && state.events.is_empty()).then_some(())
        });
    }

    /// Waits for a piece of a body that is still arriving.
    pub fn until_seen(&self, text: &str) {
        self.wait(text, |state| state.has_seen(text).then_some(()));
    }

    pub fn has_seen(&self, text: &str) -> bool {
        self.lock().has_seen(text)
    }

    /// Limits how much is read of chunked bodies; None lifts the limit.
    pub fn read_no_more_than(&self, max: Option<usize>) {
        self.change(|state| state.max = max);
    }

    /// Waits until all events have been taken.
    pub fn wait_taken(&self) {
        self.wait("events to be taken", |state| {
            state.events.is_empty().then_some(())
        });
    }

    /// Whether a request waits for an event.
    pub fn is_asked(&self) -> bool {
        self.lock().waiting > 0
    }

    /// The recorded calls that no test has taken.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    fn wait<T>(&self, what: &str, mut find: impl FnMut(&mut State) -> Option<T>) -> T {
        let until = Instant::now() + LIMIT;
        let mut state = self.lock();
        loop {
            if let Some(found) = find(&mut state) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "timeout while waiting for {what}; calls: {:#?}",
                state
                    .calls
                    .iter()
                    .map(|call| &call.path)
                    .collect::<Vec<_>>()
            );
            state = self.shared.1.wait_timeout(state, left).unwrap().0;
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.shared.1.notify_all();
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap()
    }

    fn serve(&self, stream: TcpStream, connection: usize) {
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        while let Some(call) = self.read(&mut lines, connection) {
            let path = call.path.clone();
            let reply = self.change(|state| {
                let at = state
                    .rules
                    .iter_mut()
                    .position(|rule| rule.left > 0 && path.ends_with(&rule.path));
                let reply = at.map(|at| {
                    state.rules[at].left -= 1;
                    state.rules[at].reply.clone()
                });
                state.calls.push(call);
                reply
            });
            match &reply {
                Some(Reply::Cut) => break,
                Some(Reply::Status(status)) => {
                    let body = r#"{"errorType":"Said","errorMessage":"by the test"}"#;
                    answer(&stream, *status, &[], body.as_bytes());
                    continue;
                }
                Some(Reply::After(time)) => std::thread::sleep(*time),
                Some(Reply::Last) | None => {}
            }
            if !self.behave(&path, &stream) || matches!(reply, Some(Reply::Last)) {
                break;
            }
        }
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }

    /// None if the runtime has closed the connection, possibly within a request.
    fn read(&self, lines: &mut impl BufRead, connection: usize) -> Option<Call> {
        let first = line(lines)?;
        let mut words = first.split(' ');
        let path = words.nth(1)?.to_string();
        let headers = fields(lines)?;
        let (mut body, mut trailers) = (Vec::new(), None);
        if find(&headers, "transfer-encoding") == Some("chunked") {
            loop {
                let size = usize::from_str_radix(&line(lines)?, 16).unwrap();
                if size == 0 {
                    break;
                }
                let mut chunk = vec![0; size];
                lines.read_exact(&mut chunk).ok()?;
                self.change(|state| state.seen.extend(&chunk));
                body.extend(chunk);
                self.wait("the test to want more", |state| {
                    state.max.is_none_or(|max| body.len() < max).then_some(())
                });
                assert_eq!(line(lines)?, "");
            }
            trailers = Some(fields(lines)?);
        } else if let Some(length) = find(&headers, "content-length") {
            body = vec![0; length.parse().unwrap()];
            lines.read_exact(&mut body).ok()?;
        }
        Some(Call {
            path,
            headers,
            body,
            trailers,
            connection,
        })
    }

    /// False if the connection is closed.
    fn behave(&self, path: &str, stream: &TcpStream) -> bool {
        match path {
            "/2018-06-01/runtime/invocation/next" => match self.next_event(stream) {
                Some(event) => answer(stream, 200, &event.headers, &event.body),
                None => return false,
            },
            "/2018-06-01/runtime/restore/next" => {
                self.wait("the restore", |state| state.may_restore.then_some(()));
                answer(stream, 200, &[], b"");
            }
            "/2020-01-01/extension/register" => {
                let id = ("Lambda-Extension-Identifier".to_string(), "e-1".to_string());
                answer(stream, 200, &[id], b"{}");
            }
            // Until the runtime ends.
            "/2020-01-01/extension/event/next" => while !is_gone(stream) {},
            _ => answer(stream, 202, &[], br#"{"status":"OK"}"#),
        }
        true
    }

    /// The next event. None if the runtime closes the connection first.
    fn next_event(&self, stream: &TcpStream) -> Option<Event> {
        self.change(|state| state.waiting += 1);
        let event = loop {
            let mut state = self.lock();
            if let Some(event) = state.events.pop_front() {
                break Some(event);
            }
            let pause = Duration::from_millis(20);
            drop(self.shared.1.wait_timeout(state, pause).unwrap());
            if is_gone(stream) {
                break None;
            }
        };
        self.change(|state| state.waiting -= 1);
        event
    }
}

/// Checks briefly whether the other end has closed the connection.
fn is_gone(stream: &TcpStream) -> bool {
    let mut byte = [0];
    stream
        .set_read_timeout(Some(Duration::from_millis(1)))
        .unwrap();
    let gone = matches!(stream.peek(&mut byte), Ok(0));
    stream.set_read_timeout(None).unwrap();
    gone
}

fn answer(mut stream: &TcpStream, status: u16, headers: &[(String, String)], body: &[u8]) {
    let mut text = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut bytes = format!("{text}\r\n").into_bytes();
    bytes.extend_from_slice(body);
    let _ = stream.write_all(&bytes);
}

fn fields(lines: &mut impl BufRead) -> Option<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let line = line(lines)?;
        if line.is_empty() {
            return Some(fields);
        }
        let (name, value) = line.split_once(':').unwrap();
        fields.push((name.to_string(), value.trim().to_string()));
    }
}

fn line(lines: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    match lines.read_line(&mut line) {
        Ok(n) if n > 0 => Some(line.trim_end().to_string()),
        _ => None,
    }
}
