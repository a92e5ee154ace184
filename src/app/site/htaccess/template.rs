//! Texts of `.htaccess` rules with placeholders for groups and variables: `%{HTTP_HOST}/$1`.

use std::borrow::Cow;
use std::ops::Range;
use std::string::FromUtf8Error;

use super::facts::{FactsView, Variable};
use super::pattern::Groups;

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<TemplatePiece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    /// `$1`: a group of the rule's pattern.
    Rule(usize),
    /// `%1`: a group of the last matching condition.
    Condition(usize),
    Variable(Variable),
}

/// The text that a pattern matched, with its groups.
#[derive(Debug, Clone, Default)]
pub struct Matched {
    pub text: String,
    pub groups: Groups,
    /// A pattern that cannot be evaluated may have set other groups.
    pub is_unknown: bool,
}

impl Matched {
    pub fn new(text: String, groups: Groups) -> Matched {
        Matched {
            text,
            groups,
            is_unknown: false,
        }
    }

    /// The groups of a pattern that cannot be evaluated.
    pub fn unknown() -> Matched {
        Matched {
            is_unknown: true,
            ..Matched::default()
        }
    }

    /// Returns bytes, because patterns match bytes: a group may end inside a character.
    pub fn group(&self, number: usize) -> &[u8] {
        let range: Option<Range<usize>> = self.groups[number].clone();
        range.map_or(&[], |range| &self.text.as_bytes()[range])
    }
}

/// How a rule encodes groups.
pub type Escape = fn(&[u8]) -> String;

impl Template {
    /// The error names the unknown variable.
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['\\', '$', '%']) {
            literal.push_str(&rest[..at]);
            let found = &rest[at..];
            let mut chars = found.chars();
            let mark = chars.next();
            let next = chars.next();
            let piece = match (mark, next) {
                (Some('\\'), Some(next)) => {
                    literal.push(next);
                    rest = &found[1 + next.len_utf8()..];
                    continue;
                }
                (Some(mark), Some(digit)) if digit.is_ascii_digit() => {
                    rest = &found[2..];
                    let number = digit as usize - '0' as usize;
                    match mark {
                        '$' => TemplatePiece::Rule(number),
                        _ => TemplatePiece::Condition(number),
                    }
                }
                (Some(mark), Some('{')) => {
                    let Some((name, behind)) = found[2..].split_once('}') else {
                        return Err(format!("{found} is not closed"));
                    };
                    rest = behind;
                    match Variable::parse(name) {
                        Some(variable) if mark == '%' => TemplatePiece::Variable(variable),
                        _ => return Err(format!("{mark}{{{name}}}")),
                    }
                }
                _ => {
                    literal.push_str(&found[..1]);
                    rest = &found[1..];
                    continue;
                }
            };
            if !literal.is_empty() {
                pieces.push(TemplatePiece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(piece);
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(TemplatePiece::Text(literal));
        }
        Ok(Template(pieces))
    }

    /// Whether the text depends on groups of the rule's pattern.
    pub fn has_rule_groups(&self) -> bool {
        self.0
            .iter()
            .any(|piece| matches!(piece, TemplatePiece::Rule(_)))
    }

    /// The part before the first question mark.
    pub fn before_query(&self) -> Template {
        let mut before = Vec::new();
        for piece in &self.0 {
            if let TemplatePiece::Text(text) = piece
                && let Some((text, _)) = text.split_once('?')
            {
                before.push(TemplatePiece::Text(text.to_owned()));
                break;
            }
            before.push(piece.clone());
        }
        Template(before)
    }

    /// Whether all values of the template are known.
    pub fn is_known(&self, view: &FactsView<'_>, rule: &Matched, condition: &Matched) -> bool {
        let is_known = |piece: &TemplatePiece| match piece {
            TemplatePiece::Text(_) => true,
            TemplatePiece::Rule(_) => !rule.is_unknown,
            TemplatePiece::Condition(_) => !condition.is_unknown,
            TemplatePiece::Variable(variable) => variable.is_known(view),
        };
        view.facts.steps.take(self.0.len() * view.env.steps()) && self.0.iter().all(is_known)
    }

    /// Expands all placeholders. Applies `escape` to groups. Breaks off if the request has no steps
    /// left.
    pub fn expand<'a>(
        &'a self,
        view: &FactsView<'a>,
        rule: &'a Matched,
        condition: &'a Matched,
        escape: Option<Escape>,
    ) -> Cow<'a, str> {
        let group = |matched: &'a Matched, number: usize| -> Cow<'a, [u8]> {
            match escape {
                Some(escape) => escape(matched.group(number)).into_bytes().into(),
                None => matched.group(number).into(),
            }
        };
        let piece = |piece: &'a TemplatePiece| -> Cow<'a, [u8]> {
            match piece {
                TemplatePiece::Text(text) => text.as_bytes().into(),
                TemplatePiece::Rule(number) => group(rule, *number),
                TemplatePiece::Condition(number) => group(condition, *number),
                TemplatePiece::Variable(variable) => bytes_of(variable.value(view)),
            }
        };
        match self.0.as_slice() {
            [] => "".into(),
            [TemplatePiece::Text(text)] => text.into(),
            [TemplatePiece::Variable(variable)] => variable.value(view),
            pieces => {
                let mut bytes = Vec::new();
                for one in pieces {
                    let piece = piece(one);
                    if !view.facts.steps.take_copy(piece.len()) {
                        break;
                    }
                    bytes.extend_from_slice(&piece);
                }
                let lossy =
                    |error: FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into_owned();
                String::from_utf8(bytes).unwrap_or_else(lossy).into()
            }
        }
    }

    /// Whether values of placeholders add components `..` to the text.
    pub fn adds_parent_component(
        &self,
        view: &FactsView<'_>,
        rule: &Matched,
        condition: &Matched,
    ) -> bool {
        let mut whole = Vec::new();
        // The same bytes, with the dots of placeholders replaced.
        let mut own = Vec::new();
        for piece in &self.0 {
            let value = match piece {
                TemplatePiece::Text(text) => {
                    whole.extend_from_slice(text.as_bytes());
                    own.extend_from_slice(text.as_bytes());
                    continue;
                }
                TemplatePiece::Rule(number) => rule.group(*number).into(),
                TemplatePiece::Condition(number) => condition.group(*number).into(),
                TemplatePiece::Variable(variable) => bytes_of(variable.value(view)),
            };
            whole.extend_from_slice(&value);
            own.extend(value.iter().map(|byte| match byte {
                b'.' => b'_',
                byte => *byte,
            }));
        }
        parent_components(&whole) > parent_components(&own)
    }

    /// Whether the template is the path of the requested file.
    pub fn is_filename(&self) -> bool {
        matches!(
            self.0.as_slice(),
            [TemplatePiece::Variable(Variable::Filename)]
        )
    }
}

