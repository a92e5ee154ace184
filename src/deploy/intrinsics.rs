//! Values of a template, as far as they are known before the deployment.

use std::rc::Rc;

use super::document::{DocumentNode, DocumentValue};

/// A value of the template and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    pub line: usize,
    pub value: T,
}

/// Resolves values of a template.
pub struct IntrinsicReader<'a> {
    pub template: &'a DocumentNode,
}

impl IntrinsicReader<'_> {
    /// A string, or that of the parameter it refers to.
    pub fn text(&self, node: Option<&Rc<DocumentNode>>) -> Option<String> {
        let node = node?;
        if let Some(text) = node.text() {
            return Some(text.to_string());
        }
        let name = match (node.tag.as_str(), &node.value) {
            ("Ref", DocumentValue::Text(name)) => name,
            _ => node.get("Ref")?.text()?,
        };
        let default = self.template.at(&["Parameters", name, "Default"])?;
        default.text().map(str::to_string)
    }

    pub fn number(&self, node: Option<&Rc<DocumentNode>>) -> Option<Located<u64>> {
        let value = self.text(node)?.trim().parse().ok()?;
        Some(Located {
            line: node?.line,
            value,
        })
    }

    /// The value, or `default` if the template has none. None if only the deployment knows it.
    pub fn number_or(
        &self,
        node: Option<&Rc<DocumentNode>>,
        line: usize,
        default: u64,
    ) -> Option<Located<u64>> {
        match node {
            None => Some(Located {
                line,
                value: default,
            }),
            some => self.number(some),
        }
    }

    /// The name of the resource referred to by `Ref`, `GetAtt` or `Sub`; empty if there is none.
    pub fn reference(&self, node: Option<&Rc<DocumentNode>>) -> String {
        let Some(node) = node else {
            return String::new();
        };
        let first = |text: &str| text.split('.').next().unwrap_or_default().to_string();
        match (node.tag.as_str(), &node.value) {
            ("Ref" | "GetAtt", DocumentValue::Text(text)) => first(text),
            ("GetAtt", DocumentValue::List(items)) => items
                .first()
                .and_then(|item| item.text())
                .unwrap_or_default()
                .into(),
            ("Sub", DocumentValue::Text(text)) => self.substituted(text),
            _ => match node.entries() {
                [(key, value)] if key == "Ref" => value.text().unwrap_or_default().into(),
                [(key, value)] if key == "Fn::GetAtt" => match value.text() {
                    Some(text) => first(text),
                    None => value
                        .items()
                        .first()
                        .and_then(|item| item.text())
                        .unwrap_or_default()
                        .into(),
                },
                [(key, value)] if key == "Fn::Sub" => {
                    self.substituted(value.text().unwrap_or_default())
                }
                _ => String::new(),
            },
        }
    }

    /// The resource that `${…}` in a string names.
    fn substituted(&self, text: &str) -> String {
        let names = text
            .split("${")
            .skip(1)
            .filter_map(|rest| rest.split(['.', '}']).next());
        let mut names = names.filter(|name| self.template.at(&["Resources", name]).is_some());
        names.next().unwrap_or_default().to_string()
    }
}
