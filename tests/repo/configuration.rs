//! Tests that docs/reference/configuration.md and surus.toml.example have every key with its
//! default, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use serde_json::Value;
use surus::app::site::ROOTS;
use surus::app::site::routes::RouteRule;
use surus::config::sites::Own;
use surus::config::{Config, PoolSettings};
use surus::fronts::queue::{Queue, Schedule};

use super::markdown::pages;

/// Sections with keys that the user chooses.
const FREE: [&str; 2] = ["php", "env"];

/// First words of names with a dot that are no settings of Surus: PHP's, php-fpm's, RoadRunner's,
/// and those of frameworks, brokers and traces.
const OTHERS: [&str; 19] = [
    "amqp",
    "connection",
    "date",
    "doctrine",
    "example",
    "fastcgi",
    "ffi",
    "horizon",
    "jobs",
    "kernel",
    "mail",
    "opcache",
    "pm",
    "server",
    "session",
    "supervisor",
    "surus",
    "workspace",
    "zend",
];

/// What follows the dot in names of files.
const FILES: [&str; 28] = [
    "c",
    "config",
    "crt",
    "d",
    "dat",
    "example",
    "go",
    "gz",
    "h",
    "inc",
    "ini",
    "json",
    "local",
    "lock",
    "log",
    "md",
    "neon",
    "out",
    "pem",
    "php",
    "production",
    "rs",
    "so",
    "toml",
    "xml",
    "yaml",
    "yml",
    "zip",
];

/// The section of several sites, whose tables have keys of their own.
const SITES: &str = "[[site]]";

#[test]
fn every_key_is_documented_with_its_default() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/reference/configuration.md"
    );
    let documented = documented(&std::fs::read_to_string(path).unwrap());
    let actual = actual();
    for (key, default) in &actual {
        match documented.get(key) {
            None => {
                panic!(
                    "docs/reference/configuration.md says nothing about {key}; its default is \
                        {default}"
                )
            }
            Some(said) => assert_eq!(
                said, default,
                "the default of {key} in docs/reference/configuration.md"
            ),
        }
    }
    for key in documented.keys() {
        assert!(
            actual.contains_key(key),
            "docs/reference/configuration.md has {key}, which does not exist"
        );
    }
}

