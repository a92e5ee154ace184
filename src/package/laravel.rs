//! Settings for Laravel applications in a function's package; on Lambda only `/tmp` is writable.

use std::collections::BTreeMap;
use std::path::Path;

use super::PackageFiles;
use super::application::inside_of;
use super::kind::PackageKind;

/// Variables that get the same default, unless one of them is set.
struct VariableDefault {
    names: &'static [&'static str],
    value: &'static str,
    /// Values of `.env` that need a writable project.
    replaces: &'static [&'static str],
}

const DEFAULTS: [VariableDefault; 4] = [
    // Laravel creates the directory.
    VariableDefault {
        names: &["VIEW_COMPILED_PATH"],
        value: "/tmp/surus-laravel-views",
        replaces: &[],
    },
    VariableDefault {
        names: &["LOG_CHANNEL"],
        value: "stderr",
        replaces: &["stack", "single", "daily", "monthly"],
    },
    VariableDefault {
        names: &["SESSION_DRIVER"],
        value: "cookie",
        replaces: &["file"],
    },
    // Laravel 10 and older read the second name.
    VariableDefault {
        names: &["CACHE_STORE", "CACHE_DRIVER"],
        value: "array",
        replaces: &["file"],
    },
];

/// The caches that Laravel writes while it boots if they are missing: the variable of its path, the
/// usual path, and one outside the project. Laravel reads its other caches, but only commands of
/// `artisan` write them.
const CACHES: [(&str, &str, &str); 2] = [
    (
        "APP_SERVICES_CACHE",
        "bootstrap/cache/services.php",
        "/tmp/surus-laravel-services.php",
    ),
    (
        "APP_PACKAGES_CACHE",
        "bootstrap/cache/packages.php",
        "/tmp/surus-laravel-packages.php",
    ),
];

/// The files with variables that Laravel reads: the second one if `APP_ENV` is `production`.
const DOTENV: [&str; 2] = [".env", ".env.production"];

/// A Laravel application in a function's package.
pub struct LaravelApplication {
    /// The variables of each packaged `.env` file.
    dotenv: Vec<BTreeMap<String, String>>,
    /// The variable and the path of each cache that the package lacks.
    caches: Vec<(&'static str, &'static str)>,
}

impl LaravelApplication {
    /// The project's Laravel application in a package of these files. None for an executable, whose
    /// directory is writable.
    pub fn find(
        kind: PackageKind,
        project: &Path,
        files: &PackageFiles,
    ) -> anyhow::Result<Option<LaravelApplication>> {
        if kind != PackageKind::Function || !super::requires(project, "laravel/framework")? {
            return Ok(None);
        }
        let place = kind.place(project);
        let mut dotenv = Vec::new();
        for name in DOTENV {
            if let Some(text) = files.read(&inside_of(place, name))? {
                dotenv.push(variables(&String::from_utf8_lossy(&text)));
            }
        }
        let is_missing = |path: &str| !files.contains(&inside_of(place, path));
        let caches = CACHES
            .into_iter()
            .filter(|(_, path, _)| is_missing(path))
            .map(|(name, _, path)| (name, path))
            .collect();
        Ok(Some(LaravelApplication { dotenv, caches }))
    }

    /// Adds the variables that neither `[env]` of the project's surus.toml nor `.env` sets, and
    /// returns their names. In `.env`, values that need a writable project do not count.
    pub fn set_environment(&self, env: &mut toml::Table) -> Vec<&'static str> {
        let configured = env.get("DB_CONNECTION").and_then(toml::Value::as_str);
        let is_set = |name: &str, replaces: &[&str]| {
            let sets = |file: &BTreeMap<String, String>| {
                let connection = configured.or(file.get("DB_CONNECTION").map(String::as_str));
                let is_replaced = |value: &str| {
                    replaces.contains(&value) || value == "database" && connection == Some("sqlite")
                };
                file.get(name).is_some_and(|value| !is_replaced(value))
            };
            env.contains_key(name) || self.dotenv.iter().any(sets)
        };
        let mut defaults: Vec<(&'static str, &'static str)> = Vec::new();
        for default in &DEFAULTS {
            let names = default.names.iter();
            if !names.clone().any(|name| is_set(name, default.replaces)) {
                defaults.extend(names.map(|name| (*name, default.value)));
            }
        }
        let caches = self.caches.iter().filter(|(name, _)| !is_set(name, &[]));
        defaults.extend(caches);
        for (name, value) in &defaults {
            env.insert((*name).into(), (*value).into());
        }
        defaults.into_iter().map(|(name, _)| name).collect()
    }
}

