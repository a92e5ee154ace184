//! Settings for Laravel applications in a function's package, where only `/tmp` is writable, and
//! the directories that they need in an executable.

use std::collections::BTreeMap;
use std::path::Path;

use super::PackageFiles;
use super::application::inside_of;
use super::kind::PackageKind;

/// Variables that get the same default, unless one of them is set.
struct VariableDefault {
    names: &'static [&'static str],
    value: &'static str,
    /// Values of `.env` that need a writable project; `database` does only with SQLite.
    replaces: &'static [&'static str],
}

static DEFAULTS: [VariableDefault; 4] = [
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
        replaces: &["file", "database"],
    },
    // Laravel 10 and older read the second name.
    VariableDefault {
        names: &["CACHE_STORE", "CACHE_DRIVER"],
        value: "array",
        replaces: &["file", "database"],
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

/// Directories to which Laravel writes and that it does not create itself.
const WRITTEN: [&str; 4] = [
    "bootstrap/cache",
    "storage/framework/cache",
    "storage/framework/sessions",
    "storage/framework/views",
];

/// The content of the `.gitignore` that Laravel's skeleton has in such a directory.
const GITIGNORE: &str = "*\n!.gitignore\n";

/// Laravel reads one of these files: the second one if it exists and `APP_ENV` is `production`.
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

    /// The variables that neither `[env]` of the project's surus.toml nor `.env` sets, and their
    /// values. In `.env`, values that need a writable project do not count.
    pub fn defaults(&self, env: &toml::Table) -> Vec<(&'static str, &'static str)> {
        let configured = |name: &str| env.get(name).and_then(toml::Value::as_str);
        let connection = configured("DB_CONNECTION");
        // The function may set `APP_ENV`, so each of the files must set a variable.
        let loaded = match configured("APP_ENV") {
            Some("production") => &self.dotenv[self.dotenv.len().saturating_sub(1)..],
            _ => &self.dotenv[..],
        };
        let is_set = |names: &[&str], replaces: &[&str]| {
            let sets = |file: &_| sets_any(file, names, replaces, connection);
            names.iter().any(|name| env.contains_key(*name))
                || !loaded.is_empty() && loaded.iter().all(sets)
        };
        let mut defaults: Vec<(&'static str, &'static str)> = Vec::new();
        for default in &DEFAULTS {
            if !is_set(default.names, default.replaces) {
                let names = default.names.iter();
                defaults.extend(names.map(|name| (*name, default.value)));
            }
        }
        let caches = self.caches.iter();
        defaults.extend(caches.filter(|(name, _)| !is_set(&[*name], &[])));
        defaults
    }

    /// Adds the defaults to the package's `[env]` and returns their names.
    pub fn set_environment(&self, env: &mut toml::Table) -> Vec<&'static str> {
        let defaults = self.defaults(env);
        for (name, value) in &defaults {
            env.insert((*name).into(), (*value).into());
        }
        defaults.into_iter().map(|(name, _)| name).collect()
    }
}

/// Adds the directories that the project's Laravel application writes to and whose content is not
/// packaged. A package has no empty directories, so each gets a file. A function needs none: its
/// application writes to `/tmp`.
pub fn add_directories(
    kind: PackageKind,
    project: &Path,
    files: &mut PackageFiles,
) -> anyhow::Result<()> {
    if kind != PackageKind::Executable || !super::requires(project, "laravel/framework")? {
        return Ok(());
    }
    for name in WRITTEN {
        let directory = format!("{}/", inside_of(kind.place(project), name));
        if !files.iter().any(|(file, _)| file.starts_with(&directory)) {
            files.text(format!("{directory}.gitignore"), GITIGNORE)?;
        }
    }
    Ok(())
}

