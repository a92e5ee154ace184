//! The log: our own lines, and everything that PHP writes.
//!
//! What PHP writes to stdout, stderr or its error log is never protocol. It is read all the time, so that PHP never waits
//! for us, and each line goes into the log with the worker and the event that it belongs to. Nor do we wait for whoever
//! reads the log.

use std::fmt;
use std::fs::File;
use std::io::ErrorKind::{Interrupted, WouldBlock};
use std::io::{self, IsTerminal, Read as _, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tracing::dispatcher::{Dispatch, with_default};
use tracing::{debug, error, info, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

use super::named::{self, Names};
use super::writer::Writer;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How lines look.
    pub format: Format,
    /// `error`, `warn`, `info`, `debug`, `trace` or `off`; or per part, as in `info,surus::engines=debug`.
    pub level: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            format: Format::Text,
            level: "info".into(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Text,
    Json,
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl Settings {
    /// Which lines are written.
    pub fn filter(&self) -> anyhow::Result<EnvFilter> {
        let wrong = |why: &dyn fmt::Display| {
            anyhow!(
                "log.level `{}`: {why}; write `error`, `warn`, `info`, `debug`, `trace` or `off`, or per part as in \
                 `info,surus::engines=debug`",
                self.level
            )
        };
        // Where a word stands alone, the filter would take one that is no level for the name of a part.
        let mut words = self.level.split(',');
        let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
        match words.find(|word| !word.contains('=') && !is_level(word)) {
            Some(word) => Err(wrong(&format_args!("`{word}` is no level"))),
            None => EnvFilter::try_new(&self.level).map_err(|error| wrong(&error)),
        }
    }
}

/// The lines on their way to stderr.
static LOG: OnceLock<Writer<Vec<u8>>> = OnceLock::new();

/// What is still to be written at the end is waited for so long.
const LAST: Duration = Duration::from_secs(2);

/// Sends the log to stderr from here on; once per process.
pub fn start(settings: &Settings) -> anyhow::Result<()> {
    begin(settings, |to, filter| {
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(to);
        match settings.format {
            Format::Text => log
                .with_ansi(io::stderr().is_terminal())
                .with_target(false)
                .finish()
                .into(),
            Format::Json => log
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false)
                .finish()
                .into(),
        }
    })
}

/// The same, where each line names the event that it belongs to.
pub fn start_named(settings: &Settings, names: Names) -> anyhow::Result<()> {
    begin(settings, |to, filter| {
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(to)
            .event_format(named::Lines {
                names: names.clone(),
                format: settings.format,
            })
            .finish()
            .into()
    })
}

fn begin(
    settings: &Settings,
    lines: impl Fn(BoxMakeWriter, EnvFilter) -> Dispatch,
) -> anyhow::Result<()> {
    let log = lines(BoxMakeWriter::new(|| Line), settings.filter()?);
    let direct = lines(BoxMakeWriter::new(io::stderr), EnvFilter::new("info"));
    let writer = Writer::start(
        "log",
        io::stderr(),
        |mut line, text| text.append(&mut line),
        move |lost| {
            with_default(&direct, || {
                error!("{lost} lines lost: nobody read stderr");
            });
        },
    )
    .context("cannot start the thread that writes the log")?;
    if LOG.set(writer).is_err() {
        bail!("the log is started twice");
    }
    log.try_init()?;
    Ok(())
}

/// One line, written at once.
struct Line;

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(log) = LOG.get() {
            log.send(line.to_vec(), line.len());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns when stderr has what has been logged so far, or nobody seems to read it.
pub async fn written() {
    if let Some(log) = LOG.get() {
        let _ = tokio::time::timeout(LAST, log.written()).await;
    }
}

/// Ends the log, and with it a failure.
pub fn end(failure: Option<&anyhow::Error>) {
    let failure = failure.map(|failure| format!("surus: {failure:#}\n"));
    match LOG.get() {
        Some(log) => {
            if let Some(line) = failure {
                let size = line.len();
                log.send(line.into(), size);
            }
            log.wait_until_written(LAST);
        }
        None => eprint!("{}", failure.unwrap_or_default()),
    }
}

/// Longer pieces without a line break are cut, so that a script cannot fill our memory.
const LONGEST: usize = 1 << 20;

/// A message that PHP has sent through its SAPI: an error, or `error_log()`.
pub fn php_message(message: &[u8], pid: u32, event: Option<u64>) {
    let text = String::from_utf8_lossy(message);
    let text = text.trim_end_matches(['\n', '\r']);
    let level = text.strip_prefix("PHP ").unwrap_or_default();
    if level.starts_with("Fatal") || level.starts_with("Parse") || level.starts_with("Recoverable")
    {
        error!(target: "php", pid, event, "{text}");
    } else if level.starts_with("Warning") || text.starts_with("Stopped at its deadline") {
        warn!(target: "php", pid, event, "{text}");
    } else {
        info!(target: "php", pid, event, "{text}");
    }
}

/// Logs what a worker writes to stdout and stderr, until it ends. `event` says which event it holds, if any.
pub fn follow_worker(
    stream: pipe::Receiver,
    pid: u32,
    event: impl Fn() -> Option<u64> + Send + 'static,
) -> Written {
    let (asked, asks) = mpsc::channel(1);
    tokio::spawn(async move {
        let with = move |line: &str| {
            let event = event();
            info!(target: "php", pid, event, "{line}");
        };
        follow(stream, asks, with).await;
    });
    Written(asked)
}

/// Logs what PHP that is not ours writes to stderr: its messages, line by line. `message` says what of a line is one, if anything is.
pub fn follow_stock(
    stream: pipe::Receiver,
    pid: u32,
    event: Option<u64>,
    mut message: impl FnMut(&str) -> Option<&str> + Send + 'static,
) -> Written {
    let (asked, asks) = mpsc::channel(1);
    tokio::spawn(async move {
        let with = move |line: &str| {
            if let Some(message) = message(line) {
                php_message(message.as_bytes(), pid, event);
            }
        };
        follow(stream, asks, with).await;
    });
    Written(asked)
}

/// What a worker writes to stdout and stderr, on its way to the log.
pub struct Written(mpsc::Sender<oneshot::Sender<()>>);

impl Written {
    /// Returns when everything that has been written so far is in the log.
    pub async fn catch_up(&self) {
        let (done, is_done) = oneshot::channel();
        // A worker's stream that has ended has been read to its end.
        if self.0.send(done).await.is_ok() {
            let _ = is_done.await;
        }
    }
}

async fn follow(
    stream: pipe::Receiver,
    mut asks: mpsc::Receiver<oneshot::Sender<()>>,
    mut with: impl FnMut(&str),
) {
    let mut lines = Lines::default();
    let mut buffer = vec![0; 16 * 1024];
    // Read past tokio: what that knows of the pipe may be older than the question.
    let mut directly = None;
    loop {
        let read = tokio::select! {
            biased;
            Some(asked) = asks.recv() => {
                let read = read_all(&stream, &mut directly, &mut buffer, |piece| lines.add(piece, &mut with));
                let _ = asked.send(());
                read
            }
            ready = stream.readable() => ready
                .and_then(|()| stream.try_read(&mut buffer))
                .inspect(|len| lines.add(&buffer[..*len], &mut with)),
        };
        match read {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), WouldBlock | Interrupted) => {}
            Err(error) => {
                debug!(%error, "a log stream ended");
                break;
            }
        }
    }
    lines.end(with);
}

/// Reads until the pipe is empty, or at its end.
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
    loop {
        match pipe.read(buffer) {
            Err(error) if error.kind() == Interrupted => {}
            Ok(len) if len > 0 => with(&buffer[..len]),
            ended => return ended,
        }
    }
}

