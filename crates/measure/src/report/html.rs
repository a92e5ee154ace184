//! Prints a report as one HTML page: styles, charts and data inside, no network.

use std::fmt::Write;

use serde_json::Value;

use super::escape::escape;
use super::{Advice, Cell, Report, Table, svg};

/// A reason with more bytes is aligned as a sentence.
const LONGEST_WORD: usize = 24;
const STYLE: &str = include_str!("page.css");

pub fn page(report: &Report, data: &Value) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n<main>\n<header>\n<h1>{title}</h1>\n\
         <p>{}</p>\n<p class=\"machine\">{}</p>\n</header>\n",
        prose(&report.subtitle),
        escape(&report.machine.to_string()),
        title = escape(&report.title),
    );
    if let Some(failure) = &report.failure {
        let failure = prose(failure);
        let _ = writeln!(
            out,
            "<p class=\"failure\" role=\"alert\"><b>Failed:</b> {failure}</p>"
        );
    }
    for note in &report.notes {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", prose(note));
    }
    if let Some(advice) = &report.advice {
        write_advice(&mut out, advice);
    }
    out.push_str("<div class=\"charts\">\n");
    for bars in &report.bars {
        let (title, origin) = (escape(&bars.title), escape(&bars.origin()));
        let chart = bars.draw();
        let _ = write!(
            out,
            "<figure>\n<figcaption>{title}<span class=\"legend\">{origin}</span></figcaption>\n\
             {chart}\n</figure>\n"
        );
    }
    for chart in &report.charts {
        let _ = write!(out, "<figure>\n<figcaption>{}", escape(&chart.title));
        if chart.lines.len() > 1 {
            out.push_str("<span class=\"legend\">");
            for (index, line) in chart.lines.iter().enumerate() {
                let _ = write!(
                    out,
                    "<span class=\"key l{index}\">{}</span>",
                    escape(&line.name)
                );
            }
            out.push_str("</span>");
        }
        let _ = write!(out, "</figcaption>\n{}\n</figure>\n", svg::draw(chart));
    }
    out.push_str("</div>\n<div class=\"tables\">\n");
    for table in &report.tables {
        write_table(&mut out, table);
    }
    // `</script>` in a string would end the element.
    let data = data.to_string().replace('<', "\\u003c");
    let _ = write!(
        out,
        "</div>\n</main>\n<script type=\"application/json\" id=\"data\">{data}</script>\n</html>\n"
    );
    out
}

fn write_advice(out: &mut String, advice: &Advice) {
    let _ = write!(out, "<section>\n<h2>{}</h2>\n<ul>\n", escape(&advice.title));
    for reason in &advice.reasons {
        let _ = writeln!(out, "<li>{}</li>", prose(reason));
    }
    let _ = write!(
        out,
        "</ul>\n<p>{}</p>\n<pre>{}</pre>\n</section>\n",
        escape(&advice.file),
        escape(&advice.lines.join("\n"))
    );
}

/// On a narrow screen, a row of a table with several columns becomes a list, in which each cell
/// has the name of its column.
fn write_table(out: &mut String, table: &Table) {
    let is_list = table.columns.len() > 1;
    let class = if is_list { " class=\"wide\"" } else { "" };
    let _ = write!(
        out,
        "<section>\n<h2>{}</h2>\n<table{class}>\n",
        escape(&table.title)
    );
    if table.columns.iter().any(|column| !column.is_empty()) {
        out.push_str("<tr><th></th>");
        for column in &table.columns {
            let _ = write!(out, "<th scope=\"col\">{}</th>", escape(column));
        }
        out.push_str("</tr>\n");
    }
    for row in &table.rows {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&row.label));
        for (column, cell) in table.columns.iter().zip(&row.cells) {
            let class = if is_sentence(cell) {
                " class=\"text\""
            } else {
                ""
            };
            let name = match column.as_str() {
                "" => String::new(),
                name => format!(" data-column=\"{}\"", escape(name)),
            };
            let cell = match cell {
                Cell::Text { text } => prose(text),
                cell => escape(&cell.to_string()),
            };
            let _ = write!(out, "<td{class}{name}>{cell}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n</section>\n");
}

/// Whether a cell is read, not compared with those above and below it.
fn is_sentence(cell: &Cell) -> bool {
    match cell {
        Cell::Text { .. } => true,
        Cell::Missing { missing } => missing.len() > LONGEST_WORD,
        _ => false,
    }
}

/// A sentence. Text between Markdown's backticks is code.
fn prose(text: &str) -> String {
    let mut out = String::new();
    let parts: Vec<_> = text.split('`').collect();
    for (index, part) in parts.iter().enumerate() {
        let part = escape(part);
        let _ = match (index % 2 == 1, index + 1 < parts.len()) {
            (true, true) => write!(out, "<code>{part}</code>"),
            // The last backtick has no other end.
            (true, false) => write!(out, "`{part}"),
            (false, _) => write!(out, "{part}"),
        };
    }
    out
}
