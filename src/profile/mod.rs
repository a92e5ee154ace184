//! A cold start as a timeline: which parts it has, how long each takes, and which PHP files it reads.

mod svg;
mod text;

use anyhow::{Context, bail};

pub use svg::draw;
pub use text::tell;

/// Everything that was measured of one start. Times are microseconds of one clock.
#[derive(Debug, Default)]
pub struct Measured {
    /// Surus's own start, until it has read the configuration: measured by itself, since what is profiled here runs already.
    pub surus: u64,
    /// PHP's process was asked for.
    pub asked: u64,
    /// Every worker waited for events.
    pub ready: u64,
    /// When the first request was sent, and when its answer was complete.
    pub first: (u64, u64),
    /// The same of the second.
    pub second: (u64, u64),
    /// What PHP noted: see `sapi/profile.c`.
    pub notes: Notes,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Notes {
    pub marks: Vec<(u64, String)>,
    pub files: Vec<File>,
    /// There were more than there was room for.
    pub is_cut: bool,
}

/// A PHP file that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub start: u64,
    pub end: u64,
    /// It was compiled; otherwise OPcache had it.
    pub is_compiled: bool,
    pub path: String,
}

impl Notes {
    /// Reads the memory: how many bytes are used, and lines.
    pub fn read(memory: &[u8]) -> anyhow::Result<Notes> {
        const HEAD: usize = 8;
        let Some((head, text)) = memory.split_at_checked(HEAD) else {
            bail!("the profile has {} bytes", memory.len());
        };
        let used = usize::try_from(u64::from_ne_bytes(head.try_into()?))?;
        let mut notes = Notes {
            is_cut: used > text.len(),
            ..Notes::default()
        };
        let text = &text[..used.min(text.len())];
        // What did not fit has left zeroes behind.
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        for line in String::from_utf8_lossy(text).lines() {
            let understood = match line.split_once(' ') {
                Some(("mark", rest)) => mark(rest).map(|mark| notes.marks.push(mark)),
                Some(("file", rest)) => file(rest).map(|file| notes.files.push(file)),
                _ => None,
            };
            understood.with_context(|| format!("PHP noted `{line}` of its start"))?;
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

fn file(line: &str) -> Option<File> {
    let mut words = line.splitn(4, ' ');
    Some(File {
        start: words.next()?.parse().ok()?,
        end: words.next()?.parse().ok()?,
        is_compiled: words.next()? == "1",
        path: words.next()?.to_string(),
    })
}

/// A part of the start, in microseconds from its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    pub name: String,
    pub start: u64,
    pub end: u64,
}

/// What is shown.
#[derive(Debug)]
pub struct Timeline {
    /// What was started: the application and its engine.
    pub title: String,
    pub phases: Vec<Phase>,
    /// Their times are from the beginning, too.
    pub files: Vec<File>,
    /// Until events could come.
    pub ready: u64,
    pub first: u64,
    pub second: u64,
    pub is_cut: bool,
}

impl Timeline {
    /// `title` says what was started, and `project` is where the application is.
    pub fn new(title: String, project: &str, measured: Measured) -> anyhow::Result<Timeline> {
        let notes = &measured.notes;
        let mark = |what: &str| {
            notes
                .mark(what)
                .with_context(|| format!("PHP did not note `{what}` of its start"))
        };
        // Surus's own start comes first, as it would.
        let origin = measured.asked - measured.surus.min(measured.asked);
        let mut phases = Vec::new();
        let mut add = |name: &str, start: u64, end: u64| {
            if end > start {
                phases.push(Phase {
                    name: name.into(),
                    start: start - origin,
                    end: end - origin,
                });
            }
        };
        let (main, started, reported) = (mark("main")?, mark("started")?, mark("reported")?);
        add("surus starts", origin, measured.asked);
        add(
            "the process of PHP starts, its libraries are linked",
            measured.asked,
            main,
        );
        add("PHP starts: php.ini, extensions", main, started);
        add("OPcache is asked whether it works", started, reported);
        let (sent, answered) = measured.first;
        if let Some(boot) = notes.mark("boot") {
            let booted = mark("booted")?;
            add("a process for the application is made", reported, boot);
            for (name, start, end) in parts(notes, project, boot, booted) {
                add(name, start, end);
            }
            add("the workers are made", booted, measured.ready);
            add("first event", sent, answered);
        } else {
            add("the workers are made", reported, measured.ready);
            for (name, start, end) in parts(notes, project, sent, answered) {
                add(&format!("first event: {name}"), start, end);
            }
        }
        // The second event is no part of the start.
        let of_start = notes.files.iter().filter(|file| file.start < answered);
        let files = of_start.map(|file| File {
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

/// The application's own time: its autoloader, until the first file behind it that is neither a library's nor the script itself, and
/// the rest. One part where there is no autoloader.
fn parts(notes: &Notes, project: &str, start: u64, end: u64) -> Vec<(&'static str, u64, u64)> {
    let mut files = notes
        .files
        .iter()
        .filter(|file| (start..end).contains(&file.start));
    let autoloader = files.find(|file| is_autoloader(&file.path));
    let Some(autoloader) = autoloader else {
        return vec![("the application boots", start, end)];
    };
    let own = |file: &&File| file.path.starts_with(project) && !file.path.contains("/vendor/");
    let library =
        |file: &&File| !is_autoloader(&file.path) && !file.path.contains("/vendor/composer/");
    // Libraries' own functions are loaded with the autoloader; the first class is not, and comes from either.
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

/// A file is named after its class, which begins with a capital letter.
fn is_class(path: &str) -> bool {
    path.rsplit('/')
        .next()
        .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// Milliseconds, as people read them.
fn millis(micros: u64) -> String {
    format!("{:.1} ms", micros as f64 / 1000.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const NOTES: &str = "mark 1010 main\nmark 1030 started\nmark 1040 reported\nmark 1041 boot\n\
        file 1042 1043 1 /app/worker.php\nfile 1044 1045 1 /app/vendor/autoload.php\n\
        file 1046 1047 0 /app/vendor/composer/ClassLoader.php\nfile 1048 1058 1 /app/vendor/a/b/functions.php\n\
        file 1060 1070 1 /app/vendor/a/b/Kernel.php\nfile 1075 1076 1 /app/src/<Odd & Co>.php\nmark 1090 booted\n\
        file 1405 1406 1 /app/second.php\n";

    pub(crate) fn memory(text: &str, room: usize) -> Vec<u8> {
        let mut memory = (text.len() as u64).to_ne_bytes().to_vec();
        memory.extend(text.bytes());
        memory.resize(8 + room, 0);
        memory
    }

    pub(crate) fn timeline() -> Timeline {
        let measured = Measured {
            surus: 5,
            asked: 1000,
            ready: 1100,
            first: (1200, 1300),
            second: (1400, 1410),
            notes: Notes::read(&memory(NOTES, 4096)).unwrap(),
        };
        Timeline::new("shop on rewind".into(), "/app", measured).unwrap()
    }

    #[test]
    fn every_part_has_its_time() {
        let timeline = timeline();
        let phases: Vec<_> = timeline
            .phases
            .iter()
            .map(|phase| (phase.name.as_str(), phase.start, phase.end))
            .collect();
        assert_eq!(
            phases,
            [
                ("surus starts", 0, 5),
                ("the process of PHP starts, its libraries are linked", 5, 15),
                ("PHP starts: php.ini, extensions", 15, 35),
                ("OPcache is asked whether it works", 35, 45),
                ("a process for the application is made", 45, 46),
                ("the script and the autoloader", 46, 65),
                ("framework and application", 65, 95),
                ("the workers are made", 95, 105),
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
    fn what_does_not_fit_is_not_guessed() {
        let notes = Notes::read(&memory(NOTES, NOTES.len())).unwrap();
        assert!(!notes.is_cut);
        let mut cut = memory(NOTES, NOTES.len() - 1);
        // The last line was not written, since it has no room.
        let end = 8 + NOTES.rfind("file").unwrap();
        cut[end..].fill(0);
        let cut = Notes::read(&cut).unwrap();
        assert!(cut.is_cut);
        assert_eq!(cut.files.len() + 1, notes.files.len());
        assert!(Notes::read(&memory("nonsense\n", 100)).is_err());
        assert!(Notes::read(b"x").is_err());
    }
}
