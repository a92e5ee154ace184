//! Tests that alerts name metrics and label values that exist.

use std::collections::BTreeSet;

use regex::Regex;

use super::markdown::pages;

#[test]
fn alerts_name_metrics_and_labels_that_are_documented() {
    let pages = pages();
    let page = |name: &str| pages.iter().find(|page| page.name == name).unwrap();
    let reference = page("docs/reference/metrics.md");
    let documented: BTreeSet<_> = Regex::new("`([a-z0-9_*]+)`")
        .unwrap()
        .captures_iter(&reference.text)
        .map(|found| found[1].to_string())
        .collect();
    let alerts = page("docs/guides/monitoring.md");

    let metric = Regex::new(r"\bsurus_[a-z_]+").unwrap();
    let mut metrics = BTreeSet::new();
    for found in metric.find_iter(&alerts.text) {
        let name = found.as_str().trim_end_matches("_bucket");
        assert!(documented.contains(name), "no metric {name}");
        metrics.insert(name);
    }
    assert!(metrics.len() > 5, "only {metrics:?}");

    let label = Regex::new(r#"(?:reason|outcome)=~?\s*"([^"]+)""#).unwrap();
    let mut values = BTreeSet::new();
    for found in label.captures_iter(&alerts.text) {
        for value in found[1].split('|') {
            values.insert(value.replace(".*", "_*"));
        }
    }
    assert!(values.len() > 10, "only {values:?}");
    for value in values {
        let is_class = value.len() == 3 && value.ends_with("xx");
        assert!(is_class || documented.contains(&value), "no label {value}");
    }
}
