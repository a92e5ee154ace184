//! Writes the published results into documents: README's table, and the list in
//! `docs/performance.md`. Each has two comments, and what stands between them is replaced.

use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use surus_measure::rounds::median;

use crate::experiment::Experiment;
use crate::files::Places;
use crate::quantity::Quantity;
use crate::render::newest_results;
use crate::results::Results;

/// What README shows of an experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Readme {
    loads: Vec<String>,
    contestants: Vec<String>,
}

/// Writes what has results in `directory`; a document without the comments stays as it is.
pub fn write(places: &Places, experiments: &[Experiment], directory: &Path) -> anyhow::Result<()> {
    // Documents link to this directory only.
    if !directory.ends_with("docs/results") {
        return Ok(());
    }
    let mut list = String::from("| experiment | measured | |\n|---|---|---|\n");
    let mut is_empty = true;
    for experiment in experiments {
        let Some((_, results)) = newest_results(experiment, directory)? else {
            continue;
        };
        is_empty = false;
        let name = &experiment.name;
        list += &format!(
            "| {} | {}, {} form, `{}` | [numbers](results/{name}.md), \
             [charts](results/{name}.html) |\n",
            experiment.title, results.date, results.size, results.command
        );
        if let Some(readme) = &experiment.readme {
            let text = table(experiment, readme, &results);
            replace(&places.repository.join("README.md"), "benchmark", &text)?;
        }
    }
    if is_empty {
        return Ok(());
    }
    replace(
        &places.repository.join("docs/performance.md"),
        "results",
        &list,
    )
}

fn table(experiment: &Experiment, readme: &Readme, results: &Results) -> String {
    let mut shown = experiment.loads.iter();
    let shown = shown.find(|load| readme.loads.contains(&load.name));
    let connections = shown.map(|load| load.connections);
    let mut text = format!(
        "Requests/s and CPU of all server processes per request, with {} connections: {}, {}; {}; \
         medians of {} rounds in which all take turns. The load generator runs on the same CPUs. \
         `sudo {}`\n\n",
        connections.unwrap_or(0),
        results.machine,
        results.date,
        versions(readme, results).join("; "),
        results.rounds.len(),
        results.command
    );
    let titles = readme.contestants.iter().map(|name| {
        let facts = results.contestants.get(name);
        facts.map_or(name.as_str(), |facts| facts.title.as_str())
    });
    text += &format!("| | {} |\n|---|", titles.collect::<Vec<_>>().join(" | "));
    text += &"---:|".repeat(readme.contestants.len());
    text.push('\n');
    let loads = readme.loads.iter();
    for load in loads.filter_map(|name| experiment.loads.iter().find(|load| load.name == *name)) {
        let value = |name: &String, quantity| {
            let samples = results.samples(name, &load.name, quantity);
            median(&samples.into_iter().flatten().collect::<Vec<_>>())
        };
        let rates = readme.contestants.iter();
        let rates: Vec<_> = rates.map(|name| value(name, Quantity::Rate)).collect();
        let best = rates.iter().flatten().copied().fold(0.0, f64::max);
        let cells = readme.contestants.iter().zip(rates).map(|(name, rate)| {
            let Some(rate) = rate else {
                return "–".to_string();
            };
            let cpu = value(name, Quantity::Cpu)
                .map_or("–".into(), |cpu| Quantity::Cpu.unit().write(cpu));
            let cell = format!("{} · {cpu}", Quantity::Failed.unit().write(rate));
            match rate >= best {
                true => format!("**{cell}**"),
                false => cell,
            }
        });
        let cells = cells.collect::<Vec<_>>().join(" | ");
        text += &format!("| {} | {cells} |\n", load.title);
    }
    text
}

/// The versions of the shown contestants, each once.
fn versions(readme: &Readme, results: &Results) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in &readme.contestants {
        let facts = results.contestants.get(name);
        for version in facts.iter().flat_map(|facts| &facts.versions) {
            if !all.contains(version) {
                all.push(version.clone());
            }
        }
    }
    all
}

/// Replaces what stands between `<!-- NAME -->` and `<!-- /NAME -->`.
fn replace(file: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let Ok(old) = std::fs::read_to_string(file) else {
        return Ok(());
    };
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let parts = old.split_once(&begin).and_then(|(head, rest)| {
        let (_, tail) = rest.split_once(&end)?;
        Some((head, tail))
    });
    let Some((head, tail)) = parts else {
        return Ok(());
    };
    let new = format!("{head}{begin}{text}{end}{tail}");
    std::fs::write(file, new).with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("  {}", file.display());
    Ok(())
}
