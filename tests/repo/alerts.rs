//! Tests that paths, metrics and label values of the admin listener are documented, and that alerts
//! name such as exist.

use std::collections::BTreeSet;

use regex::Regex;

use super::architecture::sources;
use super::markdown::{pages, root};

#[test]
fn admin_paths_are_documented_and_listed() {
    let source = std::fs::read_to_string(root().join("src/fronts/admin.rs")).unwrap();
    let (served, listed) = source.split_once("not found; there are").unwrap();
    let (listed, _) = listed.split_once("StatusCode::NOT_FOUND").unwrap();
    let reference = std::fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let (table, _) = reference.split_once("\n## Metrics").unwrap();
    let path = Regex::new(r#"["`]((?:POST )?/(?:-/[a-z]+|metrics))["`]"#).unwrap();
    let paths = |text: &str| -> BTreeSet<String> {
        path.captures_iter(text)
            .map(|found| found[1].to_string())
            .collect()
    };
    let without_method = |paths: &BTreeSet<String>| -> BTreeSet<String> {
        let names = paths.iter().map(|path| path.trim_start_matches("POST "));
        names.map(String::from).collect()
    };
    let (mut documented, listed) = (paths(table), paths(listed));
    assert_eq!(without_method(&documented), paths(served));
    assert!(documented.remove("/metrics"), "a second name");
    assert_eq!(documented, listed);
}

#[test]
fn repair_reasons_are_documented() {
    let reference = std::fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let repaired = Regex::new(r#"repaired\("([a-z_]+)"\)"#).unwrap();
    let mut reasons = BTreeSet::new();
    for (_, text) in sources(&["src/engines"]) {
        reasons.extend(
            repaired
                .captures_iter(&text)
                .map(|found| found[1].to_string()),
        );
    }
    assert!(reasons.len() > 5, "only {reasons:?}");
    for reason in reasons {
        let row = format!("\n| `{reason}` |");
        assert!(
            reference.contains(&row),
            "docs/reference/metrics.md lacks {reason}"
        );
    }
}

#[test]
fn outcomes_of_failures_are_documented_and_alerted() {
    let source = std::fs::read_to_string(root().join("src/app/response.rs")).unwrap();
    let reference = std::fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let name = Regex::new(r#"Failure::\w+(?:\(_\))? => "([a-z_]+)""#).unwrap();
    let named: BTreeSet<_> = name
        .captures_iter(&source)
        .map(|found| found[1].to_string())
        .collect();
    assert!(named.len() > 5, "only {named:?}");
    let (_, table) = reference
        .split_once("Outcomes that are not status classes:")
        .unwrap();
    let (table, _) = table.trim_start().split_once("\n\n").unwrap();
    let row = Regex::new(r"(?m)^\| `([a-z_]+)` \|").unwrap();
    let mut documented: BTreeSet<_> = row
        .captures_iter(table)
        .map(|found| found[1].to_string())
        .collect();
    assert!(documented.remove("client_closed"), "it is no failure");
    assert_eq!(documented, named);

    let guide = std::fs::read_to_string(root().join("docs/guides/monitoring.md")).unwrap();
    let label = Regex::new(r#"outcome=~?"([^"]+)""#).unwrap();
    let counted = label.captures_iter(&guide).flat_map(|found| {
        let values = found[1].split('|').map(str::to_string);
        values.collect::<Vec<_>>()
    });
    let counted: BTreeSet<_> = counted.collect();
    for name in named {
        assert!(
            counted.contains(&name) || name == "too_large",
            "no alert of docs/guides/monitoring.md counts {name}"
        );
    }
}

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
