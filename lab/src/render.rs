//! Renders results as Markdown and as an HTML page: each measured number next to the published
//! one.

pub mod tables;

use std::path::{Path, PathBuf};

use surus_measure::{BarNumbers, Bars, DISTURBED_MARK, MARK, Report};

use crate::disturbance::DISTURBING;
use crate::document::Document;
use crate::experiment::Experiment;
use crate::files::Places;
use crate::history::Exceptions;
use crate::length::Size;
use crate::published::Table;
use crate::quantity::Quantity;
use crate::results::{LEAST_ROUNDS, Results};

/// Percent of the CPUs that other processes may use without a note.
const BUSY: f64 = 10.0;
pub const BUSY_NOTE: &str = "Other processes used the CPUs during this run: rates and latencies \
    say little, CPU per request says more.";

/// The pages of the newest results of an experiment in `directory`; none if it was not run yet.
pub fn newest(
    places: &Places,
    experiment: &Experiment,
    directory: &Path,
) -> anyhow::Result<Vec<Document>> {
    let Some(newest) = newest_results(places, experiment, directory)? else {
        return Ok(Vec::new());
    };
    let Newest {
        file,
        results,
        experiment,
    } = newest;
    let experiment = &experiment;
    let published = Table::read(places, experiment)?;
    let mut report = report(experiment, &results, published.as_ref());
    let name = &experiment.name;
    let json = file.file_name().unwrap_or_default().to_string_lossy();
    let exceptions = Exceptions::read(places)?;
    if let Some(reason) = exceptions.reason(&format!("{name}/{json}"), &results.revision) {
        report.notes.insert(
            0,
            format!(
                "No one can check out revision {}: {reason}",
                results.revision
            ),
        );
    }
    let links = format!("\n[Charts]({name}.html), [every sample]({name}/{json}).\n");
    let html = report.html(&serde_json::to_value(&results)?);
    let page = |end: &str, text: String| Document {
        file: directory.join(format!("{name}.{end}")),
        text,
    };
    Ok(vec![
        page("md", report.markdown() + &links),
        page("html", html),
    ])
}

/// The newest results of an experiment.
pub struct Newest {
    pub file: PathBuf,
    pub results: Results,
    /// The experiment in the words of the run.
    pub experiment: Experiment,
}

/// The newest results of an experiment in `directory`. Those of the full form come first.
pub fn newest_results(
    places: &Places,
    experiment: &Experiment,
    directory: &Path,
) -> anyhow::Result<Option<Newest>> {
    let Some(file) = newest_file(&directory.join(&experiment.name)) else {
        return Ok(None);
    };
    let results = Results::read(&file)?;
    let experiment = experiment.in_words_of(places, &results);
    Ok(Some(Newest {
        file,
        results,
        experiment,
    }))
}

/// By date, of the full form if there is one.
fn newest_file(directory: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    let files = entries.map(|entry| entry.path());
    let files = files.filter(|file| file.extension().is_some_and(|end| end == "json"));
    files.max_by_key(|file| {
        let name = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        (name.ends_with("-full"), name)
    })
}

fn report(experiment: &Experiment, results: &Results, published: Option<&Table>) -> Report {
    let loads = experiment.loads.iter();
    let mut tables: Vec<_> = loads
        .filter(|load| results.has_load(&load.name))
        .map(|load| tables::load(experiment, load, results, published))
        .collect();
    tables.extend(tables::ratios(experiment, results));
    tables.push(tables::contestants(experiment, results));
    tables.push(tables::machine(experiment, results));
    Report {
        title: experiment.title.clone(),
        subtitle: format!(
            "For readers who want numbers: {} form, {} rounds in which the contestants take turns, \
             {}, revision {}. `{}` repeats it.",
            results.size,
            results.rounds.len(),
            results.date,
            results.revision,
            results.command
        ),
        machine: results.machine.clone(),
        failure: None,
        notes: notes(experiment, results, published),
        tables,
        charts: Vec::new(),
        bars: bars(experiment, results, published),
        advice: None,
    }
}

