//! The log: Surus's own lines, and everything that PHP writes.
//!
//! PHP's stdout, stderr and error log are never protocol. Surus reads them all the time, so that
//! PHP never waits for Surus. Each line is logged with its worker and request. Surus never waits
//! for the reader of the log either.

use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Deserializer, Serialize};
use tracing::dispatcher::{Dispatch, with_default};
use tracing::field::Field;
use tracing::{Level, error};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{self, debug_fn};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

use super::journal;
use super::log_context;
use super::log_context::Names;
use super::log_format::Format;
use super::log_writer::Writer;
use super::message;
use super::printable::printable;
use crate::budget;
use crate::units::{self, Size};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The format of a line: `text`, `json`, `journal` or, by default, `auto`.
    pub format: Format,
    /// The file that is written in place of stderr, relative to the project.
    pub file: Option<PathBuf>,
    /// `error`, `warn`, `info`, `debug`, `trace` or `off`; or per module, as in
    /// `info,surus::engines=debug`.
    #[serde(deserialize_with = "level")]
    pub level: String,
    /// Bytes kept of one message of PHP. The line says how many more there were.
    #[serde(deserialize_with = "max_message")]
    pub max_message: Size,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            format: Format::Auto,
            file: None,
            level: "info".into(),
            max_message: Size(message::DEFAULT_MAX as u64),
        }
    }
}

fn level<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    units::checked(from, |level: &String| {
        let settings = Settings {
            level: level.clone(),
            ..Settings::default()
        };
        settings.filter().map(drop)
    })
}

fn max_message<'de, D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
    units::size("log.max_message", Size(1 << 10)..=Size(16 << 20), from)
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// lapin calls each lost connection an error, and Surus reports it itself.
const SILENT: &str = "lapin=off";

impl Settings {
    /// Which lines are written.
    pub fn filter(&self) -> anyhow::Result<EnvFilter> {
        let wrong = |why: &dyn fmt::Display| {
            anyhow!(
                "log.level `{}`: {why}; write `error`, `warn`, `info`, `debug`, `trace` or `off`, \
                 or per module as in `info,surus::engines=debug`",
                self.level
            )
        };
        // EnvFilter would take a lone word that is not a level for a module's name.
        let mut words = self.level.split(',');
        let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
        match words.find(|word| !word.contains('=') && !is_level(word)) {
            Some(word) => Err(wrong(&format_args!("`{word}` is not a level"))),
            None => EnvFilter::try_new(format!("{SILENT},{}", self.level))
                .map_err(|error| wrong(&error)),
        }
    }
}

/// Whether lines have the form of [`journal`].
static IS_JOURNAL: AtomicBool = AtomicBool::new(false);

/// Sends log lines to stderr.
static LOG: OnceLock<Writer<Vec<u8>>> = OnceLock::new();

/// At exit, lines are given up when none was written for this long.
const LAST: Duration = Duration::from_secs(2);

/// Sends the log to stderr from now on; once per process.
pub fn start(settings: &Settings) -> anyhow::Result<()> {
    begin(settings, |to, filter| plain(settings, to, filter))
}

/// Like [`start`] without a thread: lines are written at once, and lost if stderr is full. A forked
/// process goes on with [`start_writer`].
pub fn start_direct(settings: &Settings) -> anyhow::Result<()> {
    plain(
        settings,
        BoxMakeWriter::new(|| LineFormatter),
        settings.filter()?,
    )
    .try_init()?;
    Ok(())
}

/// Starts the thread that writes the lines of [`start_direct`].
pub fn start_writer(settings: &Settings) -> anyhow::Result<()> {
    message::set_max(settings.max_message.0 as usize);
    let direct = plain(
        settings,
        BoxMakeWriter::new(io::stderr),
        EnvFilter::new("info"),
    );
    write_by_thread(direct)
}

fn plain(settings: &Settings, to: BoxMakeWriter, filter: EnvFilter) -> Dispatch {
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(to);
    let is_journal = match settings.format {
        Format::Auto => settings.file.is_none() && journal::is_stderr(),
        format => format == Format::Journal,
    };
    IS_JOURNAL.store(is_journal, Ordering::Relaxed);
    match settings.format {
        Format::Json => log
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .finish()
            .into(),
        _ if is_journal => log
            .fmt_fields(debug_fn(field).delimited(" "))
            .event_format(journal::JournalLines::new())
            .finish()
            .into(),
        Format::Auto | Format::Text | Format::Journal => log
            .with_ansi(settings.file.is_none() && io::stderr().is_terminal())
            .with_target(false)
            .fmt_fields(debug_fn(field).delimited(" "))
            .finish()
            .into(),
    }
}

/// Indents continuation lines of messages, and escapes those of other fields, so that neither can
/// imitate a log line. Escapes control characters, with which a client could control the reader's
/// terminal.
fn field(to: &mut format::Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let is_message = field.name() == "message";
    if !is_message {
        write!(to, "{field}=")?;
    }
    let message = format!("{value:?}");
    for piece in message.split_inclusive(char::is_control) {
        let text = piece.trim_end_matches(char::is_control);
        to.write_str(text)?;
        for control in piece[text.len()..].chars() {
            match control {
                '\t' if is_message => to.write_char(control)?,
                '\n' if is_message => to.write_str("\n    ")?,
                '\r' if is_message => {}
                _ => write!(to, "{}", control.escape_default())?,
            }
        }
    }
    Ok(())
}