/// The variables of a `.env` file. A value that refers to another variable stays as it is written.
fn variables(text: &str) -> BTreeMap<String, String> {
    let variable = |line: &str| {
        let (name, value) = line.split_once('=')?;
        let name = name.trim();
        let name = name.strip_prefix("export ").unwrap_or(name).trim_start();
        let value = value.trim_start();
        let value = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split(quote).next(),
            _ => value.split(|c: char| c == '#' || c.is_whitespace()).next(),
        };
        Some((name.to_owned(), value.unwrap_or_default().to_owned()))
    };
    text.lines().filter_map(variable).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The variables that a function's package of these files gets.
    fn defaults(files: &[(&str, &str)], env: &str) -> BTreeMap<String, String> {
        let project = tempfile::tempdir().unwrap();
        let composer = r#"{"require": {"laravel/framework": "^12.0"}}"#;
        std::fs::write(project.path().join("composer.json"), composer).unwrap();
        std::fs::create_dir(project.path().join("bootstrap")).unwrap();
        let mut packaged = PackageFiles::default();
        for (name, text) in files {
            packaged.text(format!("app/{name}"), *text).unwrap();
        }
        let laravel = LaravelApplication::find(PackageKind::Function, project.path(), &packaged);
        let mut env: toml::Table = toml::from_str(env).unwrap();
        let names = laravel.unwrap().unwrap().set_environment(&mut env);
        let value = |name: &str| env[name].as_str().unwrap().to_owned();
        names
            .into_iter()
            .map(|name| (name.to_owned(), value(name)))
            .collect()
    }

    #[test]
    fn nothing_is_written_to_the_project() {
        let all = defaults(&[], "");
        for (name, value) in [
            ("APP_PACKAGES_CACHE", "/tmp/surus-laravel-packages.php"),
            ("APP_SERVICES_CACHE", "/tmp/surus-laravel-services.php"),
            ("CACHE_DRIVER", "array"),
            ("CACHE_STORE", "array"),
            ("LOG_CHANNEL", "stderr"),
            ("SESSION_DRIVER", "cookie"),
            ("VIEW_COMPILED_PATH", "/tmp/surus-laravel-views"),
        ] {
            assert_eq!(all[name], value);
        }
        assert_eq!(all.len(), 7);
        // As Laravel's installer leaves it.
        let dotenv = "APP_ENV=local\n\nLOG_CHANNEL=stack\nLOG_STACK=single\n\
                      DB_CONNECTION=sqlite\n# DB_HOST=127.0.0.1\nSESSION_DRIVER=database\n\
                      CACHE_STORE=database\n# CACHE_PREFIX=\n";
        assert_eq!(defaults(&[(".env", dotenv)], ""), all);
        let older = "LOG_CHANNEL=daily\nCACHE_DRIVER=file # locally\nSESSION_DRIVER='file'\n";
        assert_eq!(defaults(&[(".env", older)], ""), all);
    }

    #[test]
    fn variables_of_the_project_are_kept() {
        let own = "LOG_CHANNEL = 'stack'\nVIEW_COMPILED_PATH = '/tmp/views'\n\
                   CACHE_DRIVER = 'file'\nAPP_SERVICES_CACHE = '/tmp/s.php'\n";
        let names = |files: &[(&str, &str)], env| -> Vec<String> {
            defaults(files, env).into_keys().collect()
        };
        assert_eq!(names(&[], own), ["APP_PACKAGES_CACHE", "SESSION_DRIVER"]);
        let dotenv = "LOG_CHANNEL=papertrail\nSESSION_DRIVER=\"database\"\nDB_CONNECTION=mysql\n\
                      export CACHE_DRIVER=redis\nAPP_PACKAGES_CACHE=/tmp/p.php\n";
        let left = ["APP_SERVICES_CACHE", "VIEW_COMPILED_PATH"];
        assert_eq!(names(&[(".env", dotenv)], ""), left);
        let local = "LOG_CHANNEL=stack\nSESSION_DRIVER=file\nCACHE_STORE=file\n";
        let files = [(".env", local), (".env.production", dotenv)];
        assert_eq!(names(&files, ""), left);
        let database = "SESSION_DRIVER=database\nCACHE_STORE=database\nDB_CONNECTION=sqlite\n";
        let caches = [
            "bootstrap/cache/packages.php",
            "bootstrap/cache/services.php",
        ];
        let files = caches.map(|name| (name, "<?php return [];"));
        let files = [&files[..], &[(".env", database)]].concat();
        let left = ["LOG_CHANNEL", "VIEW_COMPILED_PATH"];
        assert_eq!(names(&files, "DB_CONNECTION = 'pgsql'"), left);
    }

    #[test]
    fn executable_and_other_frameworks_get_no_defaults() {
        let project = tempfile::tempdir().unwrap();
        let find = |kind| LaravelApplication::find(kind, project.path(), &PackageFiles::default());
        assert!(find(PackageKind::Function).unwrap().is_none());
        let composer = project.path().join("composer.json");
        std::fs::write(&composer, r#"{"require": {"slim/slim": "^4"}}"#).unwrap();
        assert!(find(PackageKind::Function).unwrap().is_none());
        std::fs::write(&composer, r#"{"require": {"laravel/framework": "^12"}}"#).unwrap();
        assert!(find(PackageKind::Function).unwrap().is_some());
        assert!(find(PackageKind::Executable).unwrap().is_none());
    }
}
