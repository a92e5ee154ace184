//! Tests that log messages are constant strings and that their fields are documented.

use std::collections::BTreeSet;

use regex::Regex;

use super::architecture::sources;
use super::markdown::root;

/// The message is what PHP or a command has written.
const QUOTES: [&str; 2] = ["src/observe/php_log.rs", "src/fronts/queue/command.rs"];

#[test]
fn log_messages_are_constant_strings() {
    let (mut wrong, mut quoting) = (Vec::new(), BTreeSet::new());
    for line in lines() {
        let message = line.arguments.last().map_or("", String::as_str);
        if message.starts_with('"') && !message.contains('{') {
            continue;
        }
        if QUOTES.contains(&&*line.file) {
            quoting.insert(line.file);
        } else {
            wrong.push(format!("{}:{}: {message}", line.file, line.number));
        }
    }
    assert!(
        wrong.is_empty(),
        "what changes belongs into fields:\n{}\n",
        wrong.join("\n")
    );
    assert_eq!(quoting, BTreeSet::from(QUOTES.map(String::from)));
}

#[test]
fn log_fields_are_documented() {
    let page = std::fs::read_to_string(root().join("docs/reference/log.md")).unwrap();
    let (log, access_log) = page.split_once("## Access log").unwrap();
    let name = Regex::new(r"`([a-z_]+)`").unwrap();
    let documented = |text: &str| -> BTreeSet<String> {
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let cells = rows.map(|row| row.split('|').nth(1).unwrap());
        cells
            .flat_map(|cell| name.captures_iter(cell).map(|found| found[1].to_string()))
            .collect()
    };
    let field = Regex::new(r"^[%?]?([a-z_]+)(?: = |$)").unwrap();
    let fields: BTreeSet<String> = lines()
        .iter()
        .flat_map(|line| &line.arguments)
        .filter_map(|argument| Some(field.captures(argument)?[1].to_string()))
        .collect();
    assert_eq!(documented(log), fields);

    let source = root().join("src/fronts/http/request/access_log.rs");
    let source = std::fs::read_to_string(source).unwrap();
    let key = Regex::new(r#"\n        "([a-z_]+)": "#).unwrap();
    let keys: BTreeSet<String> = key
        .captures_iter(&source)
        .map(|found| found[1].to_string())
        .collect();
    assert_eq!(documented(access_log), keys);
}

/// A call of a macro that writes to the log.
struct LogLine {
    file: String,
    number: usize,
    arguments: Vec<String>,
}

/// Every one in the sources, except in their tests.
fn lines() -> Vec<LogLine> {
    let call = Regex::new(r"\b(?:error|warn|info|debug|trace)!\(").unwrap();
    let mut found = Vec::new();
    let tests = Regex::new(r"#\[cfg\(test\)\]\n(?:#\[.*\]\n)*mod \w+ \{").unwrap();
    for (file, text) in sources(&["src"]) {
        let text = tests.split(&text).next().unwrap();
        for start in call.find_iter(text) {
            found.push(LogLine {
                file: file.clone(),
                number: text[..start.start()].matches('\n').count() + 1,
                arguments: arguments(&text[start.end()..]),
            });
        }
    }
    assert!(found.len() > 100, "only {} log lines", found.len());
    found
}

/// The arguments of a macro, up to its closing parenthesis; spaces are single.
fn arguments(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for c in text.chars() {
        match c {
            '"' if !escaped => quoted = !quoted,
            ')' if !quoted && depth == 0 => break,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        escaped = quoted && c == '\\' && !escaped;
        found.last_mut().unwrap().push(c);
    }
    let words = |text: &String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found: Vec<_> = found.iter().map(words).collect();
    found.retain(|argument| !argument.is_empty());
    found
}
