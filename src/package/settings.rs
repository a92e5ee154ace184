//! Writes the package's surus.toml from the application's, with the package's paths.

use std::path::Path;

use anyhow::Context;

use super::kind::PackageKind;
use super::laravel::LaravelApplication;
use super::php::Placed;
use super::{OURS, ROOT, compiled, symfony};

/// `project` is the application's configuration, possibly empty. `script` is set if the package
/// contains Surus's PHP library.
pub fn compose(
    kind: PackageKind,
    mut project: toml::Table,
    php: &Placed,
    script: Option<&str>,
    is_symfony: bool,
    laravel: Option<&LaravelApplication>,
) -> anyhow::Result<String> {
    let absolute = |name: &str| {
        let path = kind.root().join(name);
        toml::Value::from(path.display().to_string())
    };
    // A package does not need it, and its variables may be secrets.
    project.remove("deploy");
    let engine = section(&mut project, "engine")?;
    // The user is Lambda's, or that of the process that starts an executable.
    engine.remove("user");
    engine.remove("group");
    engine.insert("surus_php".into(), absolute(&php.program));
    engine.insert("dynamic_loader".into(), absolute(&php.loader));
    engine.insert("ini_file".into(), absolute(&php.ini_file));
    if let Some(script) = script {
        section(&mut project, "lambda")?.insert("script".into(), absolute(script));
    }
    let env = section(&mut project, "env")?;
    for (name, path) in [
        ("GCONV_PATH", "gconv"),
        ("OPENSSL_CONF", "openssl.cnf"),
        ("OPENSSL_MODULES", "ossl-modules"),
        ("SSL_CERT_FILE", "ca.pem"),
    ] {
        let value = absolute(&format!("{OURS}/{path}"));
        env.entry(name).or_insert(value);
    }
    if kind == PackageKind::Executable {
        // Where it runs, another PHP may have ini files and extensions of its own.
        env.entry("PHP_INI_SCAN_DIR").or_insert("".into());
    }
    let mut defaults = Vec::new();
    if is_symfony {
        defaults.extend(symfony::set_environment(kind, env));
    }
    if let Some(laravel) = laravel {
        defaults.extend(laravel.set_environment(env));
    }
    if kind == PackageKind::Function && !defaults.is_empty() {
        let lambda = section(&mut project, "lambda")?;
        let mut names = match lambda.remove("env_defaults") {
            Some(toml::Value::Array(names)) => names,
            // A single name, or none.
            own => own.into_iter().collect(),
        };
        names.extend(defaults.into_iter().map(toml::Value::from));
        lambda.insert("env_defaults".into(), names.into());
    }
    written(kind, &project)
}

/// Adds the directory of the precompiled files.
pub fn with_compiled(composed: &[u8]) -> anyhow::Result<String> {
    let mut table = read(composed)?;
    let place = Path::new(ROOT).join(compiled::DIRECTORY);
    let lambda = section(&mut table, "lambda")?;
    lambda.insert("opcache_dir".into(), place.display().to_string().into());
    written(PackageKind::Function, &table)
}

/// Adds the directory of the warmed-up cache.
pub fn with_cache(composed: &[u8]) -> anyhow::Result<String> {
    let mut table = read(composed)?;
    let place = Path::new(ROOT).join(symfony::WARMED);
    let lambda = section(&mut table, "lambda")?;
    lambda.insert("cache".into(), place.display().to_string().into());
    written(PackageKind::Function, &table)
}

/// The configuration that compiles a package's files: the package's PHP and its settings, nothing
/// else of the application. `script` handles the events; OPcache writes into `to`.
pub fn to_compile(composed: &[u8], script: &str, to: &str) -> anyhow::Result<String> {
    let mut table = read(composed)?;
    let mut own = toml::Table::new();
    let of_package = section(&mut table, "engine")?;
    let engine = section(&mut own, "engine")?;
    engine.insert("name".into(), "classic".into());
    engine.insert("workers".into(), 1.into());
    for key in ["surus_php", "dynamic_loader", "ini_file"] {
        if let Some(value) = of_package.get(key) {
            engine.insert(key.into(), value.clone());
        }
    }
    own.insert("env".into(), section(&mut table, "env")?.clone().into());
    let mut php = section(&mut table, "php")?.clone();
    for (name, value) in [
        ("opcache.enable", "1"),
        ("opcache.file_cache", to),
        // OPcache must hold all files, and write even recently modified ones.
        ("opcache.memory_consumption", "1024"),
        ("opcache.max_accelerated_files", "1000000"),
        ("opcache.file_update_protection", "0"),
        ("opcache.blacklist_filename", ""),
        ("opcache.preload", ""),
        ("memory_limit", "-1"),
        ("max_execution_time", "0"),
    ] {
        php.insert(name.into(), value.into());
    }
    own.insert("php".into(), php.into());
    let lambda = section(&mut own, "lambda")?;
    lambda.insert("handler".into(), script.into());
    lambda.insert("script".into(), script.into());
    written(PackageKind::Function, &own)
}

fn read(composed: &[u8]) -> anyhow::Result<toml::Table> {
    Ok(toml::from_str(std::str::from_utf8(composed)?)?)
}

