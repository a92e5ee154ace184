//! Tests that each setting that is a path is checked, or is known to need no check.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;

/// The settings that root runs or reads: their field's file, their name, and a value.
const CHECKED: [(&str, &str, &str); 10] = [
    ("src/engines/mod.rs", "engine.surus_php", "'/x'"),
    ("src/engines/mod.rs", "engine.php_cgi", "'/x'"),
    ("src/engines/mod.rs", "engine.php_fpm", "'/x'"),
    ("src/engines/mod.rs", "engine.php_cli", "'/x'"),
    ("src/engines/mod.rs", "engine.dynamic_loader", "'/x'"),
    ("src/engines/mod.rs", "engine.ini_file", "'/x'"),
    (
        "src/fronts/http/tls/settings.rs",
        "tls.certificate",
        "['/x']",
    ),
    ("src/fronts/http/tls/settings.rs", "tls.key", "['/x']"),
    ("src/fronts/http/tls/settings.rs", "tls.client_ca", "'/x'"),
    (
        "src/fronts/http/tls/acme/settings.rs",
        "acme.authority_ca",
        "'/x'",
    ),
];

/// The others, and why root does nothing that PHP's user could misuse.
const NOT_CHECKED: [(&str, &str, &str); 18] = [
    ("src/app/error_pages.rs", "directory", OPENED_AS_PHP),
    ("src/app/site/routes.rs", "root", OPENED_AS_PHP),
    ("src/app/site/settings.rs", "root", OPENED_AS_PHP),
    ("src/app/x_sendfile.rs", "directories", OPENED_AS_PHP),
    ("src/app/x_sendfile.rs", "internal", OPENED_AS_PHP),
    ("src/app/watch/mod.rs", "ignore", "only compared"),
    ("src/config/mod.rs", "script", RUN_AS_PHP),
    ("src/config/sites.rs", "project", OPENED_AS_PHP),
    ("src/engines/mod.rs", "script", RUN_AS_PHP),
    (
        "src/fronts/http/mod.rs",
        "temp_dir",
        "written as the front end's user",
    ),
    (
        "src/fronts/http/tls/acme/settings.rs",
        "directory",
        "`roots` has it",
    ),
    (
        "src/fronts/http/request/access_log.rs",
        "file",
        "`roots` has it",
    ),
    ("src/fronts/lambda/mod.rs", "cache", NO_OTHER_USER),
    ("src/fronts/lambda/mod.rs", "handler", NO_OTHER_USER),
    ("src/fronts/lambda/mod.rs", "opcache_dir", NO_OTHER_USER),
    ("src/fronts/lambda/mod.rs", "script", NO_OTHER_USER),
    ("src/fronts/queue/settings.rs", "handler", RUN_AS_PHP),
    ("src/observe/log.rs", "file", "`roots` has it"),
];

const OPENED_AS_PHP: &str = "files below it are opened with the rights of PHP's user";
const RUN_AS_PHP: &str = "PHP's user runs it";
const NO_OTHER_USER: &str = "on Lambda, all processes have one user";

#[test]
fn every_path_setting_is_checked_or_named_with_a_reason() {
    let of_checked = CHECKED.iter().map(|(file, setting, _)| {
        let (_, field) = setting.split_once('.').unwrap();
        (*file, field)
    });
    let of_others = NOT_CHECKED.iter().map(|(file, field, _)| (*file, *field));
    let named: BTreeSet<_> = of_checked
        .chain(of_others)
        .map(|(file, field)| (file.to_owned(), field.to_owned()))
        .collect();
    let found = path_settings();
    let missing: Vec<_> = found.difference(&named).collect();
    assert!(
        missing.is_empty(),
        "a new setting is a path: {missing:?}; put it into `programs` or `keys` of \
         src/cli/config_trust.rs and into CHECKED here if root runs or reads it, otherwise into \
         NOT_CHECKED"
    );
    let gone: Vec<_> = named.difference(&found).collect();
    assert!(gone.is_empty(), "no such settings: {gone:?}");
}

#[test]
fn checked_settings_are_among_programs_or_keys() {
    for (_, setting, value) in CHECKED {
        let config: Config = toml::from_str(&format!("{setting} = {value}")).unwrap();
        let programs = programs(&config).map(|(name, path)| (name, path.to_owned()));
        let keys = keys(&config).map(|(name, path)| (name, path.clone()));
        let all: Vec<_> = programs.chain(keys).collect();
        assert_eq!(all, [(setting, PathBuf::from("/x"))]);
    }
}

/// File and name of each field that is a path and is read from the configuration.
fn path_settings() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for (file, text) in setting_sources() {
        // Whether the current struct is read, and whether the next field is not.
        let (mut is_read, mut is_skipped) = (false, false);
        for line in text.lines() {
            if line.starts_with("#[serde(default") {
                // Messages between processes have no defaults.
                is_read = true;
            } else if line == "}" {
                is_read = false;
            } else if line.trim() == "#[serde(skip)]" {
                is_skipped = true;
            } else if let Some(field) = line.strip_prefix("    pub ") {
                if let Some((name, of_type)) = field.split_once(": ")
                    && is_read
                    && !is_skipped
                    && of_type.contains("PathBuf")
                {
                    found.insert((file.clone(), name.to_owned()));
                }
                is_skipped = false;
            }
        }
    }
    found
}

/// Path below the repository and text of each file that may define settings.
pub(in crate::cli) fn setting_sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let modules = [
        "app", "config", "deploy", "engines", "fronts", "observe", "package",
    ];
    let mut waiting = modules.map(|module| root.join("src").join(module)).to_vec();
    let mut sources = Vec::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            waiting.extend(entries.map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = path.strip_prefix(root).unwrap().display().to_string();
            sources.push((file, std::fs::read_to_string(&path).unwrap()));
        }
    }
    sources
}
