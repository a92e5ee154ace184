//! Logs what PHP writes, line by line.

mod lines;

use std::fs::File;
use std::io::ErrorKind::{Interrupted, WouldBlock};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Instant;

use serde::Deserialize;
use serde_json::Value;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tracing::{Level, debug, error, info, trace, warn};

use super::first_lines::FirstLines;
use super::message::Message;
use super::rate_limit::LineRate;
use super::slowest;
use lines::Lines;

/// Logs a message that PHP sent through its SAPI: an error, or `error_log()`.
pub fn message(message: Message, pid: u32, request_id: Option<u64>) {
    let text = message.into_text();
    slowest::note_message(&text, request_id);
    log_line(&text, pid, request_id);
}

fn log_line(text: &str, pid: u32, request_id: Option<u64>) {
    match level(text) {
        Level::ERROR => error!(target: "php", pid, request_id, "{text}"),
        Level::WARN => warn!(target: "php", pid, request_id, "{text}"),
        Level::DEBUG => debug!(target: "php", pid, request_id, "{text}"),
        Level::TRACE => trace!(target: "php", pid, request_id, "{text}"),
        Level::INFO => info!(target: "php", pid, request_id, "{text}"),
    }
}

/// The level as PHP states it, or an application that logs JSON; `info` if none is stated.
fn level(text: &str) -> Level {
    if text.starts_with('{') {
        return level_of_json(text).unwrap_or(Level::INFO);
    }
    let error = text.strip_prefix("PHP ").unwrap_or_default();
    let begins = |words: &[&str]| words.iter().any(|word| error.starts_with(word));
    if begins(&["Fatal", "Parse", "Recoverable"]) || text.starts_with("Stopped at its deadline") {
        Level::ERROR
    } else if begins(&["Warning"])
        || text.starts_with("PHP:  syntax error")
        || text.starts_with("Slow request, still running")
    {
        // The second is an ini file's.
        Level::WARN
    } else {
        Level::INFO
    }
}

/// The level of a JSON record under the keys that loggers use: `level` or `severity`, and Monolog's
/// `level_name` (its `level` is a number).
fn level_of_json(text: &str) -> Option<Level> {
    #[derive(Deserialize)]
    struct Record {
        level_name: Option<Value>,
        level: Option<Value>,
        severity: Option<Value>,
    }
    let record: Record = serde_json::from_str(text).ok()?;
    let words = [record.level_name, record.level, record.severity];
    let mut words = words.iter().flatten().filter_map(Value::as_str);
    words.find_map(|word| match word.to_ascii_lowercase().as_str() {
        "emergency" | "alert" | "critical" | "fatal" | "error" => Some(Level::ERROR),
        "warning" | "warn" => Some(Level::WARN),
        "notice" | "info" => Some(Level::INFO),
        "debug" => Some(Level::DEBUG),
        "trace" => Some(Level::TRACE),
        _ => None,
    })
}

/// Logs a worker's stdout and stderr until the worker exits. `request_id` tells which request it
/// holds, if any.
pub fn follow_worker(
    stream: pipe::Receiver,
    pid: u32,
    request_id: impl Fn() -> Option<u64> + Send + 'static,
) -> ProcessLog {
    ProcessLog::new(stream, move |line| log_line(line, pid, request_id()))
}

/// Logs the stderr of an external PHP line by line. `message` extracts the part of a line that is a
/// message, if any.
pub fn follow_installed_php(
    stream: pipe::Receiver,
    pid: u32,
    request_id: Option<u64>,
    mut message: impl FnMut(&str) -> Option<&str> + Send + 'static,
) -> ProcessLog {
    ProcessLog::new(stream, move |line| {
        if let Some(message) = message(line) {
            log_line(message, pid, request_id);
        }
    })
}

/// Logs what an external PHP writes until it exits; `event` tells which request a line belongs to.
pub fn follow_with(
    stream: pipe::Receiver,
    pid: u32,
    mut event: impl FnMut(&str) -> Option<u64> + Send + 'static,
) -> ProcessLog {
    ProcessLog::new(stream, move |line| log_line(line, pid, event(line)))
}

/// Logs what php-fpm's master process writes, and keeps its first lines.
pub fn follow_master(stream: pipe::Receiver, first: FirstLines) -> ProcessLog {
    ProcessLog::new(stream, move |line| {
        warn!(target: "php", "{line}");
        first.add(line);
    })
}

/// The same for the master process of surus-php, whose workers have a stream each. It could write a
/// line for each fork that fails.
pub fn follow_surus_php(stream: pipe::Receiver, first: FirstLines) -> ProcessLog {
    let rate = LineRate::new();
    ProcessLog::new(stream, move |line| {
        rate.log(Instant::now(), |left_out| match is_report(line) {
            true => info!(target: "php", left_out, "{line}"),
            false => warn!(target: "php", left_out, "{line}"),
        });
        first.add(line);
    })
}