/// Cuts what arrives in pieces into lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn add(&mut self, mut piece: &[u8], mut with: impl FnMut(&str)) {
        while !piece.is_empty() {
            let (used, ended) = match memchr::memchr(b'\n', piece) {
                Some(at) => (at + 1, true),
                None => (piece.len(), false),
            };
            self.0.extend_from_slice(&piece[..used]);
            piece = &piece[used..];
            if ended || self.0.len() >= LONGEST {
                with(String::from_utf8_lossy(&self.0).trim_end_matches(['\n', '\r']));
                self.0.clear();
            }
        }
    }

    fn end(self, mut with: impl FnMut(&str)) {
        if !self.0.is_empty() {
            with(&String::from_utf8_lossy(&self.0));
        }
    }
}

/// Logs what a template writes, and keeps its first lines.
pub async fn follow_template(stream: OwnedFd, first: FirstLines) {
    match pipe::Receiver::from_owned_fd(stream) {
        Ok(stream) => {
            each_line(stream, |line| {
                warn!(target: "php", "{line}");
                first.add(line);
            })
            .await;
        }
        Err(error) => error!(%error, "cannot read what the template writes"),
    }
}

/// The first lines that a starting PHP has written: they say why it did not start.
#[derive(Debug, Clone, Default)]
pub struct FirstLines(Arc<Mutex<Vec<String>>>);

impl FirstLines {
    pub fn add(&self, line: &str) {
        let mut lines = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // Every worker has the same to say.
        if lines.len() < 20 && !lines.iter().any(|said| said == line) {
            lines.push(line.to_string());
        }
    }

    /// Joined by line breaks.
    pub fn text(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .join("\n")
    }
}

async fn each_line(mut stream: impl AsyncRead + Unpin, mut with: impl FnMut(&str)) {
    let mut lines = Lines::default();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) => break,
            Ok(len) => lines.add(&buffer[..len], &mut with),
            Err(error) if error.kind() == Interrupted => {}
            Err(error) => {
                debug!(%error, "a log stream ended");
                break;
            }
        }
    }
    lines.end(with);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_levels_are_levels() {
        let filter = |level: &str| {
            let level = level.into();
            Settings {
                level,
                ..Settings::default()
            }
            .filter()
            .map_err(|error| error.to_string())
        };
        for level in [
            "info",
            "WARN",
            "off",
            "info,surus::engines=debug",
            "surus=trace,php=warn",
        ] {
            assert!(filter(level).is_ok(), "{level}");
        }
        for (level, word) in [
            ("loud", "`loud`"),
            ("", "``"),
            ("inof,php=warn", "`inof`"),
            ("surus::engines", "`surus::engines`"),
            ("php=loud", "php=loud"),
        ] {
            let why = filter(level).unwrap_err();
            assert!(why.contains(word) && why.contains("`debug`"), "{why}");
        }
    }

    #[tokio::test]
    async fn lines_of_any_length_stay_whole() {
        let long = "x".repeat(100_000);
        let input = format!("one\r\n{long}\n\nlast without end");
        let mut lines = Vec::new();
        each_line(input.as_bytes(), |line| lines.push(line.to_string())).await;
        assert_eq!(lines, ["one", &long, "", "last without end"]);
    }

    #[tokio::test]
    async fn a_flood_without_line_breaks_is_cut() {
        let input = vec![b'x'; 3 * LONGEST];
        let mut count = 0;
        each_line(&input[..], |line| {
            count += 1;
            assert!(line.len() <= LONGEST + 16 * 1024);
        })
        .await;
        assert!(count >= 2);
    }
}
