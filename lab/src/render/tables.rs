//! The tables of an experiment's report.

use std::collections::BTreeSet;

use surus_measure::{Cell, Measured, Ratio, Rounds, Row, Table, Unit};

use crate::experiment::{Entry, Experiment, Load};
use crate::published;
use crate::quantity::Quantity;
use crate::results::{LEAST_ROUNDS, Results};

/// What is compared with the reference.
const COMPARED: [Quantity; 3] = [Quantity::Rate, Quantity::Cpu, Quantity::P99];
/// What is compared as well if it is a column of the experiment.
const ALSO_COMPARED: [Quantity; 2] = [Quantity::Billed, Quantity::Messages];

/// The table of one load: the median of each contestant, next to published numbers.
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
    // In the order of the measured columns. Other keys come last.
    let mut theirs: Vec<_> = theirs.into_iter().collect();
    theirs.sort_by_key(|key| {
        let mut columns = experiment.columns.iter();
        columns.position(|it| it == *key).unwrap_or(usize::MAX)
    });
    let measured_columns = columns(experiment, load, results);
    let ours = measured_columns
        .iter()
        .map(|quantity| quantity.label().to_string());
    let columns = ours.chain(
        theirs
            .iter()
            .map(|key| format!("published: {}", key.label())),
    );
    let published = |row: Option<&published::Companion<'_>>| -> Vec<Cell> {
        let number = |key| row.and_then(|row| row.numbers.get(key));
        let cell = |key| {
            number(key)
                .cloned()
                .map_or_else(|| Cell::missing("–"), Cell::published)
        };
        let mut cells: Vec<_> = theirs.iter().map(|key| cell(*key)).collect();
        let says = row.and_then(|row| row.says.clone());
        // In the first column without a number.
        let empty = cells
            .iter_mut()
            .find(|cell| matches!(cell, Cell::Missing { .. }));
        if let (Some(text), Some(empty)) = (says, empty) {
            *empty = Cell::Text { text };
        }
        cells
    };
    let mut rows = Vec::new();
    let entries = experiment.contestants.iter();
    // A measured contestant is shown, also if the load is no longer meant for it.
    let is_shown =
        |entry: &&Entry| load.is_for(&entry.name) || results.has_sample(&entry.name, &load.name);
    for entry in entries.filter(is_shown) {
        let mut theirs = companions
            .iter()
            .filter(|row| row.contestant == Some(&entry.name));
        let mut cells = measured(&measured_columns, entry, load, results);
        cells.extend(published(theirs.next()));
        rows.push(Row::new(&entry.name, &entry.title, cells));
    }
    for (index, other) in companions
        .iter()
        .filter(|row| row.contestant.is_none())
        .enumerate()
    {
        let mut cells = vec![Cell::missing("–"); measured_columns.len()];
        cells.extend(published(Some(other)));
        rows.push(Row::new(&format!("published_{index}"), other.title, cells));
    }
    let title = match load.describe(results.size).as_str() {
        "" => load.title.clone(),
        description => format!("{}: {description}", load.title),
    };
    Table {
        key: load.name.clone(),
        title,
        columns: columns.collect(),
        rows,
    }
}

/// The experiment's columns, without those that were added after the run: no contestant has a
/// number there.
fn columns(experiment: &Experiment, load: &Load, results: &Results) -> Vec<Quantity> {
    let has_any = |quantity: Quantity| {
        let mut entries = experiment.contestants.iter();
        entries.any(|entry| {
            let samples = results.samples(&entry.name, &load.name, quantity);
            samples.iter().any(Option::is_some)
        })
    };
    let columns = experiment.columns.iter().copied().enumerate();
    let shown: Vec<_> = columns
        // The row of a contestant with too little CPU time says so. At rest, there are no requests.
        .filter(|(place, it)| {
            let is_always = *place == 0 || *it == Quantity::Cpu;
            (is_always && !load.rests) || has_any(*it)
        })
        .map(|(_, quantity)| quantity)
        .collect();
    match shown.is_empty() {
        // For the reasons why there are no numbers.
        true => experiment.columns.iter().copied().take(1).collect(),
        false => shown,
    }
}