/// Removes the package's defaults from a function's `env` that the loaded `.env` file does not
/// need. Only the function knows `APP_ENV` and `DB_CONNECTION`. `overridable` are the variables in
/// `lambda.env_defaults`; `of_function` reads the function's own variables.
pub fn remove_unneeded_defaults(
    directory: &Path,
    overridable: &[String],
    env: &mut BTreeMap<String, String>,
    of_function: impl Fn(&str) -> Option<String>,
) {
    let is_default = |env: &BTreeMap<String, String>, name: &str, value: &str| {
        overridable.iter().any(|listed| listed == name)
            && env.get(name).is_some_and(|set| set == value)
    };
    let packaged = |default: &&VariableDefault| {
        let mut names = default.names.iter();
        names.any(|name| is_default(env, name, default.value))
    };
    let defaults: Vec<&VariableDefault> = DEFAULTS.iter().filter(packaged).collect();
    if defaults.is_empty() {
        return;
    }
    let value = |name: &str| env.get(name).cloned().or_else(|| of_function(name));
    let of_environment = value("APP_ENV").map(|name| directory.join(format!(".env.{name}")));
    let file = of_environment
        .filter(|file| file.is_file())
        .unwrap_or_else(|| directory.join(".env"));
    let Ok(text) = std::fs::read(file) else {
        return;
    };
    let file = variables(&String::from_utf8_lossy(&text));
    let connection = value("DB_CONNECTION");
    for default in defaults {
        let (names, replaces) = (default.names, default.replaces);
        if !sets_any(&file, names, replaces, connection.as_deref()) {
            continue;
        }
        for name in names {
            if is_default(env, name, default.value) {
                env.remove(*name);
            }
        }
    }
}

