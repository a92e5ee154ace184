//! A report: tables of numbers with their origin, charts and notes; printed as text, Markdown, JSON
//! or an HTML page.

mod bars;
mod escape;
mod html;
mod plain;
mod svg;

pub use bars::{BarNumbers, Bars};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::machine::Machine;
use crate::number::{Measured, Number, Published, Unit};

/// What a run, or a comparison of runs, has shown.
#[derive(Debug, Clone)]
pub struct Report {
    /// One line that says what was measured.
    pub title: String,
    /// How it was measured: the command or the load, in one line.
    pub subtitle: String,
    /// Where it was measured.
    pub machine: Machine,
    /// Why the run is a failed one. A command prints it as its error, so text does not repeat it.
    pub failure: Option<String>,
    /// What a reader must know before the numbers.
    pub notes: Vec<String>,
    /// The numbers.
    pub tables: Vec<Table>,
    /// The charts of the HTML page.
    pub charts: Vec<Chart>,
    /// The bar charts of the HTML page, ahead of the others.
    pub bars: Vec<Bars>,
    /// What follows from the numbers.
    pub advice: Option<Advice>,
}

/// What to do, and why.
#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    /// What to do, in a few words.
    pub title: String,
    /// Why: a sentence each.
    pub reasons: Vec<String>,
    /// Where the lines belong.
    pub file: String,
    /// Lines of a configuration.
    pub lines: Vec<String>,
}

/// A table: rows of one cell per column.
#[derive(Debug, Clone)]
pub struct Table {
    /// Its name in JSON.
    pub key: String,
    /// Its heading.
    pub title: String,
    /// Heads of the columns; a single column may have none.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A row of a table.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name in JSON.
    pub key: String,
    /// Its first column.
    pub label: String,
    /// The other columns.
    pub cells: Vec<Cell>,
}

impl Row {
    /// A row with one number of a run.
    pub fn once(key: &str, label: &str, value: f64, unit: Unit) -> Row {
        Row {
            key: key.into(),
            label: label.into(),
            cells: vec![Cell::measured(Measured::once(value, unit))],
        }
    }

    /// A row with these cells.
    pub fn new(key: &str, label: &str, cells: Vec<Cell>) -> Row {
        Row {
            key: key.into(),
            label: label.into(),
            cells,
        }
    }
}

/// A cell of a table. Numbers enter a report only here, with their origin.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number.
    Number(Number),
    /// Why there is no number.
    Missing {
        /// The reason.
        missing: String,
    },
    /// A sentence.
    Text {
        /// The sentence.
        text: String,
    },
    /// A word about the other cells of the row.
    Verdict {
        /// The word.
        verdict: &'static str,
    },
}

impl Cell {
    /// A measured number.
    pub fn measured(number: Measured) -> Cell {
        Cell::Number(Number::Measured(number))
    }

    /// A published number.
    pub fn published(number: Published) -> Cell {
        Cell::Number(Number::Published(number))
    }

    /// A reason for there being no number.
    pub fn missing(reason: impl Into<String>) -> Cell {
        Cell::Missing {
            missing: reason.into(),
        }
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cell::Number(number) => number.fmt(f),
            Cell::Missing { missing } => f.write_str(missing),
            Cell::Text { text } => f.write_str(text),
            Cell::Verdict { verdict } => f.write_str(verdict),
        }
    }
}

/// How an axis places its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// Evenly, from zero, with labels at whole numbers only.
    Whole,
    /// By powers of ten, from the one below the lowest value. Only of the vertical axis.
    Tens,
    /// Quantiles, each further nine as wide as the one before: 0, 0.9, 0.99, 0.999. Only of the
    /// horizontal axis.
    Nines,
}

/// A chart of lines.
#[derive(Debug, Clone)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What the horizontal axis counts.
    pub x: String,
    /// How the horizontal axis places its values.
    pub scale: Scale,
    /// The unit of the vertical axis.
    pub y: Unit,
    /// How the vertical axis places its values.
    pub y_scale: Scale,
    /// The lines, at most four, so that their colours can be told apart.
    pub lines: Vec<Line>,
}

impl Chart {
    /// Whether it shows no point at all.
    pub fn is_empty(&self) -> bool {
        let mut points = self.lines.iter().flat_map(|line| &line.points);
        points.all(|(_, value)| value.is_nan())
    }
}

/// A line of a chart.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its points, by increasing x. A point that is not a number (NaN) is a gap.
    pub points: Vec<(f64, f64)>,
}

impl Report {
    /// Text for a terminal.
    pub fn text(&self) -> String {
        plain::text(self)
    }

    /// Markdown with a table per table.
    pub fn markdown(&self) -> String {
        plain::markdown(self)
    }

    /// One HTML page that needs no network. `data` is embedded as JSON for programs.
    pub fn html(&self, data: &Value) -> String {
        html::page(self, data)
    }

    /// JSON: each table is an object of rows. A row with one column is its cell.
    pub fn json(&self) -> Value {
        let mut document = Map::new();
        document.insert("title".into(), json!(self.title));
        document.insert("load".into(), json!(self.subtitle));
        document.insert("machine".into(), json!(self.machine));
        if let Some(failure) = &self.failure {
            document.insert("failure".into(), json!(failure));
        }
        document.insert("notes".into(), json!(self.notes));
        for table in &self.tables {
            let rows = table.rows.iter().map(|row| {
                let cells = match (table.columns.len(), row.cells.as_slice()) {
                    (..=1, [cell]) => json!(cell),
                    _ => {
                        let named = table.columns.iter().zip(&row.cells);
                        named
                            .map(|(name, cell)| (name.clone(), json!(cell)))
                            .collect()
                    }
                };
                (row.key.clone(), cells)
            });
            document.insert(table.key.clone(), rows.collect());
        }
        if let Some(advice) = &self.advice {
            document.insert("advice".into(), json!(advice));
        }
        Value::Object(document)
    }
}
