//! Headers of responses that rules set or remove.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::app::response::is_connection_header;

/// The headers of one rule. A header without a value is removed.
pub type HeaderRule = Arc<[(HeaderName, Option<HeaderValue>)]>;

/// What the rules that match a request do to its response.
#[derive(Debug, Default)]
pub struct HeaderChanges(pub(super) Vec<HeaderRule>);

impl HeaderChanges {
    /// Changes a response. The first rule with a header decides about it.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for (name, value) in self.0.iter().rev().flat_map(|rule| rule.iter()) {
            match value {
                // A cache must still learn what else the response depends on.
                Some(value) if *name == header::VARY => {
                    headers.append(name, value.clone());
                }
                Some(value) => {
                    headers.insert(name, value.clone());
                }
                None => {
                    headers.remove(name);
                }
            }
        }
    }
}

/// Validates the headers of a rule; None if it has none.
pub(super) fn parse(headers: &BTreeMap<String, String>) -> Result<Option<HeaderRule>> {
    let parsed = headers.iter().map(|(name, value)| change(name, value));
    let parsed = parsed.collect::<Result<Vec<_>>>()?;
    Ok((!parsed.is_empty()).then(|| parsed.into()))
}

fn change(name: &str, value: &str) -> Result<(HeaderName, Option<HeaderValue>)> {
    let parsed = HeaderName::from_bytes(name.as_bytes()).with_context(|| {
        format!("`headers` has {name:?}; it expects names of headers, such as \"Cache-Control\"")
    })?;
    ensure!(
        !is_connection_header(&parsed) && parsed != header::CONTENT_LENGTH,
        "`headers` has {name:?}, which Surus itself determines"
    );
    ensure!(
        parsed != header::VARY || !value.is_empty(),
        "`headers` cannot remove {name:?}: caches would mix up responses"
    );
    let is_visible = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    ensure!(
        value.trim() == value && value.bytes().all(is_visible),
        "`headers` has {value:?} for {name}; a value has visible ASCII characters, and spaces only \
         between them"
    );
    let value = (!value.is_empty()).then(|| HeaderValue::from_str(value));
    Ok((parsed, value.transpose()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rule(headers: &[(&str, &str)]) -> Result<Option<HeaderRule>> {
        let own = headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        parse(&own.collect())
    }

    #[test]
    fn first_rule_with_a_header_decides_about_it() {
        let rules = [
            rule(&[("X-A", "1"), ("X-Powered-By", "")]),
            rule(&[("x-a", "2"), ("X-B", "2"), ("Vary", "Cookie")]),
        ];
        let changes = HeaderChanges(rules.map(|rule| rule.unwrap().unwrap()).to_vec());
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-a", "php"),
            ("x-a", "more"),
            ("x-powered-by", "PHP"),
            ("vary", "Accept-Encoding"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        changes.apply(&mut headers);
        let all = |name: &str| -> Vec<_> { headers.get_all(name).iter().cloned().collect() };
        assert_eq!(all("x-a"), ["1"]);
        assert_eq!(all("x-b"), ["2"]);
        assert_eq!(all("vary"), ["Accept-Encoding", "Cookie"]);
        assert!(all("x-powered-by").is_empty());
    }

    #[test]
    fn invalid_header_is_rejected() {
        for (name, value, says) in [
            ("a b", "x", "names of headers"),
            ("Connection", "close", "Surus itself"),
            ("content-length", "1", "Surus itself"),
            ("Transfer-Encoding", "", "Surus itself"),
            ("Vary", "", "caches"),
            ("X-A", "a\nb", "visible ASCII"),
            ("X-A", "a ", "visible ASCII"),
            ("X-A", "\u{e9}", "visible ASCII"),
        ] {
            let error = format!("{:#}", rule(&[(name, value)]).unwrap_err());
            assert!(error.contains(says), "{error}");
        }
        assert!(rule(&[]).unwrap().is_none());
    }
}
