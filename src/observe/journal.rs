//! Lines for systemd's journal: each begins with its priority, as in sd-daemon(3). The journal adds
//! the time.

use std::fmt::{self, Write as _};
use std::os::unix::fs::MetadataExt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Whether stderr leads to the journal, as systemd says.
pub fn is_stderr() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").ok();
    let stderr = std::fs::metadata("/proc/self/fd/2").ok();
    (stream.zip(stderr)).is_some_and(|(stream, stderr)| {
        // systemd's own has the same form.
        stream == format!("{}:{}", stderr.dev(), stderr.ino())
    })
}

/// Formats these lines.
pub struct JournalLines(Format<Full, ()>);

impl JournalLines {
    pub fn new() -> JournalLines {
        let format = Format::default().without_time();
        JournalLines(format.with_target(false).with_level(false))
    }
}

impl<S, N> FormatEvent<S, N> for JournalLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.0
            .format_event(context, Writer::new(&mut text), event)?;
        to.write_str(&prefixed(&text, *event.metadata().level()))
    }
}

/// Text whose lines have the priority of a level. The journal takes each for a message.
pub fn prefixed(text: &str, level: Level) -> String {
    let priority = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    };
    let mut lines = String::new();
    for line in text.lines() {
        let _ = writeln!(lines, "<{priority}>{line}");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_priority_of_its_level() {
        assert_eq!(prefixed("a\n  b\n", Level::ERROR), "<3>a\n<3>  b\n");
        assert_eq!(prefixed("a", Level::WARN), "<4>a\n");
        assert_eq!(prefixed("<0>a", Level::INFO), "<6><0>a\n");
        assert_eq!(prefixed("", Level::TRACE), "");
    }
}
