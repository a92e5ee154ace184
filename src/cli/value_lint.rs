//! Finds values that are valid but probably unintended: PHP's settings that PHP reads otherwise,
//! and Surus's own that make no sense.

use std::path::Path;

use super::config_lint::LintInput;
use crate::app::forwarded::Proxy;
use crate::units::Size;

/// PHP's settings that are a number of bytes.
const BYTES: [&str; 3] = ["memory_limit", "post_max_size", "upload_max_filesize"];

/// The words of `error_reporting`.
const LEVELS: [&str; 16] = [
    "E_ERROR",
    "E_WARNING",
    "E_PARSE",
    "E_NOTICE",
    "E_CORE_ERROR",
    "E_CORE_WARNING",
    "E_COMPILE_ERROR",
    "E_COMPILE_WARNING",
    "E_USER_ERROR",
    "E_USER_WARNING",
    "E_USER_NOTICE",
    "E_STRICT",
    "E_RECOVERABLE_ERROR",
    "E_DEPRECATED",
    "E_USER_DEPRECATED",
    "E_ALL",
];

/// A worker has more than this before it has run a script.
const SMALLEST_WORKER: Size = Size(8 << 20);

/// One sentence for each such value: what it does, and what to write.
pub(super) fn suspicious_values(input: &LintInput<'_>) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(BYTES.iter().filter_map(|name| bytes(name, input)));
    found.extend(error_reporting(&written(input, "error_reporting")));
    found.extend(time_zone(
        &written(input, "date.timezone"),
        Path::new("/usr/share/zoneinfo"),
    ));
    found.extend(own(input));
    found
}

/// The value in the configuration, else the one that PHP reports.
fn written(input: &LintInput<'_>, name: &str) -> String {
    let own = input.config.php.get(name);
    let own = own.and_then(|value| value.entries().pop());
    own.unwrap_or_else(|| (input.php)(name))
}

fn bytes(name: &str, input: &LintInput<'_>) -> Option<String> {
    let value = written(input, name);
    let text = value.trim().trim_matches('"');
    let number = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = number.trim_end_matches(|c: char| !c.is_ascii_digit());
    let is_number = !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit());
    let unit = number[digits.len()..].trim();
    let is_unit = unit.is_empty() || matches!(unit, "k" | "K" | "m" | "M" | "g" | "G");
    if text.is_empty() || is_number && is_unit {
        return None;
    }
    let multiplier = unit.chars().next().map(|c| c.to_ascii_uppercase());
    let meant = match multiplier {
        Some(multiplier @ ('K' | 'M' | 'G')) if is_number => format!("{digits}{multiplier}"),
        _ => "128M".to_owned(),
    };
    Some(format!(
        "{name} is {text:?}, which PHP does not read as it looks; write a number with K, M or G, \
         such as {meant:?}"
    ))
}

fn error_reporting(value: &str) -> Option<String> {
    let words = value.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut words = words.filter(|word| !word.is_empty());
    let is_known = |word: &str| {
        let is_number = word.bytes().all(|c| c.is_ascii_digit());
        is_number || LEVELS.contains(&word)
    };
    let unknown = words.find(|word| !is_known(word))?;
    Some(format!(
        "error_reporting has {unknown:?}, which PHP takes for 0; write words such as E_ALL & \
         ~E_DEPRECATED"
    ))
}

/// PHP compares names without regard to case, and Debian's reads them from this directory.
fn time_zone(name: &str, zones: &Path) -> Option<String> {
    let name = name.trim_matches('"');
    let is_read = zones.join("Europe").is_dir();
    if name.is_empty() || !is_read || is_zone(name, zones) {
        return None;
    }
    Some(format!(
        "date.timezone is {name:?}, which is not a time zone of this machine, so PHP uses UTC; \
         write a name such as \"Europe/Vienna\""
    ))
}

fn is_zone(name: &str, zones: &Path) -> bool {
    let mut at = zones.to_owned();
    for part in name.split('/') {
        let entries = std::fs::read_dir(&at).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name());
        match names.find(|name| name.eq_ignore_ascii_case(part)) {
            Some(found) => at.push(found),
            None => return false,
        }
    }
    at.is_file()
}

