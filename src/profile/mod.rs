//! A cold start as a timeline: its phases, their durations, and the PHP files it reads.

mod svg;
mod text;

use anyhow::{Context, bail};

pub use svg::draw;
pub use text::format;

/// All measurements of one start. Times are microseconds of one clock.
#[derive(Debug, Default)]
pub struct MeasuredStart {
    /// The start of Surus itself until it has read the configuration. Measured separately, because
    /// the profiler already runs.
    pub surus: u64,
    /// When the start of the PHP process was requested.
    pub requested: u64,
    /// When every worker waited for events.
    pub ready: u64,
    /// When the first request was sent, and when its response was complete.
    pub first: (u64, u64),
    /// The same for the second request.
    pub second: (u64, u64),
    /// The trace of PHP's start; see `sapi/base/startup_trace.c`.
    pub notes: StartupTrace,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct StartupTrace {
    pub marks: Vec<(u64, String)>,
    pub files: Vec<ProfiledFile>,
    /// Whether the buffer was too small for all entries.
    pub is_cut: bool,
}

/// A PHP file that was requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfiledFile {
    pub start: u64,
    pub end: u64,
    /// Whether it was compiled rather than taken from OPcache.
    pub is_compiled: bool,
    pub path: String,
}

impl StartupTrace {
    /// Reads the trace memory: a byte count, then lines.
    pub fn read(memory: &[u8]) -> anyhow::Result<StartupTrace> {
        const HEAD: usize = 8;
        let Some((head, text)) = memory.split_at_checked(HEAD) else {
            bail!("the start-up trace is too short: {} bytes", memory.len());
        };
        let used = usize::try_from(u64::from_ne_bytes(head.try_into()?))?;
        let mut notes = StartupTrace {
            is_cut: used > text.len(),
            ..StartupTrace::default()
        };
        let text = &text[..used.min(text.len())];
        // An entry that did not fit leaves zero bytes.
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        for line in String::from_utf8_lossy(text).lines() {
            let understood = match line.split_once(' ') {
                Some(("mark", rest)) => mark(rest).map(|mark| notes.marks.push(mark)),
                Some(("file", rest)) => file(rest).map(|file| notes.files.push(file)),
                _ => None,
            };
            understood
                .with_context(|| format!("invalid line in PHP's start-up trace: `{line}`"))?;
        }
        notes.marks.sort();
        notes.files.sort_by_key(|file| file.start);
        Ok(notes)
    }

    fn mark(&self, what: &str) -> Option<u64> {
        self.marks
            .iter()
            .find(|(_, name)| name == what)
            .map(|(at, _)| *at)
    }
}

fn mark(line: &str) -> Option<(u64, String)> {
    let (at, what) = line.split_once(' ')?;
    Some((at.parse().ok()?, what.to_string()))
}

fn file(line: &str) -> Option<ProfiledFile> {
    let mut words = line.splitn(4, ' ');
    Some(ProfiledFile {
        start: words.next()?.parse().ok()?,
        end: words.next()?.parse().ok()?,
        is_compiled: words.next()? == "1",
        path: words.next()?.to_string(),
    })
}

/// A phase of the start, in microseconds from the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartPhase {
    pub name: String,
    pub start: u64,
    pub end: u64,
}

/// The timeline to display.
#[derive(Debug)]
pub struct Timeline {
    /// The application and its engine.
    pub title: String,
    pub phases: Vec<StartPhase>,
    /// With times from the beginning, too.
    pub files: Vec<ProfiledFile>,
    /// When events could arrive.
    pub ready: u64,
    pub first: u64,
    pub second: u64,
    pub is_cut: bool,
}

impl Timeline {
    /// `title` names what was started; `project` is the application's directory.
    pub fn new(title: String, project: &str, measured: MeasuredStart) -> anyhow::Result<Timeline> {
        let notes = &measured.notes;
        let mark = |what: &str| {
            notes
                .mark(what)
                .with_context(|| format!("PHP's start-up trace lacks `{what}`"))
        };
        // Surus's own start comes first, as in a real cold start.
        let origin = measured.requested - measured.surus.min(measured.requested);
        let mut phases = Vec::new();
        let mut add = |name: &str, start: u64, end: u64| {
            if end > start {
                phases.push(StartPhase {
                    name: name.into(),
                    start: start - origin,
                    end: end - origin,
                });
            }
        };
        let (main, started, reported) = (mark("main")?, mark("started")?, mark("reported")?);
        add("start surus", origin, measured.requested);
        add("start and link the PHP process", measured.requested, main);
        add("start PHP: php.ini, extensions", main, started);
        add("check OPcache", started, reported);
        let (sent, answered) = measured.first;
        if let Some(boot) = notes.mark("boot") {
            let booted = mark("booted")?;
            add("fork a process for the application", reported, boot);
            for (name, start, end) in parts(notes, project, boot, booted) {
                add(name, start, end);
            }
            add("fork the workers", booted, measured.ready);
            add("first event", sent, answered);
        } else {
            add("fork the workers", reported, measured.ready);
            for (name, start, end) in parts(notes, project, sent, answered) {
                add(&format!("first event: {name}"), start, end);
            }
        }
        // The second event is not part of the start.
        let of_start = notes.files.iter().filter(|file| file.start < answered);
        let files = of_start.map(|file| ProfiledFile {
            start: file.start.saturating_sub(origin),
            end: file.end.saturating_sub(origin),
            path: file
                .path
                .strip_prefix(project)
                .map_or(file.path.as_str(), |path| path.trim_start_matches('/'))
                .into(),
            ..file.clone()
        });
        Ok(Timeline {
            title,
            files: files.collect(),
            ready: measured.ready - origin,
            first: measured.first.1 - measured.first.0,
            second: measured.second.1 - measured.second.0,
            is_cut: notes.is_cut,
            phases,
        })
    }
}

