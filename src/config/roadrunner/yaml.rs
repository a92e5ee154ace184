//! Parses the part of YAML that `.rr.yaml` files use: mappings, sequences and scalars.

use anyhow::{Result, bail, ensure};

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Yaml {
    Null,
    Scalar(String),
    List(Vec<Yaml>),
    Map(Vec<(String, Yaml)>),
}

/// The deepest level.
const MAX_DEPTH: usize = 32;

/// A line without comment and indentation.
#[derive(Debug, Clone)]
struct YamlLine {
    number: usize,
    indent: usize,
    text: String,
}

/// Parses a document. Errors name the line.
pub fn parse(text: &str) -> Result<Yaml> {
    let mut lines = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let content = without_comment(line).trim_end();
        let text = content.trim_start_matches(' ');
        ensure!(
            !text.starts_with('\t'),
            "line {number}: YAML is not indented with tabs"
        );
        if text.is_empty() || text == "---" {
            continue;
        }
        lines.push(YamlLine {
            number,
            indent: content.len() - text.len(),
            text: text.to_string(),
        });
    }
    let mut parser = Parser { lines, at: 0 };
    let Some(first) = parser.peek() else {
        return Ok(Yaml::Null);
    };
    let value = parser.block(first.indent, 0)?;
    if let Some(line) = parser.peek() {
        bail!("line {}: the indentation fits no line above", line.number);
    }
    Ok(value)
}

/// A `#` begins a comment at the beginning of a word, outside of quotes.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') if before.is_whitespace() => return &line[..at],
            (None, '"' | '\'') if !before.is_alphanumeric() => quote = Some(c),
            (Some(open), c) if open == c && before != '\\' => quote = None,
            _ => {}
        }
        before = c;
    }
    line
}

struct Parser {
    lines: Vec<YamlLine>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<YamlLine> {
        self.lines.get(self.at).cloned()
    }

    /// The mapping or sequence whose lines have this indentation.
    fn block(&mut self, indent: usize, depth: usize) -> Result<Yaml> {
        let Some(first) = self.peek() else {
            return Ok(Yaml::Null);
        };
        ensure!(
            depth < MAX_DEPTH,
            "line {}: deeper than {MAX_DEPTH} levels",
            first.number
        );
        if is_item(&first.text) {
            return self.sequence(indent, depth);
        }
        if key(&first.text).is_some() {
            return self.mapping(indent, depth);
        }
        self.at += 1;
        scalar(&first.text, first.number, depth)
    }

