//! The tables of an experiment's report.

use std::collections::{BTreeMap, BTreeSet};

use surus_measure::{Cell, Measured, Published, Ratio, Rounds, Row, Table, Unit};

use crate::experiment::{Entry, Experiment, Load};
use crate::published;
use crate::quantity::Quantity;
use crate::results::Results;

/// With fewer rounds, the bootstrap's interval is too narrow for a verdict.
const LEAST_ROUNDS: usize = 6;
/// What is compared with the reference.
const COMPARED: [Quantity; 3] = [Quantity::Rate, Quantity::Cpu, Quantity::P99];

/// A load: the medians of each contestant, and what was published next to them.
pub fn load(
    experiment: &Experiment,
    load: &Load,
    results: &Results,
    published: Option<&published::Table>,
) -> Table {
    let companions: Vec<_> = published
        .into_iter()
        .flat_map(|table| table.companions(&load.name))
        .collect();
    let theirs: BTreeSet<_> = companions
        .iter()
        .flat_map(|companion| companion.numbers.keys())
        .collect();
    let ours = experiment
        .columns
        .iter()
        .map(|quantity| quantity.label().to_string());
    let columns = ours.chain(
        theirs
            .iter()
            .map(|key| format!("published: {}", key.label())),
    );
    let published = |numbers: Option<&BTreeMap<Quantity, Published>>| -> Vec<Cell> {
        let number = |key| numbers.and_then(|numbers| numbers.get(key));
        let cell = |key| {
            number(key)
                .cloned()
                .map_or_else(|| Cell::missing("–"), Cell::published)
        };
        theirs.iter().map(|key| cell(*key)).collect()
    };
    let mut rows = Vec::new();
    let entries = experiment.contestants.iter();
    for entry in entries.filter(|entry| load.is_for(&entry.name)) {
        let mut theirs = companions
            .iter()
            .filter(|row| row.contestant == Some(&entry.name));
        let mut cells = measured(experiment, entry, load, results);
        cells.extend(published(theirs.next().map(|row| &row.numbers)));
        rows.push(Row::new(&entry.name, &entry.title, cells));
    }
    for (index, other) in companions
        .iter()
        .filter(|row| row.contestant.is_none())
        .enumerate()
    {
        let mut cells = vec![Cell::missing("–"); experiment.columns.len()];
        cells.extend(published(Some(&other.numbers)));
        rows.push(Row::new(&format!("published_{index}"), other.title, cells));
    }
    Table {
        key: load.name.clone(),
        title: format!("{}: {}", load.title, load.describe(results.size)),
        columns: columns.collect(),
        rows,
    }
}

/// The medians of a contestant; its first cell says why there are none.
fn measured(experiment: &Experiment, entry: &Entry, load: &Load, results: &Results) -> Vec<Cell> {
    let median = |quantity: &Quantity| {
        let samples = results.samples(&entry.name, &load.name, *quantity);
        let samples: Vec<_> = samples.into_iter().flatten().collect();
        Measured::median(&samples, quantity.unit())
    };
    let cell = |quantity: &Quantity| match median(quantity) {
        Some(number) => Cell::measured(number),
        // The clock of `/proc` counts in hundredths of a second.
        None if *quantity == Quantity::Cpu => Cell::missing("too little to measure"),
        None => Cell::missing("–"),
    };
    if results.has_sample(&entry.name, &load.name) {
        return experiment.columns.iter().map(cell).collect();
    }
    let absent = results
        .contestants
        .get(&entry.name)
        .and_then(|facts| facts.absent.as_ref());
    let mut turns = results.turns(&entry.name);
    let failure = turns.find_map(|turn| turn.failures.get(&load.name));
    let reason = load.skips.get(&entry.name).or(absent).or(failure).cloned();
    let reason = reason.unwrap_or_else(|| "not measured".into());
    let mut cells = vec![Cell::missing("–"); experiment.columns.len()];
    cells[0] = Cell::missing(reason);
    cells
}