/// Whether a boot script reports what it has done, and nothing is wrong.
fn is_report(line: &str) -> bool {
    line.starts_with("warm-up: ")
}

/// Logs output that a worker mixes with its frames.
pub struct Output {
    lines: Lines,
    pid: u32,
}

impl Output {
    pub fn new(pid: u32) -> Output {
        Output {
            lines: Lines::default(),
            pid,
        }
    }

    /// Logs the complete lines. The last one waits for its end.
    pub fn add(&mut self, piece: &[u8], event: Option<u64>) {
        let pid = self.pid;
        self.lines.add(piece, |line| log_line(line, pid, event));
        self.lines.settle(|line| log_line(line, pid, event));
    }

    /// Logs the last line without its end.
    pub fn settle(&mut self, event: Option<u64>) {
        let pid = self.pid;
        self.lines.end(|line| log_line(line, pid, event));
    }
}

/// The output of a process on its way to the log.
#[derive(Clone)]
pub struct ProcessLog(mpsc::Sender<Question>);

/// Asks the task that logs a stream to log everything written so far.
struct Question {
    done: oneshot::Sender<()>,
    /// The process writes no more: a last line without a line break is whole.
    is_last: bool,
}

impl ProcessLog {
    fn new(stream: pipe::Receiver, with: impl FnMut(&str) + Send + 'static) -> ProcessLog {
        let (ask, questions) = mpsc::channel(1);
        tokio::spawn(follow(stream, questions, with));
        ProcessLog(ask)
    }

    /// Returns when all lines written so far are in the log.
    pub async fn catch_up(&self) {
        self.ask(false).await;
    }

    /// Returns when everything that a process wrote before its exit is in the log. Does not wait
    /// for the end of the stream, which a child of the process may keep open.
    pub async fn end(&self) {
        self.ask(true).await;
    }

    /// Whether the stream has ended and is logged.
    pub fn has_ended(&self) -> bool {
        self.0.is_closed()
    }

    async fn ask(&self, is_last: bool) {
        let (done, is_done) = oneshot::channel();
        if self.0.send(Question { done, is_last }).await.is_ok() {
            tokio::select! {
                _ = is_done => {}
                // A closed stream has been read to its end. A question sent at that moment may stay
                // in the channel, so it must not be waited for.
                () = self.0.closed() => {}
            }
        }
    }
}

async fn follow(
    stream: pipe::Receiver,
    mut questions: mpsc::Receiver<Question>,
    mut with: impl FnMut(&str),
) {
    let mut lines = Lines::default();
    let mut buffer = vec![0; 16 * 1024];
    // Reads past tokio: its knowledge of the pipe may be older than the question.
    let mut directly = None;
    loop {
        let read = tokio::select! {
            biased;
            Some(question) = questions.recv() => {
                let read = read_all(&stream, &mut directly, &mut buffer, |piece| {
                    lines.add(piece, &mut with);
                });
                if question.is_last || matches!(read, Ok(0)) {
                    lines.end(&mut with);
                } else {
                    lines.settle(&mut with);
                }
                let _ = question.done.send(());
                read
            }
            ready = stream.readable() => ready
                .and_then(|()| stream.try_read(&mut buffer))
                .inspect(|len| {
                    lines.add(&buffer[..*len], &mut with);
                    // PHP writes the lines of one message at once.
                    if *len < buffer.len() {
                        lines.settle(&mut with);
                    }
                }),
        };
        match read {
            Ok(0) => break,
            // A pipe may never be empty; other tasks of this thread must get their turn.
            Ok(_) => tokio::task::yield_now().await,
            Err(error) if matches!(error.kind(), WouldBlock | Interrupted) => {}
            Err(error) => {
                debug!(%error, "cannot read the output of PHP");
                break;
            }
        }
    }
    lines.end(with);
}

/// The capacity of a pipe if the kernel does not report it (pipe(7)).
const USUAL_PIPE: usize = 64 * 1024;