fn written(kind: PackageKind, table: &toml::Table) -> anyhow::Result<String> {
    let text = toml::to_string(table)?;
    Ok(format!(
        "# Made by `{}` from the application's surus.toml.\n\n{text}",
        kind.command()
    ))
}

fn section<'a>(table: &'a mut toml::Table, name: &str) -> anyhow::Result<&'a mut toml::Table> {
    let value = table
        .entry(name)
        .or_insert_with(|| toml::Table::new().into());
    value
        .as_table_mut()
        .with_context(|| format!("[{name}] of surus.toml is not a section"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::package::elf::ElfMachine;

    #[test]
    fn application_settings_are_kept_except_for_php_paths() {
        let project: toml::Table = toml::from_str(
            "[engine]\nname = 'rewind'\nuser = 'app'\n\
             surus_php = '/opt/surus-php8.4'\n[env]\nSSL_CERT_FILE = '/mine'\n\
             [deploy.env]\nDSN = 'secret'\n[lambda]\nenv_defaults = 'A'\n",
        )
        .unwrap();
        let php = Placed {
            machine: ElfMachine::X86_64,
            program: ".surus/surus-php8.2".into(),
            loader: ".surus/lib/ld-linux-x86-64.so.2".into(),
            ini_file: ".surus/php.ini".into(),
        };
        let script = Some(".surus/php/lambda/events.php");
        let of =
            |kind, project: &toml::Table| compose(kind, project.clone(), &php, script, true, None);
        let text = of(PackageKind::Function, &project).unwrap();
        let table: toml::Table = toml::from_str(&text).unwrap();
        let engine = &table["engine"];
        assert_eq!(engine["name"].as_str(), Some("rewind"));
        assert_eq!(
            engine["surus_php"].as_str(),
            Some("/var/task/.surus/surus-php8.2")
        );
        assert_eq!(
            engine["dynamic_loader"].as_str(),
            Some("/var/task/.surus/lib/ld-linux-x86-64.so.2")
        );
        assert!(engine.get("user").is_none());
        assert!(table.get("deploy").is_none());
        assert_eq!(
            table["lambda"]["script"].as_str(),
            Some("/var/task/.surus/php/lambda/events.php")
        );
        assert_eq!(table["env"]["SSL_CERT_FILE"].as_str(), Some("/mine"));
        assert_eq!(
            table["env"]["GCONV_PATH"].as_str(),
            Some("/var/task/.surus/gconv")
        );
        let overridable = [
            "A",
            "APP_ENV",
            "APP_DEBUG",
            "APP_CACHE_DIR",
            "APP_LOG_DIR",
            "APP_SHARE_DIR",
        ];
        let overridable = overridable.map(toml::Value::from);
        assert_eq!(
            table["lambda"]["env_defaults"].as_array().unwrap(),
            &overridable
        );
        let compiled: toml::Table =
            toml::from_str(&with_compiled(text.as_bytes()).unwrap()).unwrap();
        let place = compiled["lambda"]["opcache_dir"].as_str();
        assert_eq!(place, Some("/var/task/.surus/opcache"));
        assert_eq!(compiled["engine"], table["engine"]);
        assert_eq!(table["env"]["APP_CACHE_DIR"].as_str(), Some(symfony::CACHE));
        let share = table["env"]["APP_SHARE_DIR"].as_str().unwrap();
        assert!(share.starts_with("/tmp/"), "{share}");

        let text = of(PackageKind::Executable, &project).unwrap();
        let table: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(
            table["engine"]["ini_file"].as_str(),
            Some("/@surus-build@/.surus/php.ini")
        );
        let env = table["env"].as_table().unwrap();
        assert_eq!(env["PHP_INI_SCAN_DIR"].as_str(), Some(""));
        assert_eq!(env["APP_ENV"].as_str(), Some("prod"));
        // Other users could create that directory first.
        assert!(!env.contains_key("APP_CACHE_DIR") && !env.contains_key("APP_SHARE_DIR"));
        assert_eq!(table["lambda"]["env_defaults"].as_str(), Some("A"));
    }

    #[test]
    fn compile_settings_keep_php_and_drop_the_application() {
        let composed = "[engine]\nname = 'rewind'\nscript = 'worker.php'\n\
                        surus_php = '/p'\n[php]\n'zend.assertions' = -1\n\
                        'opcache.preload' = '/x.php'\n[env]\nA = 'b'\n\
                        [pool.events]\nengine = 'worker'\n";
        let text = to_compile(composed.as_bytes(), "/c.php", "/out").unwrap();
        let table: toml::Table = toml::from_str(&text).unwrap();
        let engine = table["engine"].as_table().unwrap();
        assert_eq!(engine["name"].as_str(), Some("classic"));
        assert_eq!(engine["surus_php"].as_str(), Some("/p"));
        assert!(!engine.contains_key("script") && !table.contains_key("pool"));
        assert_eq!(table["php"]["zend.assertions"].as_integer(), Some(-1));
        assert_eq!(table["php"]["opcache.preload"].as_str(), Some(""));
        assert_eq!(table["php"]["opcache.file_cache"].as_str(), Some("/out"));
        assert_eq!(table["env"]["A"].as_str(), Some("b"));
    }
}
