//! Selects among several values by the host that a request names.

use std::collections::HashMap;

use super::host::{self, HostPattern};

/// Values by host. An exact name comes before a wildcard, a longer wildcard before a shorter one,
/// and the default comes last.
#[derive(Debug)]
pub struct ByHost<T> {
    all: Vec<T>,
    exact: HashMap<String, usize>,
    /// The suffix after `*`, the longest first.
    below: Vec<(String, usize)>,
    default: Option<usize>,
}

impl<T> ByHost<T> {
    /// One value for all hosts.
    pub fn only(value: T) -> ByHost<T> {
        ByHost::new([(Vec::new(), value)], Some(0))
    }

    /// Values with their patterns, and the number of the one for all other hosts. The first of
    /// several with the same pattern is selected.
    pub fn new(
        values: impl IntoIterator<Item = (Vec<HostPattern>, T)>,
        default: Option<usize>,
    ) -> ByHost<T> {
        let mut by_host = ByHost {
            all: Vec::new(),
            exact: HashMap::new(),
            below: Vec::new(),
            default,
        };
        for (number, (patterns, value)) in values.into_iter().enumerate() {
            by_host.all.push(value);
            for pattern in patterns {
                match pattern {
                    HostPattern::Exact(name) => {
                        by_host.exact.entry(name).or_insert(number);
                    }
                    HostPattern::Below(suffix) => by_host.below.push((suffix, number)),
                }
            }
        }
        // A stable sort.
        by_host
            .below
            .sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        by_host
    }

    /// The number of the value for a `Host`, which may have a port; None if no value is for it.
    pub fn select(&self, host: Option<&str>) -> Option<usize> {
        let lower = host.map(|host| host::name(host).to_ascii_lowercase());
        let Some(name) = lower.as_deref() else {
            return self.default;
        };
        let below = || {
            let found = self.below.iter().find(|(suffix, _)| {
                // The suffix begins with a dot, and a host does not.
                name.len() > suffix.len() && name.ends_with(suffix.as_str())
            });
            found.map(|(_, number)| *number)
        };
        let exact = self.exact.get(name).copied();
        exact.or_else(below).or(self.default)
    }

    /// Whether all hosts select the same value.
    pub fn is_for_all(&self) -> bool {
        self.exact.is_empty() && self.below.is_empty()
    }

    pub fn get(&self, number: usize) -> Option<&T> {
        self.all.get(number)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn by_host(sites: &[&[&str]], default: Option<usize>) -> ByHost<usize> {
        let patterns = |hosts: &&[&str]| hosts.iter().map(|host| host.parse().unwrap()).collect();
        ByHost::new(sites.iter().map(patterns).zip(0..), default)
    }

    #[test]
    fn most_specific_pattern_is_selected() {
        let hosts = by_host(
            &[
                &["*.example.org"],
                &["example.org", "www.example.org"],
                &["*.a.example.org", "[::1]"],
                &[],
            ],
            Some(3),
        );
        for (host, number) in [
            ("example.org", 1),
            ("EXAMPLE.org.:8080", 1),
            ("www.example.org", 1),
            ("other.example.org", 0),
            ("a.example.org", 0),
            ("b.a.example.org", 2),
            ("[::1]:80", 2),
            (".example.org", 3),
            ("badexample.org", 3),
            ("", 3),
        ] {
            assert_eq!(hosts.select(Some(host)), Some(number), "{host}");
        }
        assert_eq!(hosts.select(None), Some(3));
    }

    #[test]
    fn unknown_host_without_default_selects_nothing() {
        let hosts = by_host(&[&["a.example"]], None);
        assert_eq!(hosts.select(Some("b.example")), None);
        assert_eq!(hosts.select(None), None);
        assert_eq!(ByHost::only(7).select(None), Some(0));
    }
}
