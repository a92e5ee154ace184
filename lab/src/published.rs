//! Numbers of others: with their source, date and hardware, and what is not comparable.

use std::collections::BTreeMap;

use serde::Deserialize;
use surus_measure::Published;

use crate::experiment::Experiment;
use crate::files::{Places, read};
use crate::quantity::Quantity;

/// A file of `lab/published/`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The name of the source, in a few words.
    pub source: String,
    pub url: String,
    /// As the source says it.
    pub date: String,
    pub hardware: String,
    pub not_comparable: String,
    #[serde(rename = "row")]
    rows: Vec<PublishedRow>,
}

#[derive(Debug, Deserialize)]
struct PublishedRow {
    /// What was measured, in the source's words.
    title: String,
    /// The contestant that it stands next to, if there is one.
    contestant: Option<String>,
    /// The load that it stands next to.
    load: String,
    /// Whether the source calls its numbers estimates.
    #[serde(default)]
    is_estimate: bool,
    /// What the source says where it has no number.
    says: Option<String>,
    /// The numbers: one, or the lowest and the highest.
    #[serde(flatten)]
    numbers: BTreeMap<Quantity, OneOrRange>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum OneOrRange {
    One(f64),
    Range([f64; 2]),
}

/// Numbers that stand next to a contestant's.
pub struct Companion<'a> {
    pub title: &'a str,
    pub contestant: Option<&'a str>,
    /// What the source says where it has no number, with the source.
    pub says: Option<String>,
    pub numbers: BTreeMap<Quantity, Published>,
}

impl Table {
    /// The file with the experiment's name; `None` if there are no published numbers.
    pub fn read(places: &Places, experiment: &Experiment) -> anyhow::Result<Option<Table>> {
        let file = places
            .lab
            .join("published")
            .join(format!("{}.toml", experiment.name));
        if !file.exists() {
            return Ok(None);
        }
        let table: Table = read(&file)?;
        let names = experiment.names();
        for row in &table.rows {
            let place = || format!("{}: row \"{}\"", file.display(), row.title);
            if let Some(name) = &row.contestant {
                anyhow::ensure!(
                    names.contains(&name.as_str()),
                    "{}: contestant = \"{name}\" is unknown to the experiment; use one of {}, or \
                     leave it out",
                    place(),
                    names.join(", ")
                );
            }
            anyhow::ensure!(
                !row.numbers.is_empty() || row.says.is_some(),
                "{}: it has neither a number nor words; add a quantity, or `says`",
                place()
            );
            let mut others = table.rows.iter().filter(|other| other.load == row.load);
            anyhow::ensure!(
                row.says.is_none() || others.any(|other| !other.numbers.is_empty()),
                "{}: `says` stands in a column of numbers, and no row of this load has one",
                place()
            );
            let mut loads = experiment.loads.iter().map(|load| &load.name);
            anyhow::ensure!(
                loads.any(|name| *name == row.load),
                "{}: load = \"{}\" is unknown to the experiment",
                place(),
                row.load
            );
        }
        Ok(Some(table))
    }

    /// What stands next to the measured numbers of a load.
    pub fn companions<'a>(&'a self, load: &'a str) -> impl Iterator<Item = Companion<'a>> {
        self.rows
            .iter()
            .filter(move |row| row.load == load)
            .map(|row| Companion {
                title: &row.title,
                contestant: row.contestant.as_deref(),
                says: row
                    .says
                    .as_ref()
                    .map(|says| format!("{says} [{}]", self.source)),
                numbers: row
                    .numbers
                    .iter()
                    .map(|(key, number)| (*key, self.number(row, *key, *number)))
                    .collect(),
            })
    }

    fn number(&self, row: &PublishedRow, quantity: Quantity, number: OneOrRange) -> Published {
        let (value, up_to) = match number {
            OneOrRange::One(value) => (value, None),
            OneOrRange::Range([low, high]) => (low, Some(high)),
        };
        Published {
            value,
            up_to,
            is_estimate: row.is_estimate,
            unit: quantity.unit(),
            source: self.source.clone(),
            date: self.date.clone(),
            hardware: self.hardware.clone(),
            not_comparable: self.not_comparable.clone(),
        }
    }
}
