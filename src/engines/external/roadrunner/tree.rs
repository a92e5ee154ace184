//! The tree of a form's fields, as PHP and RoadRunner build it from names such as `a[b][]`.

use std::collections::HashMap;

use serde::{Serialize, Serializer};

/// A level of the tree, in the order of the form.
#[derive(Debug)]
pub struct FormTree<T> {
    nodes: Vec<(String, TreeNode<T>)>,
    /// Where each name is in `nodes`.
    places: HashMap<String, usize>,
}

#[derive(Debug)]
enum TreeNode<T> {
    Leaf(T),
    /// What `name[]` collects.
    List(Vec<T>),
    Branch(FormTree<T>),
}

impl<T> Default for FormTree<T> {
    fn default() -> Self {
        FormTree {
            nodes: Vec::new(),
            places: HashMap::new(),
        }
    }
}

/// The deepest level; deeper fields are dropped.
const MAX_DEPTH: usize = 127;

impl<T> FormTree<T> {
    /// Adds a field. A later field replaces an earlier one of the same name.
    pub fn add(&mut self, name: &str, value: T) {
        let keys = keys(name);
        if keys.len() <= MAX_DEPTH {
            self.mount(&keys, value);
        }
    }

    fn mount(&mut self, keys: &[String], value: T) {
        let Some((key, rest)) = keys.split_first() else {
            return;
        };
        let nodes = &mut self.nodes;
        let at = *self.places.entry(key.clone()).or_insert_with(|| {
            nodes.push((key.clone(), TreeNode::Branch(FormTree::default())));
            nodes.len() - 1
        });
        match (rest, &mut nodes[at].1) {
            ([], node) => *node = TreeNode::Leaf(value),
            ([only], TreeNode::List(list)) if only.is_empty() => list.push(value),
            ([only], node) if only.is_empty() => *node = TreeNode::List(vec![value]),
            (rest, TreeNode::Branch(branch)) => branch.mount(rest, value),
            (rest, node) => {
                let mut branch = FormTree::default();
                branch.mount(rest, value);
                *node = TreeNode::Branch(branch);
            }
        }
    }
}

impl<T: Serialize> Serialize for FormTree<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.nodes.iter().map(|(name, node)| (name, node)))
    }
}

impl<T: Serialize> Serialize for TreeNode<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            TreeNode::Leaf(value) => value.serialize(serializer),
            TreeNode::List(values) => values.serialize(serializer),
            TreeNode::Branch(tree) => tree.serialize(serializer),
        }
    }
}

/// The parts of `a[b][]`: `a`, `b` and an empty one.
fn keys(name: &str) -> Vec<String> {
    let (first, mut rest) = match name.find('[') {
        Some(at) if at > 0 => name.split_at(at),
        _ => return vec![name.to_string()],
    };
    let mut keys = vec![first.trim_start().to_string()];
    while let Some(inner) = rest.strip_prefix('[') {
        let Some((key, after)) = inner.split_once(']') else {
            break;
        };
        keys.push(key.to_string());
        rest = after;
    }
    keys
}

/// An upper bound of the levels that the names of an urlencoded form have together.
pub fn levels(body: &[u8]) -> usize {
    let marks = body
        .iter()
        .filter(|byte| matches!(byte, b'&' | b'['))
        .count();
    let escaped = body
        .windows(3)
        .filter(|three| three.eq_ignore_ascii_case(b"%5b"));
    1 + marks + escaped.count()
}

/// The fields of an `application/x-www-form-urlencoded` body.
pub fn urlencoded(body: &[u8]) -> FormTree<String> {
    let mut tree = FormTree::default();
    for (name, value) in pairs(body) {
        if !name.is_empty() {
            tree.add(&name, value);
        }
    }
    tree
}

fn pairs(body: &[u8]) -> impl Iterator<Item = (String, String)> {
    body.split(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let equals = pair.iter().position(|byte| *byte == b'=');
            let (name, value) = pair.split_at(equals.unwrap_or(pair.len()));
            (
                unescape(name),
                unescape(value.strip_prefix(b"=").unwrap_or(value)),
            )
        })
}

/// Decodes `%20` and `+`. Bytes that are not UTF-8 become U+FFFD, because JSON cannot carry them.
pub fn unescape(text: &[u8]) -> String {
    let spaced: Vec<u8> = text
        .iter()
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    percent_encoding::percent_decode(&spaced)
        .decode_utf8_lossy()
        .into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json(body: &str) -> String {
        serde_json::to_string(&urlencoded(body.as_bytes())).unwrap()
    }

    #[test]
    fn names_become_a_tree() {
        for (body, tree) in [
            ("", "{}"),
            ("a=1&b=2", r#"{"a":"1","b":"2"}"#),
            ("a=1&a=2", r#"{"a":"2"}"#),
            ("a%5B%5D=1&a[]=2", r#"{"a":["1","2"]}"#),
            ("a[x]=1&a[y][z]=2", r#"{"a":{"x":"1","y":{"z":"2"}}}"#),
            ("a[0][b]=1&a[0][c]=2", r#"{"a":{"0":{"b":"1","c":"2"}}}"#),
            ("a=&a[x]=1", r#"{"a":{"x":"1"}}"#),
            ("a[x]=1&a=2", r#"{"a":"2"}"#),
            ("f=%C3%A4+b%26c&&=x&g", r#"{"f":"ä b&c","g":""}"#),
            ("a[b=1", r#"{"a":"1"}"#),
            ("[a]=1", r#"{"[a]":"1"}"#),
        ] {
            assert_eq!(json(body), tree, "{body}");
        }
    }

    #[test]
    fn deepest_fields_are_dropped() {
        let deep = format!("a{}=1", "[b]".repeat(MAX_DEPTH));
        assert_eq!(json(&deep), "{}");
        let allowed = format!("a{}=1", "[b]".repeat(MAX_DEPTH - 1));
        assert_ne!(json(&allowed), "{}");
    }

    proptest! {
        #[test]
        fn arbitrary_form_is_valid_json(body in "[a-c\\[\\]=&%0-9]{0,60}") {
            let text = json(&body);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        }
    }
}