    fn sequence(&mut self, indent: usize, depth: usize) -> Result<Yaml> {
        let mut items = Vec::new();
        while let Some(line) = self.peek() {
            if line.indent != indent || !is_item(&line.text) {
                break;
            }
            let rest = line.text[1..].trim_start();
            if rest.is_empty() {
                self.at += 1;
                items.push(self.nested(indent + 1, depth)?);
                continue;
            }
            // The rest is the first line of a block of its own.
            let inner = indent + line.text.len() - rest.len();
            self.lines[self.at].indent = inner;
            self.lines[self.at].text = rest.to_string();
            items.push(self.block(inner, depth + 1)?);
        }
        Ok(Yaml::List(items))
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> Result<Yaml> {
        let mut entries: Vec<(String, Yaml)> = Vec::new();
        while let Some(line) = self.peek() {
            if line.indent != indent || is_item(&line.text) {
                break;
            }
            let Some((name, rest)) = key(&line.text) else {
                bail!("line {}: expected `name: value`", line.number);
            };
            self.at += 1;
            let value = match rest {
                // The items of a sequence may have the indentation of its name.
                "" => match self.peek() {
                    Some(next) if next.indent == indent && is_item(&next.text) => {
                        self.block(indent, depth + 1)?
                    }
                    _ => self.nested(indent + 1, depth)?,
                },
                rest => scalar(rest, line.number, depth)?,
            };
            entries.retain(|(before, _)| *before != name);
            entries.push((name, value));
        }
        Ok(Yaml::Map(entries))
    }

    /// The block below a line, if there is one.
    fn nested(&mut self, least: usize, depth: usize) -> Result<Yaml> {
        match self.peek() {
            Some(next) if next.indent >= least => self.block(next.indent, depth + 1),
            _ => Ok(Yaml::Null),
        }
    }
}

fn is_item(text: &str) -> bool {
    text == "-" || text.starts_with("- ")
}

/// The name of a mapping's line, and what follows its colon.
fn key(text: &str) -> Option<(String, &str)> {
    if let Some(quote @ ('"' | '\'')) = text.chars().next() {
        let (name, rest) = text[1..].split_once(quote)?;
        let rest = rest.trim_start().strip_prefix(':')?;
        return (rest.is_empty() || rest.starts_with(' '))
            .then(|| (name.to_string(), rest.trim_start()));
    }
    if text.starts_with(['[', '{']) {
        return None;
    }
    let at = match text.find(": ") {
        Some(at) => at,
        None => text.strip_suffix(':')?.len(),
    };
    Some((
        text[..at].trim_end().to_string(),
        text[at + 1..].trim_start(),
    ))
}

/// A value within a line.
fn scalar(text: &str, number: usize, depth: usize) -> Result<Yaml> {
    let mut flow = Flow { rest: text, number };
    let value = flow.value(depth, "")?;
    ensure!(
        flow.rest.trim().is_empty(),
        "line {number}: `{}` after the value",
        flow.rest.trim()
    );
    Ok(value)
}

struct Flow<'a> {
    rest: &'a str,
    number: usize,
}