/// Ratios to the reference, if there are enough rounds for an interval.
pub fn ratios(experiment: &Experiment, results: &Results) -> Vec<Table> {
    if results.rounds.len() < LEAST_ROUNDS {
        return Vec::new();
    }
    let title = |name: &str| {
        let entry = experiment
            .contestants
            .iter()
            .find(|entry| entry.name == name);
        entry.map_or(name, |entry| &entry.title).to_string()
    };
    let table = |load: &Load| {
        let others = experiment
            .names()
            .into_iter()
            .filter(|name| *name != experiment.reference && load.is_for(name));
        let row = |name: &str| {
            let cells = COMPARED.map(|quantity| {
                match ratio(results, load, quantity, name, &experiment.reference) {
                    None => Cell::missing("–"),
                    Some(ratio) if ratio.shows_difference() => {
                        Cell::measured(Measured::ratio(ratio))
                    }
                    Some(_) => Cell::Verdict {
                        verdict: "no difference seen",
                    },
                }
            });
            Row::new(name, &title(name), cells.to_vec())
        };
        Table {
            key: format!("{}_ratios", load.name),
            title: format!("{}: ratio to {}", load.title, title(&experiment.reference)),
            columns: COMPARED
                .map(|quantity| quantity.label().to_string())
                .to_vec(),
            rows: others.map(row).collect(),
        }
    };
    let loads = experiment.loads.iter();
    let compared = loads.filter(|load| load.is_for(&experiment.reference));
    compared.map(table).collect()
}

/// Of the rounds in which both were measured.
fn ratio(results: &Results, load: &Load, quantity: Quantity, of: &str, to: &str) -> Option<Ratio> {
    let mut rounds = Rounds::new(2);
    let of = results.samples(of, &load.name, quantity);
    for pair in of
        .into_iter()
        .zip(results.samples(to, &load.name, quantity))
    {
        if let (Some(of), Some(to)) = pair {
            rounds.push(0, of);
            rounds.push(1, to);
        }
    }
    let is_enough = rounds.samples(0).len() >= LEAST_ROUNDS;
    rounds.ratio(0, 1).filter(|_| is_enough)
}

/// The contestants, their versions, and the commands that start them.
pub fn contestants(experiment: &Experiment, results: &Results) -> Table {
    let text = |text: String| Cell::Text { text };
    let rows = experiment.contestants.iter().filter_map(|entry| {
        let facts = results.contestants.get(&entry.name)?;
        let cells = vec![
            text(facts.versions.join("; ")),
            text(format!("{}; {}", facts.licence, facts.home)),
            text(facts.commands.join("; ")),
        ];
        Some(Row::new(&entry.name, &entry.title, cells))
    });
    Table {
        key: "contestants".into(),
        title: "Contestants".into(),
        columns: ["version", "licence", "command"].map(String::from).to_vec(),
        rows: rows.collect(),
    }
}

/// What else the machine did meanwhile.
pub fn machine(experiment: &Experiment, results: &Results) -> Table {
    let mut rows = Vec::new();
    let averages: Vec<_> = results
        .rounds
        .iter()
        .map(|round| round.load_average)
        .collect();
    let mut add = |key: &str, label: &str, samples: &[f64], unit: Unit| {
        let highest = samples.iter().copied().fold(f64::NAN, f64::max);
        if let Some(median) = Measured::median(samples, unit) {
            let cells = [median, Measured::once(highest, unit)].map(Cell::measured);
            rows.push(Row::new(key, label, cells.to_vec()));
        }
    };
    add(
        "load_average",
        "load average at the beginning of a round",
        &averages,
        Unit::Ratio,
    );
    for quantity in [Quantity::Others, Quantity::Generator] {
        let mut samples = Vec::new();
        for entry in &experiment.contestants {
            for load in &experiment.loads {
                let found = results.samples(&entry.name, &load.name, quantity);
                samples.extend(found.into_iter().flatten());
            }
        }
        let key = quantity.label().replace(' ', "_");
        add(&key, quantity.label(), &samples, quantity.unit());
    }
    Table {
        key: "machine_load".into(),
        title: "What else the CPUs did".into(),
        columns: ["median", "highest"].map(String::from).to_vec(),
        rows,
    }
}