/// Splits the application's time at the end of its autoloader: the first file after it that is
/// neither a library file nor the script. One phase if there is no autoloader.
fn parts(
    notes: &StartupTrace,
    project: &str,
    start: u64,
    end: u64,
) -> Vec<(&'static str, u64, u64)> {
    let mut files = notes
        .files
        .iter()
        .filter(|file| (start..end).contains(&file.start));
    let autoloader = files.find(|file| is_autoloader(&file.path));
    let Some(autoloader) = autoloader else {
        return vec![("boot the application", start, end)];
    };
    let own =
        |file: &&ProfiledFile| file.path.starts_with(project) && !file.path.contains("/vendor/");
    let library = |file: &&ProfiledFile| {
        !is_autoloader(&file.path) && !file.path.contains("/vendor/composer/")
    };
    // The autoloader includes function files of libraries, but no classes. The first class comes
    // after it, from the application or a library.
    let next = files.find(|file| own(file) || (library(file) && is_class(&file.path)));
    let Some(next) = next else {
        return vec![("the autoloader and libraries", start, end)];
    };
    vec![
        (
            "the script and the autoloader",
            start,
            next.start.max(autoloader.end),
        ),
        (
            "framework and application",
            next.start.max(autoloader.end),
            end,
        ),
    ]
}

fn is_autoloader(path: &str) -> bool {
    path.ends_with("/vendor/autoload.php") || path.ends_with("/vendor/autoload_runtime.php")
}

/// A class file has the name of its class, which begins with a capital letter.
fn is_class(path: &str) -> bool {
    path.rsplit('/')
        .next()
        .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// Formats milliseconds for people.
fn millis(micros: u64) -> String {
    format!("{:.1} ms", micros as f64 / 1000.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const NOTES: &str = "mark 1010 main\nmark 1030 started\nmark 1040 reported\n\
        mark 1041 boot\nfile 1042 1043 1 /app/worker.php\nfile 1044 1045 1 \
        /app/vendor/autoload.php\n\
        file 1046 1047 0 /app/vendor/composer/ClassLoader.php\n\
        file 1048 1058 1 /app/vendor/a/b/functions.php\n\
        file 1060 1070 1 /app/vendor/a/b/Kernel.php\nfile 1075 1076 1 /app/src/<Odd & Co>.php\n\
        mark 1090 booted\nfile 1405 1406 1 /app/second.php\n";

    pub(crate) fn memory(text: &str, room: usize) -> Vec<u8> {
        let mut memory = (text.len() as u64).to_ne_bytes().to_vec();
        memory.extend(text.bytes());
        memory.resize(8 + room, 0);
        memory
    }

    pub(crate) fn timeline() -> Timeline {
        let measured = MeasuredStart {
            surus: 5,
            requested: 1000,
            ready: 1100,
            first: (1200, 1300),
            second: (1400, 1410),
            notes: StartupTrace::read(&memory(NOTES, 4096)).unwrap(),
        };
        Timeline::new("shop on rewind".into(), "/app", measured).unwrap()
    }

    #[test]
    fn each_phase_has_its_duration() {
        let timeline = timeline();
        let phases: Vec<_> = timeline
            .phases
            .iter()
            .map(|phase| (phase.name.as_str(), phase.start, phase.end))
            .collect();
        assert_eq!(
            phases,
            [
                ("start surus", 0, 5),
                ("start and link the PHP process", 5, 15),
                ("start PHP: php.ini, extensions", 15, 35),
                ("check OPcache", 35, 45),
                ("fork a process for the application", 45, 46),
                ("the script and the autoloader", 46, 65),
                ("framework and application", 65, 95),
                ("fork the workers", 95, 105),
                ("first event", 205, 305),
            ]
        );
        assert_eq!(
            (timeline.ready, timeline.first, timeline.second),
            (105, 100, 10)
        );
        assert_eq!(timeline.files[4].path, "vendor/a/b/Kernel.php");
        assert!(!timeline.files[2].is_compiled);
    }

    #[test]
    fn truncated_trace_drops_the_incomplete_entry() {
        let notes = StartupTrace::read(&memory(NOTES, NOTES.len())).unwrap();
        assert!(!notes.is_cut);
        let mut cut = memory(NOTES, NOTES.len() - 1);
        // The last line was not written, because it did not fit.
        let end = 8 + NOTES.rfind("file").unwrap();
        cut[end..].fill(0);
        let cut = StartupTrace::read(&cut).unwrap();
        assert!(cut.is_cut);
        assert_eq!(cut.files.len() + 1, notes.files.len());
        assert!(StartupTrace::read(&memory("nonsense\n", 100)).is_err());
        assert!(StartupTrace::read(b"x").is_err());
    }
}