fn notes(experiment: &Experiment, results: &Results, published: Option<&Table>) -> Vec<String> {
    let mut notes = experiment.notes.clone();
    for load in &experiment.loads {
        if !results.has_load(&load.name) {
            notes.push(format!("Added after this run: {}.", load.title));
        }
    }
    if results.size == Size::Small {
        notes.push(
            "Small form: it shows that everything works. Its rounds are too short and too few to \
             quote."
                .into(),
        );
    }
    let pairs = experiment.contestants.iter().flat_map(|entry| {
        let loads = experiment.loads.iter();
        loads.map(move |load| (entry.name.as_str(), load.name.as_str()))
    });
    let pairs: Vec<_> = pairs.collect();
    let mut each = pairs.iter();
    if each.any(|(entry, load)| results.is_generator_limited(entry, load)) {
        notes.push(format!(
            "{MARK}: the load generator used 95 % of its CPU or more in a round, so it was the \
             limit: the server can do more. Rates and latencies of such a row have no ratio."
        ));
    }
    notes.extend(notes_on_others(&pairs, results));
    let has_ratios = results.rounds.len() >= LEAST_ROUNDS;
    let caveat = surus_measure::rounds::caveat(results.rounds.len());
    notes.extend(caveat.filter(|_| has_ratios).map(|it| format!("{it}.")));
    if is_busy(experiment, results) {
        notes.push(format!("{BUSY_NOTE} The last table has their share."));
    }
    if let Some(table) = published {
        let Table {
            source,
            url,
            date,
            hardware,
            not_comparable,
            ..
        } = table;
        notes.push(format!(
            "Numbers in [brackets] are not measured here. {source} has published them ({url}, \
             {date}, {hardware}). {not_comparable}"
        ));
    }
    for entry in &experiment.contestants {
        for load in &experiment.loads {
            let turns: Vec<_> = results.turns(&entry.name).collect();
            let failures = turns
                .iter()
                .filter_map(|turn| turn.failures.get(&load.name));
            let Some(first) = failures.clone().next() else {
                continue;
            };
            // One that was never measured says so in its row.
            if results.has_sample(&entry.name, &load.name) {
                let (title, failed, all) = (&entry.title, failures.count(), turns.len());
                notes.push(format!(
                    "{title}, {}: not measured in {failed} of {all} rounds: {first}",
                    load.title
                ));
            }
        }
    }
    notes
}

/// What a page says of rounds that others have disturbed: of rows, each a contestant and a load.
fn notes_on_others(rows: &[(&str, &str)], results: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    let is_marked = |(it, load): &(&str, &str)| results.is_disturbed(it, load);
    if rows.iter().any(is_marked) {
        notes.push(format!(
            "{DISTURBED_MARK}: other processes used the CPUs in some rounds of this row, \
             {DISTURBING} % of them or more above its quietest round, and fewer than {} rounds \
             remain. Rates and latencies of such a row are of all rounds and have no ratio.",
            LEAST_ROUNDS.min(results.rounds.len())
        ));
    }
    let disturbed = rows.iter().filter(|row| !is_marked(row));
    let disturbed = disturbed.map(|(it, load)| results.disturbed_rounds(it, load));
    let left_out: Vec<_> = disturbed
        .map(|rounds| rounds.iter().filter(|it| **it).count())
        .filter(|count| *count > 0)
        .collect();
    if let Some(most) = left_out.iter().max() {
        notes.push(format!(
            "In {} of {} rows, rounds are left out in which other processes used the CPUs, \
             {DISTURBING} % of them or more above the row's quietest round: at most {most} of {}.",
            left_out.len(),
            rows.len(),
            results.rounds.len()
        ));
    }
    let is_unjudged = |(it, load): &&(&str, &str)| {
        let others = results.all_samples(it, load, Quantity::Others);
        results.has_sample(it, load) && others.iter().all(Option::is_none)
    };
    let unjudged = rows.iter().filter(is_unjudged).count();
    if unjudged > 0 && results.size == Size::Full {
        notes.push(format!(
            "{unjudged} of {} rows were too short to tell what other processes used meanwhile.",
            rows.len()
        ));
    }
    notes
}

/// Whether other processes used more of the CPUs than [`BUSY`], in the median of all samples.
pub fn is_busy(experiment: &Experiment, results: &Results) -> bool {
    let mut samples = Vec::new();
    for entry in &experiment.contestants {
        for load in &experiment.loads {
            let found = results.all_samples(&entry.name, &load.name, Quantity::Others);
            samples.extend(found.into_iter().flatten());
        }
    }
    surus_measure::rounds::median(&samples).is_some_and(|others| others > BUSY)
}

/// Two charts for each load, with the experiment's first column: measured, and published.
fn bars(experiment: &Experiment, results: &Results, published: Option<&Table>) -> Vec<Bars> {
    let mut all = Vec::new();
    let Some(quantity) = experiment.columns.first().copied() else {
        return all;
    };
    for load in &experiment.loads {
        // At a fixed rate, all answer the same number.
        let quantity = if load.rate.is_some() {
            Quantity::P99
        } else {
            quantity
        };
        let measured = experiment.contestants.iter().filter_map(|entry| {
            let median = results.median(&entry.name, &load.name, quantity)?;
            Some((entry.title.clone(), median))
        });
        let title = format!("{}: {}", load.title, quantity.label());
        all.push(Bars {
            title: title.clone(),
            numbers: BarNumbers::Measured(measured.collect()),
        });
        let theirs = published
            .into_iter()
            .flat_map(|table| table.companions(&load.name));
        let theirs = theirs.filter_map(|theirs| {
            let number = theirs.numbers.get(&quantity)?.clone();
            Some((theirs.title.to_string(), number))
        });
        all.push(Bars {
            title,
            numbers: BarNumbers::Published(theirs.collect()),
        });
    }
    all.retain(|bars| !bars.is_empty());
    all
}