/// Whether a `.env` file sets one of these variables to a value that needs no writable project.
/// `connection` overrides its `DB_CONNECTION`; if both are missing, Laravel uses SQLite.
fn sets_any(
    file: &BTreeMap<String, String>,
    names: &[&str],
    replaces: &[&str],
    connection: Option<&str>,
) -> bool {
    let connection = connection.or(file.get("DB_CONNECTION").map(String::as_str));
    let is_sqlite = connection.unwrap_or("sqlite") == "sqlite";
    let is_replaced = |value: &str| replaces.contains(&value) && (value != "database" || is_sqlite);
    let mut values = names.iter().filter_map(|name| file.get(*name));
    values.any(|value| !is_replaced(value))
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
        assert_eq!(names(&files, "APP_ENV = 'production'"), left);
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
    fn variable_missing_in_one_of_two_files_gets_its_default() {
        let local = "SESSION_DRIVER=file\nCACHE_STORE=redis\nLOG_CHANNEL=stack\n";
        let production = "SESSION_DRIVER=redis\nCACHE_DRIVER=redis\nLOG_CHANNEL=papertrail\n";
        for files in [
            [(".env", local), (".env.production", production)],
            [(".env", production), (".env.production", local)],
        ] {
            let all = defaults(&files, "");
            assert_eq!(all["SESSION_DRIVER"], "cookie");
            assert_eq!(all["LOG_CHANNEL"], "stderr");
            assert!(!all.contains_key("CACHE_STORE") && !all.contains_key("CACHE_DRIVER"));
        }
    }

    #[test]
    fn database_without_connection_counts_as_sqlite() {
        let dotenv = "SESSION_DRIVER=database\nCACHE_STORE=database\nLOG_CHANNEL=database\n";
        let all = defaults(&[(".env", dotenv)], "");
        assert_eq!(all["SESSION_DRIVER"], "cookie");
        assert_eq!(all["CACHE_STORE"], "array");
        // A channel of this name is the application's own.
        assert!(!all.contains_key("LOG_CHANNEL"));
        let all = defaults(&[(".env", dotenv)], "DB_CONNECTION = 'mysql'");
        assert!(!all.contains_key("SESSION_DRIVER") && !all.contains_key("CACHE_STORE"));
    }

    /// The defaults that a started function has, of those for a package without `.env`.
    fn kept(files: &[(&str, &str)], of_function: &[(&str, &str)]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let mut env = defaults(&[], "");
        let names: Vec<String> = env.keys().cloned().collect();
        let of_function = |name: &str| {
            let mut variables = of_function.iter();
            let (_, value) = variables.find(|(variable, _)| *variable == name)?;
            Some((*value).to_owned())
        };
        for (name, value) in &mut env {
            if let Some(own) = of_function(name) {
                *value = own;
            }
        }
        remove_unneeded_defaults(directory.path(), &names, &mut env, of_function);
        env.into_keys()
            .filter(|name| name.starts_with("CACHE_") || name == "SESSION_DRIVER")
            .collect()
    }

    #[test]
    fn database_connection_of_the_function_removes_defaults() {
        let all = ["CACHE_DRIVER", "CACHE_STORE", "SESSION_DRIVER"];
        let database = "DB_CONNECTION=sqlite\nSESSION_DRIVER=database\nCACHE_STORE=database\n";
        let files = [(".env", database)];
        let mysql = ("DB_CONNECTION", "mysql");
        assert_eq!(kept(&files, &[]), all);
        assert_eq!(kept(&files, &[("DB_CONNECTION", "sqlite")]), all);
        assert_eq!(kept(&[], &[mysql]), all);
        assert!(kept(&files, &[mysql]).is_empty());
        // A variable of the function stays, and the default for Laravel 10 goes.
        let own = [mysql, ("CACHE_STORE", "redis")];
        assert_eq!(kept(&files, &own), ["CACHE_STORE"]);
        let in_files = "SESSION_DRIVER=file\nCACHE_STORE=database\n";
        assert_eq!(kept(&[(".env", in_files)], &[mysql]), ["SESSION_DRIVER"]);
        // The project's own variables are no defaults.
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(".env"), database).unwrap();
        let mut env = BTreeMap::from([("SESSION_DRIVER".to_owned(), "cookie".to_owned())]);
        let of_function = |_: &str| Some("mysql".to_owned());
        remove_unneeded_defaults(directory.path(), &[], &mut env, of_function);
        assert_eq!(env["SESSION_DRIVER"], "cookie");
    }

    #[test]
    fn app_env_of_the_function_chooses_the_file_that_removes_defaults() {
        let production = "SESSION_DRIVER=redis\nCACHE_DRIVER=redis\n";
        let files = [
            (".env", "SESSION_DRIVER=file\n"),
            (".env.production", production),
        ];
        let all = ["CACHE_DRIVER", "CACHE_STORE", "SESSION_DRIVER"];
        assert_eq!(kept(&files, &[]), all);
        assert_eq!(kept(&files, &[("APP_ENV", "staging")]), all);
        assert!(kept(&files, &[("APP_ENV", "production")]).is_empty());
    }

    #[test]
    fn executable_has_the_directories_that_laravel_writes_to() {
        let project = tempfile::tempdir().unwrap();
        let composer = project.path().join("composer.json");
        let add = |kind, require: &str| {
            std::fs::write(&composer, format!("{{\"require\": {{{require}}}}}")).unwrap();
            let mut files = PackageFiles::default();
            let cached = "app/bootstrap/cache/packages.php";
            files.text(cached, "<?php return [];").unwrap();
            add_directories(kind, project.path(), &mut files).unwrap();
            let names = files.iter().map(|(name, _)| name.to_owned());
            names.filter(|name| name != cached).collect::<Vec<_>>()
        };
        let laravel = r#""laravel/framework": "^12.0""#;
        let expected = [
            "app/storage/framework/cache/.gitignore",
            "app/storage/framework/sessions/.gitignore",
            "app/storage/framework/views/.gitignore",
        ];
        assert_eq!(add(PackageKind::Executable, laravel), expected);
        assert!(add(PackageKind::Function, laravel).is_empty());
        assert!(add(PackageKind::Executable, r#""slim/slim": "^4""#).is_empty());
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