/// Like [`start`], but each line names its request.
pub fn start_named(settings: &Settings, names: Names) -> anyhow::Result<()> {
    begin(settings, |to, filter| {
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(to)
            .event_format(log_context::Lines {
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
    let log = lines(BoxMakeWriter::new(|| LineFormatter), settings.filter()?);
    // `log.max_message` is at most 16 MiB.
    message::set_max(settings.max_message.0 as usize);
    let direct = lines(BoxMakeWriter::new(io::stderr), EnvFilter::new("info"));
    write_by_thread(direct)?;
    log.try_init()?;
    Ok(())
}

/// Starts the thread that writes the lines. Its own lines go to `direct`.
fn write_by_thread(direct: Dispatch) -> anyhow::Result<()> {
    let writer = Writer::start(
        "log",
        &budget::LOG,
        io::stderr(),
        |mut line, text| text.append(&mut line),
        move |lost| {
            with_default(&direct, || {
                error!(lost, "lines of the log lost: it is full or was not read");
            });
        },
    )
    .context("cannot start the thread that writes the log")?;
    if LOG.set(writer).is_err() {
        bail!("the log has already been started");
    }
    Ok(())
}

/// Writes one line to the log.
struct LineFormatter;

impl Write for LineFormatter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match LOG.get() {
            Some(log) => log.send(line.to_vec(), line.len()),
            // Without a thread that may block, a line is lost if stderr is full.
            None if surus_sys::signals::has_room(io::stderr()) => {
                let _ = io::stderr().write_all(line);
            }
            None => {}
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns when stderr has received all lines so far, or accepts none for two seconds.
pub async fn written() {
    if let Some(log) = LOG.get() {
        log.written_unless_stalled(LAST).await;
    }
}

/// Waits until stderr has received all lines so far, at most for two seconds.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log.wait_until_written(LAST);
    }
}

/// Writes to stderr before the log is started. Unlike `eprint!`, it does not panic if stderr is
/// closed.
pub fn print(text: impl fmt::Display) {
    let _ = write!(io::stderr(), "{text}");
}

/// Where stderr led before `log.file`, until Surus has started: a failure of the start is said
/// there, too.
static BEFORE: Mutex<Option<File>> = Mutex::new(None);

/// Makes [`end`] write a failure to `file`, too.
pub fn copy_failures_to(file: File) {
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
}

/// Surus has started: a later failure is in the log alone.
pub fn has_started() {
    drop(take_before());
}

fn take_before() -> Option<File> {
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    before.take()
}

/// Ends the log, with the failure as its last line.
pub fn end(failure: Option<&anyhow::Error>) {
    let failure = failure.map(|failure| {
        let text = printable(&format!("surus: {failure:#}\n")).into_owned();
        match IS_JOURNAL.load(Ordering::Relaxed) {
            true => journal::prefixed(&text, Level::ERROR),
            false => text,
        }
    });
    let before = take_before().filter(|before| surus_sys::signals::has_room(before));
    if let (Some(line), Some(mut before)) = (&failure, before) {
        let _ = before.write_all(line.as_bytes());
    }
    match LOG.get() {
        Some(log) => {
            if let Some(line) = failure {
                let size = line.len();
                log.send(line.into(), size);
            }
            log.wait_until_written(LAST);
        }
        None => print(failure.unwrap_or_default()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn library_that_repeats_errors_is_silent_unless_it_is_asked_for() {
        let filter = |level: &str| {
            let level = level.to_string();
            let settings = Settings {
                level,
                ..Settings::default()
            };
            settings.filter().unwrap().to_string()
        };
        assert!(filter("info").contains(SILENT));
        let filter = filter("info,lapin=debug");
        assert!(
            filter.contains("lapin=debug") && !filter.contains(SILENT),
            "{filter}"
        );
    }

    #[test]
    fn message_with_line_breaks_is_indented_and_escaped() {
        static TO: std::sync::Mutex<Vec<u8>> = std::sync::Mutex::new(Vec::new());
        struct Keep;
        impl Write for Keep {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                TO.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let log = tracing_subscriber::fmt()
            .with_writer(|| Keep)
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .fmt_fields(debug_fn(field).delimited(" "))
            .finish();
        let message = "one\r\n2026-11-22T08:00:00Z  INFO paid\t\x1b[2J\u{9b}2J \0\x07ü";
        with_default(
            &log.into(),
            || error!(pid = 7, user = "a\nb", error = %"c\n\td", "{message}"),
        );
        let written = String::from_utf8(TO.lock().unwrap().clone()).unwrap();
        assert_eq!(
            written,
            "ERROR one\n    2026-11-22T08:00:00Z  INFO paid\t\\u{1b}[2J\\u{9b}2J \\u{0}\\u{7}ü \
             pid=7 user=\"a\\nb\" error=c\\n\\td\n"
        );
    }

    #[test]
    fn unknown_log_level_is_rejected() {
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
}
