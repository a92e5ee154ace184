//! Writes what documents show of published results, between two comments.
//!
//! These are the pages of results, README's chart and table, the lists in `docs/performance.md`,
//! and tables in pages of one experiment.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use surus_measure::FAILED_MARK;

use crate::chart;
use crate::document::Document;
use crate::excerpt;
use crate::experiment::{Experiment, Load, Readme};
use crate::files::Places;
use crate::generators;
use crate::goals;
use crate::history;
use crate::legend;
use crate::length::Size;
use crate::quantity::Quantity;
use crate::render::tables::{self, Under};
use crate::render::{self, newest_results};
use crate::results::Results;

/// Refuses a document that differs from what would be written. Without the history, says that this
/// was not checked, because pages of earlier runs have words from there.
pub fn check(places: &Places, experiments: &[Experiment], directory: &Path) -> anyhow::Result<()> {
    if let Some(why) = history::lacks_history(&places.repository) {
        eprintln!("pages of results: not checked: {why}");
        return Ok(());
    }
    let mut documents = quoting(places, experiments, directory)?;
    for experiment in experiments {
        documents.extend(render::newest(places, experiment, directory)?);
    }
    for document in documents {
        ensure!(
            document.is_current(),
            "{} differs from what results and experiments say; `make lab-docs` writes it again",
            document.file.display()
        );
    }
    Ok(())
}

/// The documents that quote results in `directory`. One without the comments stays as it is.
pub fn quoting(
    places: &Places,
    experiments: &[Experiment],
    directory: &Path,
) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    // Documents link to this directory only.
    if !directory.ends_with("docs/results") {
        return Ok(documents);
    }
    let mut list = String::from("| experiment | measured | |\n|---|---|---|\n");
    let mut is_empty = true;
    for experiment in experiments {
        let Some(newest) = newest_results(places, experiment, directory)? else {
            let (title, command) = (&experiment.title, experiment.command(Size::Full));
            list += &format!("| {title} | not run yet: `{command}` | |\n");
            continue;
        };
        is_empty = false;
        let (experiment, results) = (&newest.experiment, &newest.results);
        let name = &experiment.name;
        list += &format!(
            "| {} | {}, {} form, `{}` | [numbers](results/{name}.md), \
             [charts](results/{name}.html) |\n",
            experiment.title, results.date, results.size, results.command
        );
        if let Some(contestant) = &experiment.excerpt {
            let page = format!("docs/performance-{name}.md");
            let text = excerpt::table(experiment, contestant, results);
            let page = places.repository.join(page);
            documents.extend(with_parts(page, &[("excerpt", text)]));
        }
        if let Some(readme) = &experiment.readme {
            let title = format!(
                "Requests/s to {}'s",
                title(experiment, &readme.contestants[0])
            );
            documents.push(Document {
                file: directory.join(format!("{name}.svg")),
                text: chart::draw(&title, &groups(experiment, readme, results)),
            });
            let text = format!(
                "![{title}, {}. The table has the numbers.](docs/results/{name}.svg)\n\n",
                connections(experiment, readme)
            );
            let text = text + &table(experiment, readme, results);
            let readme = places.repository.join("README.md");
            documents.extend(with_parts(readme, &[("benchmark", text)]));
        }
    }
    if !is_empty {
        let page = places.repository.join("docs/performance.md");
        let parts = [
            ("results", list),
            ("goals", goals::section(places, experiments, directory)?),
            ("generators", generators::section(directory)?),
        ];
        documents.extend(with_parts(page, &parts));
    }
    Ok(documents)
}

fn table(experiment: &Experiment, readme: &Readme, results: &Results) -> String {
    let titles = readme
        .contestants
        .iter()
        .map(|name| title(experiment, name));
    let mut text = format!("| | {} |\n|---|", titles.collect::<Vec<_>>().join(" | "));
    text += &"---:|".repeat(readme.contestants.len());
    text.push('\n');
    for load in loads(experiment, readme) {
        let rates = readme.contestants.iter();
        let rates: Vec<_> = rates
            .map(|name| results.median(name, &load.name, Quantity::Rate))
            .collect();
        let best = best(readme, load, results);
        let cells = readme.contestants.iter().zip(rates).map(|(name, rate)| {
            let Some(rate) = rate else {
                return "–".to_string();
            };
            let cpu = results.median(name, &load.name, Quantity::Cpu);
            let cpu = cpu.map_or("–".into(), |cpu| cpu.short());
            let failed = results.failed_requests(name, &load.name);
            let mark = failed.map_or_else(String::new, |_| format!(" {FAILED_MARK}"));
            let cell = format!("{}{mark} · {cpu}", rate.short());
            match best == Some(name.as_str()) {
                true => format!("**{cell}**"),
                false => cell,
            }
        });
        let cells = cells.collect::<Vec<_>>().join(" | ");
        text += &format!("| {} | {cells} |\n", load.title);
    }
    for note in notes(experiment, readme, results, &text) {
        text += &format!("\n{note}\n");
    }
    text += &format!(
        "\nRequests/s · CPU of all server processes per request, with {}. {}, {}. Medians of {} \
         rounds in which all take turns; the load generator runs on the same CPUs. {}. \
         `sudo {}`\n",
        connections(experiment, readme),
        results.machine,
        results.date,
        results.rounds.len(),
        versions(readme, results).join("; "),
        results.command
    );
    text
}

