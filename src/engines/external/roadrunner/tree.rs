//! The tree of a form's fields, as RoadRunner builds it from names such as `a[b][]`.

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

/// What becomes of a field with the name of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeated {
    Replaces,
    IsLeftOut,
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
        self.put(name, value, Repeated::Replaces);
    }

    /// Adds a field, unless there is one with this name.
    pub fn add_first(&mut self, name: &str, value: T) {
        self.put(name, value, Repeated::IsLeftOut);
    }

    fn put(&mut self, name: &str, value: T, repeated: Repeated) {
        if depth(name) <= MAX_DEPTH {
            let mut keys = Vec::new();
            each_key(name, |key| keys.push(key));
            self.mount(&keys, value, repeated);
        }
    }

    fn mount(&mut self, keys: &[String], value: T, repeated: Repeated) {
        let Some((key, rest)) = keys.split_first() else {
            return;
        };
        let nodes = &mut self.nodes;
        let at = *self.places.entry(key.clone()).or_insert_with(|| {
            nodes.push((key.clone(), TreeNode::Branch(FormTree::default())));
            nodes.len() - 1
        });
        match (rest, &mut nodes[at].1) {
            ([], TreeNode::Leaf(_)) if repeated == Repeated::IsLeftOut => {}
            ([], node) => *node = TreeNode::Leaf(value),
            ([only], TreeNode::List(list)) if only.is_empty() => list.push(value),
            ([only], node) if only.is_empty() => *node = TreeNode::List(vec![value]),
            (rest, TreeNode::Branch(branch)) => branch.mount(rest, value, repeated),
            (rest, node) => {
                let mut branch = FormTree::default();
                branch.mount(rest, value, repeated);
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

/// Passes on the keys of a name as RoadRunner splits it: `a`, `b` and an empty one for `a[b][]`.
/// Spaces do not count, and brackets need not match.
fn each_key(name: &str, mut found: impl FnMut(String)) {
    let mut key = String::new();
    let (mut is_inside_key, mut count) = (true, 0);
    let mut end = |key: &mut String| {
        found(std::mem::take(key));
        count += 1;
    };
    for c in name.chars() {
        match c {
            ' ' => {}
            '[' => {
                if is_inside_key {
                    end(&mut key);
                }
                is_inside_key = false;
            }
            ']' => {
                end(&mut key);
                is_inside_key = false;
            }
            c => {
                key.push(c);
                is_inside_key = true;
            }
        }
    }
    if !key.is_empty() || count == 0 {
        found(key);
    }
}

/// How many keys a name has.
pub fn depth(name: &str) -> usize {
    let mut count = 0;
    each_key(name, |_| count += 1);
    count
}

/// The fields of an `application/x-www-form-urlencoded` body. None if their names have more than
/// `max` keys together.
pub fn urlencoded(body: &[u8], max: usize) -> Option<FormTree<String>> {
    let mut tree = FormTree::default();
    let mut levels = 0;
    for (name, value) in pairs(body) {
        if !name.is_empty() {
            levels += depth(&name);
            if levels > max {
                return None;
            }
            tree.add(&name, value);
        }
    }
    Some(tree)
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
        serde_json::to_string(&urlencoded(body.as_bytes(), 100_000).unwrap()).unwrap()
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
            (
                "first+name=x&a[+b+]=1",
                r#"{"firstname":"x","a":{"b":"1"}}"#,
            ),
            ("a[b=1", r#"{"a":{"b":"1"}}"#),
            ("a[b]c[d]=1", r#"{"a":{"b":{"c":{"d":"1"}}}}"#),
            ("a]b=1", r#"{"a":{"b":"1"}}"#),
            ("[a]=1", r#"{"":{"a":"1"}}"#),
            ("+=1", r#"{"":"1"}"#),
        ] {
            assert_eq!(json(body), tree, "{body}");
        }
    }

    #[test]
    fn repeated_field_replaces_the_first_or_is_left_out() {
        let mut tree = FormTree::default();
        for n in 0..2 {
            tree.add("later", n);
            tree.add_first("first", n);
            tree.add_first("list[]", n);
            tree.add_first("a[b]", n);
        }
        assert_eq!(
            serde_json::to_string(&tree).unwrap(),
            r#"{"later":1,"first":0,"list":[0,1],"a":{"b":0}}"#
        );
    }

    #[test]
    fn keys_of_all_names_are_limited() {
        assert_eq!((depth("a"), depth("a[b][]"), depth("]]]")), (1, 3, 3));
        assert!(urlencoded(b"a[b]=1&c=2", 3).is_some());
        assert!(urlencoded(b"a[b]=1&c=2", 2).is_none());
        assert!(urlencoded(&b"]".repeat(1 << 20), 100_000).is_none());
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
