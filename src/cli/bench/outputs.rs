//! Prints the report of a run in the form that was asked for.

use std::fs::{File, OpenOptions, remove_file};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use serde_json::{Value, json};
use surus_measure::Report;
use surus_measure::interval_log::{WriteInterval, write_log};

use super::measuring::Result;
use crate::cli::stdout::{print, say};

/// Forms of every report.
#[derive(Debug, Default, clap::Args)]
pub struct Output {
    /// Print JSON
    #[arg(long, group = "format")]
    json: bool,
    /// Print Markdown
    #[arg(long, group = "format")]
    markdown: bool,
    /// Write a page with charts to this file as well
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Forms of a single run.
#[derive(Debug, Default, clap::Args)]
pub struct Series {
    /// Print one line of CSV per second (not with --find-max)
    #[arg(long, group = "format", conflicts_with = "find_max")]
    csv: bool,
    /// Print an HdrHistogram log with a histogram per second (not with --find-max)
    #[arg(long, group = "format", conflicts_with = "find_max")]
    hdr: bool,
}

impl Series {
    /// Runs with a log that prints each second when it closes, if that form was asked for.
    pub fn with_log(
        &self,
        run: impl FnOnce(Option<&mut WriteInterval<'_>>) -> anyhow::Result<Result>,
    ) -> anyhow::Result<Result> {
        match self.hdr {
            true => write_log(&mut Printer, SystemTime::now(), |log| run(Some(log)))?,
            false => run(None),
        }
    }

    /// Prints the seconds of a run, if a form was asked for that consists of them.
    fn print(&self, result: &Result) -> bool {
        if self.csv {
            csv(result);
        }
        self.csv || self.hdr
    }
}

/// Writes to stdout.
struct Printer;

impl Write for Printer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        print(String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Output {
    /// Opens the page's file before a measurement, so that none is lost to a wrong path. The file
    /// keeps its content until the report replaces it. Without a report, a new file is removed.
    pub fn open(&self) -> anyhow::Result<Page<'_>> {
        let Some(path) = self.html.as_deref() else {
            return Ok(Page(None));
        };
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("cannot write {} (--html)", path.display()))?;
        Ok(Page(Some((path, file, is_new))))
    }

    /// Prints a report and writes its page.
    pub fn print(&self, report: &Report, page: Page<'_>) -> anyhow::Result<()> {
        let data = report.json();
        self.print_with(report, &data);
        page.write(&report.html(&data))
    }

    /// Prints the report of a single run and writes its page.
    pub fn print_run(
        &self,
        report: &Report,
        result: &Result,
        series: &Series,
        page: Page<'_>,
    ) -> anyhow::Result<()> {
        let mut data = report.json();
        if let Some(data) = data.as_object_mut() {
            data.insert("seconds".into(), json!(result.outcome.latencies.seconds));
            data.insert("usage".into(), json!(result.usage));
            data.insert("unexpected".into(), unexpected(result));
        }
        if !series.print(result) {
            self.print_with(report, &data);
        }
        page.write(&report.html(&data))
    }

    fn print_with(&self, report: &Report, data: &Value) {
        match self {
            _ if self.json => say!("{data:#}"),
            _ if self.markdown => print(report.markdown()),
            _ => print(report.text()),
        }
    }
}

/// The file of `--html`, and whether it is new.
pub struct Page<'a>(Option<(&'a Path, File, bool)>);

impl Drop for Page<'_> {
    fn drop(&mut self) {
        if let Some((path, _, true)) = &self.0 {
            let _ = remove_file(path);
        }
    }
}

impl Page<'_> {
    fn write(mut self, html: &str) -> anyhow::Result<()> {
        let Some((path, mut file, is_new)) = self.0.take() else {
            return Ok(());
        };
        let is_regular = file.metadata().is_ok_and(|it| it.is_file());
        let written = match is_regular {
            true => replace(path, &mut file, html),
            // A pipe or a terminal.
            false => file.write_all(html.as_bytes()),
        };
        if is_new && written.is_err() {
            let _ = remove_file(path);
        }
        written.with_context(|| format!("cannot write {} (--html)", path.display()))
    }
}

/// Writes a new file and puts it in the place of an old one, which stays if the disk is full. One
/// in a directory of others, where no file can be created, is overwritten.
fn replace(path: &Path, old: &mut File, html: &str) -> std::io::Result<()> {
    // The target of a link is replaced, and not the link.
    let path = path.canonicalize()?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut new = match tempfile::NamedTempFile::new_in(directory) {
        Ok(new) => new,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            old.set_len(0)?;
            return old.write_all(html.as_bytes());
        }
        Err(error) => return Err(error),
    };
    new.write_all(html.as_bytes())?;
    let metadata = old.metadata()?;
    // Only root can give a file away.
    let _ = fchown(new.as_file(), Some(metadata.uid()), Some(metadata.gid()));
    new.as_file().set_permissions(metadata.permissions())?;
    new.persist(&path).map_err(|error| error.error)?;
    Ok(())
}

fn unexpected(result: &Result) -> Value {
    let first = result.outcome.totals.unexpected.as_ref();
    first.map_or(
        Value::Null,
        |first| json!({"request": first.request, "status": first.status, "body": first.body}),
    )
}

fn csv(result: &Result) {
    let field = |micros: Option<u64>| micros.map_or_else(String::new, |it| it.to_string());
    say!("second,responses,failures,bytes,p50_us,p99_us,max_us");
    for second in &result.outcome.latencies.seconds {
        say!(
            "{},{},{},{},{},{},{}",
            second.at,
            second.responses,
            second.failures,
            second.bytes,
            field(second.p50_us),
            field(second.p99_us),
            field(second.max_us)
        );
    }
}