fn own(input: &LintInput<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for proxy in &input.config.http.trusted_proxies {
        if let Proxy::Network(network) = proxy
            && network.prefix_len() == 0
        {
            found.push(format!(
                "http.trusted_proxies has {network}, so every client can name another address and \
                 host as its own; name only the proxies"
            ));
        }
    }
    let max = input.config.engine.max_memory;
    if max != Size(0) && max < SMALLEST_WORKER {
        found.push(format!(
            "engine.max_memory is {max}, less than PHP itself needs, so that each worker is \
             replaced after a few requests; set it above memory_limit, or remove it"
        ));
    }
    if input.config.site.index.is_empty() {
        found.push(
            "site.index is empty, so URLs of directories show no index file; name some, such as \
             [\"index.php\", \"index.html\"]"
                .into(),
        );
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn found(config: &Config, ini: &[(&str, &str)]) -> String {
        let php = |name: &str| {
            let set = ini.iter().find(|(key, _)| *key == name);
            set.map_or_else(String::new, |(_, value)| (*value).to_owned())
        };
        let input = LintInput {
            config,
            php: &php,
            workers: 4,
            memory: 1 << 30,
            open_files: 1 << 14,
        };
        suspicious_values(&input).join("\n")
    }

    #[test]
    fn values_that_php_reads_otherwise_are_found() {
        for (name, value, expected) in [
            ("memory_limit", "256MB", "such as \"256M\""),
            ("memory_limit", "256 megs", "such as \"256M\""),
            ("post_max_size", "1.5G", "post_max_size is \"1.5G\""),
            ("upload_max_filesize", "many", "such as \"128M\""),
            ("error_reporting", "E_EVERYTHING", "has \"E_EVERYTHING\""),
            ("error_reporting", "E_ALL & ~E_NOTISE", "has \"E_NOTISE\""),
        ] {
            let found = found(&Config::default(), &[(name, value)]);
            assert!(found.contains(expected), "{name}={value}: {found}");
        }
        for (name, value) in [
            ("memory_limit", "-1"),
            ("memory_limit", "256M"),
            ("memory_limit", "268435456"),
            ("post_max_size", "0"),
            ("upload_max_filesize", "2 G"),
            ("error_reporting", "E_ALL & ~(E_NOTICE | E_WARNING)"),
            ("error_reporting", "-1"),
            ("error_reporting", "32767"),
        ] {
            assert_eq!(found(&Config::default(), &[(name, value)]), "", "{value}");
        }
    }

    #[test]
    fn unknown_time_zone_is_found() {
        let zones = tempfile::tempdir().unwrap();
        std::fs::create_dir(zones.path().join("Europe")).unwrap();
        std::fs::write(zones.path().join("Europe/Vienna"), "").unwrap();
        std::fs::write(zones.path().join("UTC"), "").unwrap();
        for name in [
            "Mars/Olympus",
            "Europe",
            "Vienna",
            "Europe/Vienna/x",
            "../UTC",
        ] {
            assert!(time_zone(name, zones.path()).is_some(), "{name}");
        }
        for name in ["", "UTC", "utc", "europe/vienna", "Europe/Vienna"] {
            assert_eq!(time_zone(name, zones.path()), None, "{name}");
        }
        assert_eq!(time_zone("Mars/Olympus", &zones.path().join("none")), None);
    }

    #[test]
    fn values_of_surus_that_make_no_sense_are_found() {
        let mut config = Config::default();
        config.http.trusted_proxies = vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
        config.engine.max_memory = Size(1 << 10);
        config.site.index.clear();
        let found = found(&config, &[]);
        for expected in [
            "http.trusted_proxies has 0.0.0.0/0",
            "http.trusted_proxies has ::/0",
            "engine.max_memory is 1K",
            "site.index is empty",
        ] {
            assert!(found.contains(expected), "{found}");
        }
    }
}