/// Whether a path contains the component `..`.
pub fn has_parent_component(path: &str) -> bool {
    parent_components(path.as_bytes()) > 0
}

fn parent_components(path: &[u8]) -> usize {
    let components = path.split(|byte| *byte == b'/');
    components.filter(|name| *name == b"..").count()
}

fn bytes_of(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::HeaderMap;
    use proptest::prelude::*;

    use super::super::facts::{Env, Facts};
    use super::*;
    use crate::event::Origin;

    #[test]
    fn template_with_groups_and_variables_is_expanded() {
        let none = HeaderMap::new();
        let facts = Facts {
            origin: &|| Origin {
                client: None,
                server: None,
                https: true,
            },
            ..Facts::of_get("/a?b", Some("b"), &none)
        };
        let env = Env::default();
        let view = FactsView {
            facts: &facts,
            document_root: "/srv",
            path: "/dir/file/info",
            end: 9,
            filename: None,
            query: Some("b"),
            env: &env,
            is_subrequest: false,
        };
        let groups = std::array::from_fn(|at| (at == 1).then_some(1..3));
        let matched = Matched::new("xyz".into(), groups);
        let expanded = |text: &str| {
            let template = Template::parse(text).unwrap();
            let none = Matched::default();
            template.expand(&view, &matched, &none, None).into_owned()
        };
        assert_eq!(expanded("a$1b%1$9"), "ayzb");
        assert_eq!(expanded(r"\$1\%{X}$x%"), "$1%{X}$x%");
        assert_eq!(
            expanded("%{REQUEST_FILENAME}%{PATH_INFO}"),
            "/srv/dir/file/info"
        );
        assert_eq!(expanded("%{THE_REQUEST}"), "GET /a?b HTTP/1.1");
        assert_eq!(expanded("%{HTTPS}|%{ENV:X}|%{NO_SUCH}"), "on||");
        assert_eq!(expanded("%{SERVER_PORT}"), "443");
        for unknown in ["%{LA-U:REMOTE_USER}", "${map:$1}", "%{TIME_HOUR}", "%{x"] {
            assert!(Template::parse(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn parent_component_of_a_placeholder_differs_from_the_templates_own() {
        let none = HeaderMap::new();
        let facts = Facts::of_get("/", Some(".."), &none);
        let env = Env::default();
        let view = FactsView {
            facts: &facts,
            document_root: "/srv",
            path: "/",
            end: 1,
            filename: None,
            query: Some(".."),
            env: &env,
            is_subrequest: false,
        };
        let groups = std::array::from_fn(|at| (at < 3).then_some(at.saturating_sub(1)..at));
        let matched = Matched::new("./".into(), groups);
        let none = Matched::default();
        for (text, adds) in [
            ("%{DOCUMENT_ROOT}/../x", false),
            ("/a$2../x", false),
            ("/..%{QUERY_STRING}/../x", false),
            ("/%{QUERY_STRING}/x", true),
            ("/../%{QUERY_STRING}/x", true),
            ("/.$1/x", true),
            ("/$1./x", true),
        ] {
            let template = Template::parse(text).unwrap();
            let found = template.adds_parent_component(&view, &matched, &none);
            assert_eq!(found, adds, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_template_is_parsed_or_rejected(
            text in r"(\$|%|\{|\}|1|\\|é|x|HTTP:|ENV:){0,12}",
        ) {
            let _ = Template::parse(&text);
        }
    }
}
