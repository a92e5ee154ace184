//! YAML and JSON documents with line numbers and CloudFormation's tags.

use std::collections::BTreeMap;
use std::rc::Rc;

use anyhow::{anyhow, bail};
use saphyr_parser::{Event, Parser, Tag};

/// A value and its position.
#[derive(Debug, Clone)]
pub struct DocumentNode {
    /// The line, from 1.
    pub line: usize,
    /// `Ref` for `!Ref`; empty without a tag.
    pub tag: String,
    pub value: DocumentValue,
}

#[derive(Debug, Clone)]
pub enum DocumentValue {
    Text(String),
    List(Vec<Rc<DocumentNode>>),
    /// In the document's order.
    Map(Vec<(String, Rc<DocumentNode>)>),
}

impl DocumentNode {
    /// The value of a key. None if this is not a map.
    pub fn get(&self, key: &str) -> Option<&Rc<DocumentNode>> {
        self.entries()
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, node)| node)
    }

    /// The value at a path of keys.
    pub fn at(&self, keys: &[&str]) -> Option<&DocumentNode> {
        keys.iter()
            .try_fold(self, |node, key| node.get(key).map(Rc::as_ref))
    }

    /// The entries of a map; empty for other values.
    pub fn entries(&self) -> &[(String, Rc<DocumentNode>)] {
        match &self.value {
            DocumentValue::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; empty for other values.
    pub fn items(&self) -> &[Rc<DocumentNode>] {
        match &self.value {
            DocumentValue::List(items) => items,
            _ => &[],
        }
    }

    /// The text. None for lists, maps and values whose meaning a tag changes.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            DocumentValue::Text(text) if self.tag.is_empty() => Some(text),
            _ => None,
        }
    }
}

/// Reads the first document.
pub fn parse(text: &str) -> anyhow::Result<DocumentNode> {
    let mut reader = DocumentReader {
        parser: Parser::new_from_str(text),
        anchors: BTreeMap::new(),
    };
    loop {
        let (event, line) = reader.next()?;
        match event {
            Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
            Event::StreamEnd => bail!("the file is empty"),
            event => return Ok(Rc::unwrap_or_clone(reader.node(event, line, 0)?)),
        }
    }
}

/// Limit of nesting: deeper than any template, and safe for the stack.
const DEEPEST: usize = 200;

struct DocumentReader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    anchors: BTreeMap<usize, Rc<DocumentNode>>,
}

impl<'a> DocumentReader<'a> {
    fn next(&mut self) -> anyhow::Result<(Event<'a>, usize)> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start.line())),
            Some(Err(error)) => bail!("line {}: {}", error.marker().line(), error.info()),
            None => bail!("the file ends unexpectedly"),
        }
    }

    fn node(
        &mut self,
        event: Event<'a>,
        line: usize,
        depth: usize,
    ) -> anyhow::Result<Rc<DocumentNode>> {
        if depth > DEEPEST {
            bail!("line {line}: more than {DEEPEST} levels of nesting");
        }
        let (anchor, tag, value) = match event {
            Event::Alias(anchor) => {
                return self.anchors.get(&anchor).cloned().ok_or_else(|| {
                    anyhow!("line {line}: an alias to a node that is not complete")
                });
            }
            Event::Scalar(text, _, anchor, tag) => {
                (anchor, tag, DocumentValue::Text(text.into_owned()))
            }
            Event::SequenceStart(anchor, tag) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break,
                        (event, line) => items.push(self.node(event, line, depth + 1)?),
                    }
                }
                (anchor, tag, DocumentValue::List(items))
            }
            Event::MappingStart(anchor, tag) => {
                let mut entries = Vec::new();
                loop {
                    let key = match self.next()? {
                        (Event::MappingEnd, _) => break,
                        (event, line) => self.node(event, line, depth + 1)?,
                    };
                    let key_line = key.line;
                    let DocumentValue::Text(key) = &key.value else {
                        bail!("line {key_line}: a key that is not a string");
                    };
                    let (event, mut line) = self.next()?;
                    // The entry of a nested map or list begins at its key.
                    if matches!(event, Event::MappingStart(..) | Event::SequenceStart(..)) {
                        line = key_line;
                    }
                    entries.push((key.clone(), self.node(event, line, depth + 1)?));
                }
                (anchor, tag, DocumentValue::Map(entries))
            }
            other => bail!("line {line}: expected a value, found {other:?}"),
        };
        let node = Rc::new(DocumentNode {
            line,
            tag: tag.map(|tag| meaning(&tag)).unwrap_or_default(),
            value,
        });
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }
}

/// YAML's own tags, such as `!!str`, count as no tag.
fn meaning(tag: &Tag) -> String {
    if tag.is_yaml_core_schema() {
        String::new()
    } else {
        tag.suffix.clone()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn value_has_its_line_and_tag() {
        let node =
            parse("a:\n  b: !GetAtt Queue.Arn\n  c:\n    - 1\n    - !Ref X\nd: &x {e: f}\ng: *x\n")
                .unwrap();
        let b = node.at(&["a", "b"]).unwrap();
        assert_eq!((b.line, b.tag.as_str(), b.text()), (2, "GetAtt", None));
        let items = node.at(&["a", "c"]).unwrap().items();
        assert_eq!(items[0].text(), Some("1"));
        assert_eq!((items[1].line, items[1].tag.as_str()), (5, "Ref"));
        assert_eq!(node.at(&["g", "e"]).unwrap().text(), Some("f"));
    }

    #[test]
    fn json_is_parsed() {
        let node = parse("{\n  \"a\": {\"Ref\": \"X\"}\n}").unwrap();
        assert_eq!(node.at(&["a", "Ref"]).unwrap().text(), Some("X"));
        assert_eq!(node.at(&["a"]).unwrap().line, 2);
    }

    #[test]
    fn syntax_error_names_its_line() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert!(
            error("a: [1\nb: 2").contains("line 2"),
            "{}",
            error("a: [1\nb: 2")
        );
        assert!(error("").contains("empty"));
        let deep = error(&"[".repeat(10_000));
        assert!(deep.contains("line 1"), "{deep}");
    }
}