/// The medians of a contestant; its first cell says why there are none.
fn measured(columns: &[Quantity], entry: &Entry, load: &Load, results: &Results) -> Vec<Cell> {
    let median = |quantity: &Quantity| results.median(&entry.name, &load.name, *quantity);
    let cell = |quantity: &Quantity| match median(quantity) {
        Some(number) => Cell::measured(number),
        None if *quantity == Quantity::Cpu => Cell::missing("too little to measure"),
        None => Cell::missing("–"),
    };
    if results.has_sample(&entry.name, &load.name) {
        return columns.iter().map(cell).collect();
    }
    let reason = why_missing(entry, load, results);
    let mut cells = vec![Cell::missing("–"); columns.len()];
    cells[0] = Cell::missing(reason);
    cells
}

/// Why a contestant has no numbers under a load.
pub fn why_missing(entry: &Entry, load: &Load, results: &Results) -> String {
    let absent = results
        .contestants
        .get(&entry.name)
        .and_then(|facts| facts.absent.as_ref());
    let mut turns = results.turns(&entry.name);
    let failure = turns.find_map(|turn| turn.failures.get(&load.name));
    let reason = load.skips.get(&entry.name).or(absent).or(failure).cloned();
    let had = results.contestants.contains_key(&entry.name) && results.has_load(&load.name);
    reason.unwrap_or_else(|| match had {
        true => "not measured".into(),
        false => "added after this run".into(),
    })
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
    let also = ALSO_COMPARED.into_iter();
    let also = also.filter(|quantity| experiment.columns.contains(quantity));
    let compared: Vec<_> = also.chain(COMPARED).collect();
    let table = |load: &Load, reference: &str| {
        let others = experiment
            .names()
            .into_iter()
            .filter(|name| *name != reference && load.is_for(name));
        let row = |name: &str| {
            let cells = compared.iter().map(|&quantity| {
                let both = [name, reference].map(|name| (name, load.name.as_str()));
                if let Some(marks) = results.marks(&both, quantity) {
                    return Cell::missing(marks);
                }
                let under = |contestant| Under {
                    contestant,
                    load: &load.name,
                };
                match ratio(results, quantity, [name, reference].map(under)) {
                    None => Cell::missing("–"),
                    Some(ratio) if ratio.shows_difference() => {
                        Cell::measured(Measured::ratio(ratio))
                    }
                    Some(_) => Cell::Verdict {
                        verdict: "no difference seen",
                    },
                }
            });
            Row::new(name, &title(name), cells.collect())
        };
        Table {
            key: format!("{}_ratios_to_{reference}", load.name),
            title: format!("{}: ratio to {}", load.title, title(reference)),
            columns: compared.iter().map(|it| it.label().to_string()).collect(),
            rows: others.map(row).collect(),
        }
    };
    let mut tables = Vec::new();
    for reference in experiment.references() {
        let loads = experiment.loads.iter();
        let loads = loads.filter(|load| load.is_for(reference) && results.has_load(&load.name));
        let tables_of = loads.map(|load| table(load, reference));
        tables.extend(tables_of.filter(says_anything));
    }
    tables
}

/// Whether a table has more than dashes.
fn says_anything(table: &Table) -> bool {
    let mut cells = table.rows.iter().flat_map(|row| &row.cells);
    cells.any(|cell| !matches!(cell, Cell::Missing { missing } if missing == "–"))
}

/// A contestant under a load.
#[derive(Clone, Copy)]
pub struct Under<'a> {
    pub contestant: &'a str,
    pub load: &'a str,
}

/// The ratio of two contestants, if enough rounds measured both.
pub fn ratio(results: &Results, quantity: Quantity, both: [Under<'_>; 2]) -> Option<Ratio> {
    let rounds = common_rounds(results, quantity, both);
    let is_enough = rounds.samples(0).len() >= LEAST_ROUNDS;
    rounds.ratio(0, 1).filter(|_| is_enough)
}

/// The samples of two contestants in the rounds that measured both.
pub fn common_rounds(results: &Results, quantity: Quantity, [of, to]: [Under<'_>; 2]) -> Rounds {
    let mut rounds = Rounds::new(2);
    let samples = |it: Under<'_>| results.samples(it.contestant, it.load, quantity);
    for pair in samples(of).into_iter().zip(samples(to)) {
        if let (Some(of), Some(to)) = pair {
            rounds.push(0, of);
            rounds.push(1, to);
        }
    }
    rounds
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

/// The load of the machine apart from the contestants: load average, other processes, generator.
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
                let found = results.all_samples(&entry.name, &load.name, quantity);
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