#[test]
fn settings_that_documents_name_exist() {
    let known = actual();
    let sections: BTreeSet<_> = known.keys().filter_map(|key| key.split_once('.')).collect();
    let sections: BTreeSet<_> = sections.into_iter().map(|(section, _)| section).collect();
    let setting = Regex::new(r"`([a-z_]+)\.([a-z_]+)`").unwrap();
    let mut unknown = Vec::new();
    for page in pages() {
        for found in setting.captures_iter(&page.text) {
            let (section, key) = (&found[1], &found[2]);
            let is_ours = sections.contains(section) && !FREE.contains(&section);
            let exists = match is_ours {
                true => known.contains_key(&format!("{section}.{key}")),
                false => OTHERS.contains(&section),
            };
            if !exists && !FILES.contains(&key) {
                unknown.push(format!("{}: {section}.{key}", page.name));
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn example_has_every_key_with_its_default() {
    let text = include_str!("../../surus.toml.example");
    let nothing: Config = toml::from_str(text).unwrap();
    let default = serde_json::to_value(Config::default()).unwrap();
    assert_eq!(
        serde_json::to_value(nothing).unwrap(),
        default,
        "the example sets something"
    );

    let setting = Regex::new(r#"(?m)^#([\w"\[])"#).unwrap();
    let all = setting.replace_all(text, "$1");
    // A file cannot have both [site] and [[site]].
    let (before, rest) = all.split_once(&format!("{SITES}\n")).unwrap();
    let (site, after) = rest.split_once("\n\n").unwrap();
    let (all, site) = (format!("{before}\n{after}"), format!("{SITES}\n{site}"));
    for text in [&all, &site] {
        toml::from_str::<Config>(text).unwrap_or_else(|error| panic!("{error}"));
    }
    let all: toml::Table = toml::from_str(&all).unwrap();
    let mut written = BTreeMap::new();
    let site: toml::Table = toml::from_str(&site).unwrap();
    for (key, value) in site["site"][0].as_table().unwrap() {
        // The other keys are examples of sections.
        if !value.is_table() {
            let value = serde_json::to_value(value).unwrap();
            written.insert(format!("{SITES}.{key}"), self::written(&value));
        }
    }
    for (section, value) in &all {
        let (heading, keys) = match section.as_str() {
            "route" => ("route", value[0].as_table()),
            "queue" | "schedule" => (&**section, value[0].as_table()),
            "pool" => ("pool.NAME", value["debug"].as_table()),
            free if FREE.contains(&free) => continue,
            section => (section, value.as_table()),
        };
        for (key, value) in keys.unwrap() {
            let value = serde_json::to_value(value).unwrap();
            written.insert(format!("{heading}.{key}"), self::written(&value));
        }
    }
    let mut actual = actual();
    actual.retain(|key, _| !FREE.contains(&key.as_str()));
    let keys = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&written), keys(&actual), "keys of surus.toml.example");
    for (key, default) in &actual {
        // Rules have no useful defaults.
        let is_required = ["schedule.name", "schedule.cron", "[[site]].host"];
        let is_required = is_required.contains(&key.as_str());
        let has_default = default != "not set" && key != "route.deny" && !is_required;
        assert!(
            !has_default || written[key] == *default,
            "{key} in surus.toml.example"
        );
    }
}

#[test]
fn document_roots_are_listed_in_their_order() {
    let reference = include_str!("../../docs/reference/configuration.md");
    let example = include_str!("../../surus.toml.example");
    let directory = Regex::new(r"`([A-Za-z_]+)/`").unwrap();
    for (text, begin, end) in [
        (reference, "Without `root`, the document root", "\n\n"),
        (example, "# The document root", "\n#root"),
    ] {
        let (_, rest) = text.split_once(begin).unwrap();
        let (paragraph, _) = rest.split_once(end).unwrap();
        let listed = directory
            .captures_iter(paragraph)
            .map(|found| found[1].to_owned());
        assert_eq!(listed.collect::<Vec<_>>(), ROOTS, "{begin}");
    }
}

/// `http.max_body_size` → `"64M"`, from the code.
fn actual() -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    let config = serde_json::to_value(Config::default()).unwrap();
    for (section, value) in config.as_object().unwrap() {
        let keys_of_rule = serde_json::to_value(RouteRule::default()).unwrap();
        let keys_of_queue = serde_json::to_value(Queue::default()).unwrap();
        let keys_of_schedule = serde_json::to_value(Schedule::default()).unwrap();
        let keys_of_pool = serde_json::to_value(PoolSettings::default()).unwrap();
        let (heading, value) = match section.as_str() {
            "route" => ("route", &keys_of_rule),
            "queue" => ("queue", &keys_of_queue),
            "schedule" => ("schedule", &keys_of_schedule),
            "pool" => ("pool.NAME", &keys_of_pool),
            section => (section, value),
        };
        if FREE.contains(&heading) {
            keys.insert(heading.to_string(), String::new());
        }
        for (key, default) in value.as_object().unwrap() {
            keys.insert(format!("{heading}.{key}"), written(default));
        }
    }
    let of_sites = serde_json::to_value(Own::default()).unwrap();
    for (key, default) in of_sites.as_object().unwrap() {
        keys.insert(format!("{SITES}.{key}"), written(default));
    }
    keys
}

/// As TOML writes it, without the spaces of lists.
fn written(value: &Value) -> String {
    match value {
        Value::Null => "not set".into(),
        Value::Array(_) | Value::Object(_) => format!("`{}`", value.to_string().replace(',', ", ")),
        value => format!("`{value}`"),
    }
}

/// The keys and defaults in the document's headings and tables.
fn documented(text: &str) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    let mut section = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading.trim_matches(|c| "`[]".contains(c)).to_string();
            if heading.contains(SITES) {
                section = SITES.to_string();
            }
            if FREE.contains(&section.as_str()) {
                keys.insert(section.clone(), String::new());
            }
        }
        if let Some(row) = line.strip_prefix("| `") {
            let cells: Vec<_> = row.split(" | ").collect();
            assert_eq!(
                cells.len(),
                4,
                "a row has key, type, default and meaning: {line}"
            );
            keys.insert(
                format!("{section}.{}", cells[0].trim_matches('`')),
                cells[2].to_string(),
            );
        }
    }
    keys
}
