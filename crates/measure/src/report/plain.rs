//! Prints reports as text and as Markdown.

use std::fmt::Write;
use std::iter::repeat;

use super::{Report, Table};

/// Columns of a terminal. Heads of a wider table have several lines.
const TERMINAL: usize = 80;

pub fn text(report: &Report) -> String {
    let mut out = format!("{}\n{}\n", report.title, report.subtitle);
    for table in &report.tables {
        let mut lines = lines(table);
        let mut widths = widths(&lines);
        // Each column begins with two spaces.
        if widths.iter().map(|width| width + 2).sum::<usize>() > TERMINAL && has_head(table) {
            lines.splice(..1, wrapped(&lines));
            widths = self::widths(&lines);
        }
        let _ = write!(out, "\n{}\n", table.title);
        for line in lines {
            let mut row = String::from(" ");
            for (index, (cell, width)) in line.iter().zip(&widths).enumerate() {
                let gap = width - cell.chars().count();
                // Labels are left-aligned, numbers right-aligned.
                let (left, right) = if index == 0 { (0, gap) } else { (gap, 0) };
                let _ = write!(row, " {:left$}{cell}{:right$} ", "", "");
            }
            let _ = writeln!(out, "{}", row.trim_end());
        }
    }
    if let Some(advice) = &report.advice {
        let _ = write!(out, "\n{}\n", advice.title);
        for reason in &advice.reasons {
            let _ = writeln!(out, "  - {reason}");
        }
        let _ = write!(out, "\n{}\n\n", advice.file);
        for line in &advice.lines {
            let _ = writeln!(out, "  {line}");
        }
    }
    if !report.notes.is_empty() {
        out.push('\n');
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

pub fn markdown(report: &Report) -> String {
    let mut out = format!(
        "# {}\n\n{}  \n",
        escape(&report.title),
        escape(&report.subtitle)
    );
    let _ = writeln!(out, "Measured on {}.", report.machine);
    if let Some(failure) = &report.failure {
        let _ = write!(out, "\n> **Failed:** {}\n", escape(failure));
    }
    for note in &report.notes {
        let _ = write!(out, "\n> {}\n", escape(note));
    }
    for table in &report.tables {
        let _ = write!(out, "\n## {}\n\n", escape(&table.title));
        let mut lines = lines(table);
        if table.columns.iter().all(String::is_empty) {
            lines.insert(0, vec![String::new(); table.columns.len() + 1]);
        }
        for (index, line) in lines.iter().enumerate() {
            let cells: Vec<_> = line.iter().map(|cell| escape(cell)).collect();
            let _ = writeln!(out, "| {} |", cells.join(" | "));
            if index == 0 {
                let _ = writeln!(out, "|---|{}", "--:|".repeat(line.len() - 1));
            }
        }
    }
    if let Some(advice) = &report.advice {
        let _ = write!(out, "\n## {}\n\n", escape(&advice.title));
        for reason in &advice.reasons {
            let _ = writeln!(out, "- {}", escape(reason));
        }
        let lines = advice.lines.join("\n");
        let _ = write!(out, "\n{}\n\n```toml\n{lines}\n```\n", escape(&advice.file));
    }
    out
}

/// The heads, unless all are empty, and the rows.
fn lines(table: &Table) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    if has_head(table) {
        let mut head = vec![String::new()];
        head.extend(table.columns.iter().cloned());
        lines.push(head);
    }
    for row in &table.rows {
        let mut line = vec![row.label.clone()];
        line.extend(row.cells.iter().map(ToString::to_string));
        lines.push(line);
    }
    lines
}

fn has_head(table: &Table) -> bool {
    table.columns.iter().any(|column| !column.is_empty())
}

/// The heads, which are the first line, as lines that are not wider than their longest word and
/// the cells below. The last words stand in the last line.
fn wrapped(lines: &[Vec<String>]) -> Vec<Vec<String>> {
    let Some((head, rows)) = lines.split_first() else {
        return Vec::new();
    };
    let columns = head.iter().zip(widths(rows).into_iter().chain(repeat(0)));
    let columns = columns.map(|(head, width)| {
        let words = head.split(' ').map(|word| word.chars().count());
        let width = width.max(words.max().unwrap_or(0));
        let mut parts = vec![String::new()];
        for word in head.split(' ') {
            match parts.last_mut() {
                Some(part) if part.is_empty() => part.push_str(word),
                Some(part) if part.chars().count() + 1 + word.chars().count() <= width => {
                    part.push(' ');
                    part.push_str(word);
                }
                _ => parts.push(word.to_string()),
            }
        }
        parts
    });
    let columns: Vec<_> = columns.collect();
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    let part = |parts: &Vec<String>, line: usize| {
        let place = (line + parts.len()).checked_sub(height);
        place.map_or_else(String::new, |place| parts[place].clone())
    };
    let line = |line| columns.iter().map(|parts| part(parts, line)).collect();
    (0..height).map(line).collect()
}

fn widths(lines: &[Vec<String>]) -> Vec<usize> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    (0..columns).map(width).collect()
}

/// Escapes what Markdown would take for markup: texts have the words of servers and users. Code
/// between single backticks stays code. The result has one line.
fn escape(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    let mut before = ' ';
    while let Some(character) = rest.chars().next() {
        if let Some(code) = code(rest).filter(|_| before != '`') {
            let span = &rest[..code];
            out.push_str(span);
            rest = &rest[code..];
            before = ' ';
            continue;
        }
        rest = &rest[character.len_utf8()..];
        let is_word = |it: Option<char>| it.is_some_and(char::is_alphanumeric);
        match character {
            '<' => out.push_str("&lt;"),
            // It could begin an entity.
            '&' if rest.starts_with(|it: char| it == '#' || it.is_ascii_alphanumeric()) => {
                out.push_str("&amp;");
            }
            // Before a letter, it escapes nothing.
            '\\' if rest.starts_with(char::is_alphanumeric) => out.push(character),
            '\\' | '`' | '*' | '|' | '~' => out.extend(['\\', character]),
            // A link, or its definition.
            '[' if ["](", "][", "]:"].iter().any(|end| rest.contains(end)) => out.push_str("\\["),
            // Within a word, it is no emphasis.
            '_' if !is_word(Some(before)) || !is_word(rest.chars().next()) => out.push_str("\\_"),
            character => out.push(character),
        }
        before = character;
    }
    out
}

/// The length of a code span at the beginning of a text. A pipe would end its cell in a table.
fn code(text: &str) -> Option<usize> {
    let (inner, after) = text.strip_prefix('`')?.split_once('`')?;
    let is_code = !inner.is_empty() && !inner.contains('|') && !after.starts_with('`');
    is_code.then(|| inner.len() + 2)
}