/// Reads until the pipe is empty or closed, or one capacity of the pipe has been read. The limit
/// keeps a process that writes all the time from blocking the caller.
fn read_all(
    stream: &pipe::Receiver,
    directly: &mut Option<File>,
    buffer: &mut [u8],
    mut with: impl FnMut(&[u8]),
) -> io::Result<usize> {
    if directly.is_none() {
        *directly = Some(File::from(stream.as_fd().try_clone_to_owned()?));
    }
    let Some(pipe) = directly else {
        return Ok(0);
    };
    let max = surus_sys::process::pipe_size(&*pipe).unwrap_or(USUAL_PIPE);
    let mut sum = 0;
    loop {
        match pipe.read(buffer) {
            Err(error) if error.kind() == Interrupted => {}
            Ok(len) if len > 0 => {
                with(&buffer[..len]);
                sum += len;
                if sum >= max {
                    return Ok(len);
                }
            }
            ended => return ended,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::observe::message;

    /// The lines of what a process writes before it exits.
    async fn lines_of(input: &[u8]) -> Vec<String> {
        let (read, mut write) = io::pipe().unwrap();
        let stream = pipe::Receiver::from_owned_fd(read.into()).unwrap();
        let input = input.to_vec();
        let writing = std::thread::spawn(move || write.write_all(&input).unwrap());
        let mut lines = Vec::new();
        let (_ask, questions) = mpsc::channel(1);
        follow(stream, questions, |line| lines.push(line.to_string())).await;
        writing.join().unwrap();
        lines
    }

    #[tokio::test]
    async fn last_line_without_line_break_is_logged_while_a_child_keeps_the_stream_open() {
        let (read, mut write) = io::pipe().unwrap();
        let stream = pipe::Receiver::from_owned_fd(read.into()).unwrap();
        let first = FirstLines::default();
        let log = follow_master(stream, first.clone());
        write.write_all(b"whole\nbegun").unwrap();
        log.catch_up().await;
        assert_eq!(first.text(), "whole");
        write.write_all(b" and ended").unwrap();
        log.end().await;
        assert_eq!(first.text(), "whole\nbegun and ended");
        assert!(!log.has_ended());
    }

    #[tokio::test]
    async fn line_up_to_the_limit_stays_whole() {
        let long = "x".repeat(message::DEFAULT_MAX);
        let input = format!("one\r\n{long}\n\nlast without end");
        let lines = lines_of(input.as_bytes()).await;
        assert_eq!(lines, ["one", &long, "", "last without end"]);
    }

    /// The writer's end and the question may coincide.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn catch_up_returns_if_the_stream_ends_meanwhile() {
        for _ in 0..20_000 {
            let (read, write) = io::pipe().unwrap();
            let stream = pipe::Receiver::from_owned_fd(read.into()).unwrap();
            let written = follow_worker(stream, 1, || None);
            let ending = tokio::spawn(async move { drop(write) });
            let caught_up =
                tokio::time::timeout(std::time::Duration::from_secs(20), written.catch_up());
            caught_up.await.unwrap();
            ending.await.unwrap();
        }
    }

    #[tokio::test]
    async fn flood_without_line_breaks_is_cut_to_one_line() {
        let input = vec![b'x'; 3 * message::DEFAULT_MAX];
        let lines = lines_of(&input[..]).await;
        assert_eq!(lines.len(), 1);
        let cut = format!(
            "x [cut: {} more bytes (log.max_message)]",
            2 * message::DEFAULT_MAX
        );
        assert!(lines[0].ends_with(&cut));
    }

    #[tokio::test]
    async fn endless_stack_trace_is_cut() {
        let input = format!(
            "PHP Fatal error: x\nStack trace:\n{}",
            "#1 f()\n".repeat(100_000)
        );
        let lines = lines_of(input.as_bytes()).await;
        let sum = lines.iter().map(String::len).sum::<usize>();
        // The trace is settled with each piece that is read.
        assert!(sum < input.len() + 100 * lines.len(), "{sum}");
        assert!(
            lines
                .iter()
                .all(|line| line.len() < message::DEFAULT_MAX + 100)
        );
    }

    #[test]
    fn level_follows_the_error_of_php() {
        for (text, expected) in [
            ("PHP Fatal error:  Uncaught Exception: x", Level::ERROR),
            ("PHP Warning:  x", Level::WARN),
            ("PHP Notice:  x", Level::INFO),
            (
                "PHP:  syntax error, unexpected '(' in .user.ini",
                Level::WARN,
            ),
            ("Stopped at its deadline in a.php:3", Level::ERROR),
            ("Slow request, still running. Stack trace:", Level::WARN),
            ("anything", Level::INFO),
            (r#"{"message":"x","level":"ERROR"}"#, Level::ERROR),
            (
                r#"{"message":"x","level":400,"level_name":"CRITICAL"}"#,
                Level::ERROR,
            ),
            (r#"{"message":"x","level":"debug"}"#, Level::DEBUG),
            (r#"{"message":"x","severity":"WARNING"}"#, Level::WARN),
            (r#"{"message":"x","level":{}}"#, Level::INFO),
            ("{broken", Level::INFO),
        ] {
            assert_eq!(level(text), expected, "{text}");
        }
    }

    #[test]
    fn stack_trace_is_appended_to_its_error() {
        let trace = "PHP Fatal error:  Uncaught Exception: x in a.php:1\nStack trace:\n\
                     #0 b.php(3): f()\n#1 {main}\n\nNext Error: y in a.php:2\nStack trace:\n\
                     #0 {main}\n  thrown in a.php on line 1";
        let mut lines = Lines::default();
        let mut logged = Vec::new();
        let text = format!("before\n{trace}\nafter\n\n");
        let (one, two) = text.split_at(30);
        for piece in [one, two] {
            lines.add(piece.as_bytes(), |line| logged.push(line.to_string()));
        }
        lines.settle(|line| logged.push(line.to_string()));
        assert_eq!(logged, ["before", trace, "after", ""]);
        lines.end(|_| panic!("no line is left"));
    }
}
