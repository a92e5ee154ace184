//! Tests that paths, metrics and label values of the admin listener are documented, and that alerts
//! name only existing metrics and values.

use std::collections::BTreeSet;

use regex::Regex;

use super::architecture::{files, sources};
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
fn dashboard_expects_those_exits_that_the_reference_expects() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let reference = read("docs/reference/metrics.md");
    let (_, table) = reference
        .split_once("Why workers of Surus's own engines exit:")
        .unwrap();
    let row = Regex::new(r"(?m)^\| ([a-z_`, ]+) \| yes \|").unwrap();
    let name = Regex::new("`([a-z_]+)`").unwrap();
    let mut expected = BTreeSet::new();
    for cells in row.captures_iter(table) {
        let names = name.captures_iter(&cells[1]);
        expected.extend(names.map(|found| found[1].to_string()));
    }
    assert!(expected.len() > 5, "only {expected:?}");
    let page = read("src/fronts/admin/dashboard.html");
    let (_, list) = page.split_once("const EXPECTED = [").unwrap();
    let (list, _) = list.split_once(']').unwrap();
    let words = list.split(',').map(|word| word.trim().trim_matches('\''));
    let shown: BTreeSet<_> = words.map(str::to_string).collect();
    assert_eq!(shown, expected);
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

/// The words that the reference of metrics shows as code.
pub fn documented() -> BTreeSet<String> {
    let reference = std::fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let word = Regex::new("`([a-z0-9_*]+)`").unwrap();
    let words = word.captures_iter(&reference);
    words.map(|found| found[1].to_string()).collect()
}

#[test]
fn pages_and_manifests_name_only_documented_metrics() {
    // Names of the C program, of PHP's functions and of a setting begin in the same way.
    let c_program = files(&["sapi"], |path| {
        path.extension().is_some_and(|end| end == "c" || end == "h")
    });
    let name = Regex::new(r"\bsurus_[a-z_]+\(?").unwrap();
    let mut known: BTreeSet<String> = ["surus_php".to_string()].into();
    for (_, text) in &c_program {
        let names = name.find_iter(text).map(|found| found.as_str());
        known.extend(names.map(|name| name.trim_end_matches('(').to_string()));
    }
    known.extend(documented());

    let mut texts = files(&["packaging"], |_| true);
    let pages = pages().into_iter().map(|page| (page.name, page.text));
    texts.extend(pages.filter(|(page, _)| page != "CHANGELOG.md"));
    let (mut unknown, mut metrics) = (Vec::new(), BTreeSet::new());
    for (page, text) in &texts {
        for found in name.find_iter(text).map(|found| found.as_str()) {
            let series = ["_bucket", "_count", "_sum"];
            let metric = series.iter().find_map(|series| found.strip_suffix(series));
            let metric = metric.unwrap_or(found);
            if !found.ends_with('(') && !known.contains(metric) {
                unknown.push(format!("{page}: {found}"));
            }
            metrics.insert(metric);
        }
    }
    assert!(metrics.len() > 30, "only {metrics:?}");
    assert!(
        unknown.is_empty(),
        "not in docs/reference/metrics.md: {unknown:?}"
    );
}

#[test]
fn alerts_name_documented_label_values() {
    let documented = documented();
    let pages = pages();
    let is_guide = |name: &str| name == "docs/guides/monitoring.md";
    let alerts = pages.iter().find(|page| is_guide(&page.name)).unwrap();

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