impl Flow<'_> {
    /// A value that ends before one of the characters of `ends`.
    fn value(&mut self, depth: usize, ends: &str) -> Result<Yaml> {
        let number = self.number;
        ensure!(
            depth < MAX_DEPTH,
            "line {number}: deeper than {MAX_DEPTH} levels"
        );
        self.rest = self.rest.trim_start();
        match self.rest.chars().next() {
            Some('[') => self.list(depth),
            Some('{') => self.map(depth),
            Some(quote @ ('"' | '\'')) => self.quoted(quote).map(Yaml::Scalar),
            Some(sign @ ('&' | '*' | '!' | '|' | '>')) => {
                bail!("line {number}: `{sign}` is not supported here")
            }
            _ => {
                let end = self.rest.find(|c| ends.contains(c));
                let (text, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
                self.rest = rest;
                Ok(match text.trim() {
                    "" | "~" | "null" => Yaml::Null,
                    text => Yaml::Scalar(text.to_string()),
                })
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Yaml> {
        let mut items = Vec::new();
        self.rest = &self.rest[1..];
        loop {
            if self.ends_with(']') {
                return Ok(Yaml::List(items));
            }
            items.push(self.value(depth + 1, ",]")?);
            self.comma(']')?;
        }
    }

    fn map(&mut self, depth: usize) -> Result<Yaml> {
        let mut entries = Vec::new();
        self.rest = &self.rest[1..];
        loop {
            if self.ends_with('}') {
                return Ok(Yaml::Map(entries));
            }
            let name = match self.value(depth + 1, ":,}")? {
                Yaml::Scalar(name) => name,
                _ => bail!("line {}: expected a name", self.number),
            };
            self.rest = self.rest.trim_start();
            let Some(rest) = self.rest.strip_prefix(':') else {
                bail!("line {}: expected `:` after `{name}`", self.number);
            };
            self.rest = rest;
            entries.push((name, self.value(depth + 1, ",}")?));
            self.comma('}')?;
        }
    }

    /// Skips the closing bracket if it is next.
    fn ends_with(&mut self, close: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(close) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn comma(&mut self, close: char) -> Result<()> {
        self.rest = self.rest.trim_start();
        if let Some(rest) = self.rest.strip_prefix(',') {
            self.rest = rest;
        } else if !self.rest.starts_with(close) {
            bail!("line {}: expected `,` or `{close}`", self.number);
        }
        Ok(())
    }

    fn quoted(&mut self, quote: char) -> Result<String> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                // Two quotes are one.
                '\'' if quote == '\'' && chars.peek().is_some_and(|(_, next)| *next == '\'') => {
                    chars.next();
                    text.push('\'');
                }
                c if c == quote => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(text);
                }
                '\\' if quote == '"' => text.push(match chars.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, 't')) => '\t',
                    Some((_, c @ ('"' | '\\' | '/'))) => c,
                    _ => bail!("line {}: unknown escape in quotes", self.number),
                }),
                c => text.push(c),
            }
        }
        bail!("line {}: a quote is not closed", self.number)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(text: &str) -> Yaml {
        Yaml::Scalar(text.into())
    }

    fn map(entries: &[(&str, Yaml)]) -> Yaml {
        let entry = |(name, value): &(&str, Yaml)| ((*name).to_string(), value.clone());
        Yaml::Map(entries.iter().map(entry).collect())
    }

    #[test]
    fn usual_file_is_read() {
        let yaml = r#"
version: '3' # a comment

server:
    command: "php app.php"   # "quoted"
    env:
        - XDEBUG_MODE: off
          OTHER: 'it''s'
        - { A: b, C: "d, e" }
    relay:
http:
  address: 0.0.0.0:8080
  middleware: [ "gzip", static ]
  trusted_subnets:
  - 10.0.0.0/8
  - "::1/128"
  url: http://example.test/#fragment
  empty: []
"#;
        let env = Yaml::List(vec![
            map(&[("XDEBUG_MODE", text("off")), ("OTHER", text("it's"))]),
            map(&[("A", text("b")), ("C", text("d, e"))]),
        ]);
        let server = map(&[
            ("command", text("php app.php")),
            ("env", env),
            ("relay", Yaml::Null),
        ]);
        let list = |items: &[&str]| Yaml::List(items.iter().map(|item| text(item)).collect());
        let http = map(&[
            ("address", text("0.0.0.0:8080")),
            ("middleware", list(&["gzip", "static"])),
            ("trusted_subnets", list(&["10.0.0.0/8", "::1/128"])),
            ("url", text("http://example.test/#fragment")),
            ("empty", list(&[])),
        ]);
        let expected = map(&[("version", text("3")), ("server", server), ("http", http)]);
        assert_eq!(parse(yaml).unwrap(), expected);
    }

    #[test]
    fn unsupported_and_invalid_lines_are_named() {
        for (yaml, error) in [
            ("a: 1\n\tb: 2", "line 2: YAML is not indented with tabs"),
            ("a: &anchor 1", "line 1: `&` is not supported here"),
            ("a: |\n  text", "line 1: `|` is not supported here"),
            ("a: 1\n  b: 2", "line 2: the indentation fits no line above"),
            ("a: \"open", "line 1: a quote is not closed"),
            ("a: [1, 2", "line 1: expected `,` or `]`"),
            ("a: 1\nb", "line 2: expected `name: value`"),
        ] {
            assert_eq!(parse(yaml).unwrap_err().to_string(), error, "{yaml}");
        }
        let deep = "- ".repeat(100) + "x";
        assert!(parse(&deep).unwrap_err().to_string().contains("deeper"));
        let deep = "a: ".to_string() + &"[".repeat(100_000);
        assert!(parse(&deep).unwrap_err().to_string().contains("deeper"));
    }

    #[test]
    fn empty_file_is_null() {
        assert_eq!(parse("").unwrap(), Yaml::Null);
        assert_eq!(parse("# nothing\n---\n").unwrap(), Yaml::Null);
    }

    proptest! {
        #[test]
        fn arbitrary_file_is_read_or_rejected(yaml in "[a-c:\\-\\[\\]{},\"'# \n\\\\]{0,80}") {
            let _ = parse(&yaml);
        }
    }
}