/// What a reader must know of the table's numbers.
fn notes(experiment: &Experiment, readme: &Readme, results: &Results, table: &str) -> Vec<String> {
    let mut notes = legend::of(table);
    let rows = loads(experiment, readme).flat_map(|load| {
        let names = readme.contestants.iter();
        names.map(move |name| (title(experiment, name), name.as_str(), load))
    });
    let failed = rows.filter_map(|(title, name, load)| {
        let failed = results.failed_requests(name, &load.name)?;
        Some(format!("{title}, {}, {}", load.title, failed.short()))
    });
    let failed: Vec<_> = failed.collect();
    if !failed.is_empty() {
        let failed = failed.join("\n- ");
        notes.push(format!("{FAILED_MARK}: requests failed:\n\n- {failed}"));
    }
    if render::is_busy(experiment, results) {
        notes.push(render::BUSY_NOTE.into());
    }
    notes
}

/// The contestant with the highest rate, if the interval of its ratio to the second best excludes
/// 1. Unknown if one of them has a mark.
fn best<'a>(readme: &'a Readme, load: &'a Load, results: &Results) -> Option<&'a str> {
    let rate = |name: &'a String| {
        let rate = results.median(name, &load.name, Quantity::Rate)?;
        Some((name.as_str(), rate))
    };
    let mut rates: Vec<_> = readme.contestants.iter().filter_map(rate).collect();
    if rates.iter().any(|(_, rate)| rate.is_marked()) {
        return None;
    }
    rates.sort_by(|(_, a), (_, b)| b.value().total_cmp(&a.value()));
    let [(first, _), (second, _), ..] = rates[..] else {
        return None;
    };
    let under = |contestant| Under {
        contestant,
        load: &load.name,
    };
    let ratio = tables::ratio(results, Quantity::Rate, [first, second].map(under));
    ratio
        .is_some_and(|ratio| ratio.shows_difference())
        .then_some(first)
}

/// The chart's groups: one for each load, in each the contestants that were measured.
fn groups(experiment: &Experiment, readme: &Readme, results: &Results) -> Vec<chart::Group> {
    let groups = loads(experiment, readme).map(|load| {
        let bars = readme.contestants.iter().enumerate();
        let bars = bars.filter_map(|(place, name)| {
            let rate = results.median(name, &load.name, Quantity::Rate)?;
            let title = title(experiment, name);
            let title = match results.failed_requests(name, &load.name) {
                Some(_) => format!("{title} {FAILED_MARK}"),
                None => title.to_string(),
            };
            Some((title, place, rate))
        });
        chart::Group {
            title: load.title.clone(),
            bars: bars.collect(),
        }
    });
    groups.collect()
}

fn loads<'a>(
    experiment: &'a Experiment,
    readme: &'a Readme,
) -> impl Iterator<Item = &'a Load> + 'a {
    let names = readme.loads.iter();
    names.filter_map(|name| experiment.loads.iter().find(|load| load.name == *name))
}

fn connections(experiment: &Experiment, readme: &Readme) -> String {
    let first = loads(experiment, readme).next();
    format!("{} connections", first.map_or(0, |load| load.connections))
}

fn title<'a>(experiment: &'a Experiment, contestant: &'a str) -> &'a str {
    let mut entries = experiment.contestants.iter();
    let entry = entries.find(|entry| entry.name == contestant);
    entry.map_or(contestant, |entry| &entry.title)
}

/// The versions of the shown contestants, each once.
fn versions(readme: &Readme, results: &Results) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in &readme.contestants {
        let facts = results.contestants.get(name);
        for version in facts.iter().flat_map(|facts| &facts.versions) {
            // As in "nginx version: nginx/1.22.1".
            let version = version.rsplit("version: ").next().unwrap_or(version);
            if !all.iter().any(|one| one == version) {
                all.push(version.to_string());
            }
        }
    }
    all
}

/// A document in which other text stands between `<!-- NAME -->` and `<!-- /NAME -->`; `None` if
/// there is no such file.
fn with_parts(file: PathBuf, parts: &[(&str, String)]) -> Option<Document> {
    let mut text = std::fs::read_to_string(&file).ok()?;
    for (name, part) in parts {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
        let around = text.split_once(&begin).and_then(|(head, rest)| {
            let (_, tail) = rest.split_once(&end)?;
            Some((head, tail))
        });
        if let Some((head, tail)) = around {
            text = format!("{head}{begin}{part}{end}{tail}");
        }
    }
    Some(Document { file, text })
}
