//! `SURUS_SECTION_KEY=value`: every key of `surus.toml` as an environment variable.

use anyhow::bail;
use serde::Deserialize;

use super::Config;
use super::type_error::explain;

/// Variables with the prefix `SURUS_` that are not settings.
const OTHERS: [&str; 3] = ["SURUS_BUILD_DIR", "SURUS_PHP_BINARY", "SURUS_SANITIZE"];

/// Variables that Kubernetes and Docker links set in every container for a service called `surus`.
const OF_A_SERVICE: [&str; 2] = ["SURUS_PORT", "SURUS_SERVICE_"];

/// The `SURUS_` variables of this process. One that is not UTF-8 is an error; other variables are
/// ignored.
pub fn read() -> anyhow::Result<Vec<(String, String)>> {
    let mut ours = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with("SURUS_")) else {
            continue;
        };
        match value.into_string() {
            Ok(value) => ours.push((name.to_owned(), value)),
            Err(_) if is_other(name) => {}
            Err(_) => bail!("environment variable {name} is not UTF-8"),
        }
    }
    Ok(ours)
}

fn is_other(variable: &str) -> bool {
    OTHERS.contains(&variable) || OF_A_SERVICE.iter().any(|start| variable.starts_with(start))
}

/// Puts the environment's settings into `table`. In a key of `SURUS_PHP_`, `__` stands for the dot
/// of php.ini names. Lists are written as TOML or with commas.
pub fn apply(
    table: &mut toml::Table,
    environment: impl Iterator<Item = (String, String)>,
) -> anyhow::Result<()> {
    for (variable, text) in environment {
        let Some(name) = variable
            .strip_prefix("SURUS_")
            .filter(|_| !is_other(&variable))
        else {
            continue;
        };
        let (section, mut key) = split(name);
        if section == "engine" && !text.trim_start().starts_with('{') {
            // The variable that tells an application which engine serves it.
            key = key.or_else(|| Some("name".into()));
        }
        let mut errors = Vec::new();
        let mut value = None;
        for candidate in candidates(&section, key.as_deref(), &text) {
            match check(&section, key.as_deref(), &candidate) {
                Ok(()) => {
                    value = Some(candidate);
                    break;
                }
                Err(error) => errors.push((candidate, error)),
            }
        }
        let Some(value) = value else {
            // Text with commas may or may not be a list.
            let is_guess = |value: &toml::Value| value.is_array() && !text.starts_with('[');
            let error = errors
                .iter()
                .min_by_key(|(candidate, _)| is_guess(candidate))
                .map_or_else(
                    || "name one setting of the section, or write it as a TOML table".into(),
                    |(_, error)| explain(error.message(), None),
                );
            if variable == "SURUS_HANDLER" {
                bail!(
                    "environment variable {variable}=`{text}`: Surus itself sets it for PHP; \
                     name the handler in lambda.handler (SURUS_LAMBDA_HANDLER), \
                     or as the function's handler"
                );
            }
            if section == "pool" {
                bail!(
                    "environment variable {variable}=`{text}`: write all pools as one TOML value: \
                     SURUS_POOL='{{ NAME = {{ workers = 2 }} }}'"
                );
            }
            bail!("environment variable {variable}=`{text}`: {error}");
        };
        match key {
            None => drop(table.insert(section, value)),
            Some(key) => {
                let inner = table
                    .entry(section)
                    .or_insert_with(|| toml::Table::new().into());
                match inner.as_table_mut() {
                    Some(inner) => drop(inner.insert(key, value)),
                    None => bail!(
                        "environment variable {variable}: the configuration has [[site]] tables; \
                         set `{key}` in one of them"
                    ),
                }
            }
        }
    }
    Ok(())
}

/// `HTTP_MAX_BODY_SIZE` → http, max_body_size. Some sections have an underscore in their names.
fn split(written: &str) -> (String, Option<String>) {
    let name = written.to_ascii_lowercase();
    let sections = ["access_log", "error_pages", "x_sendfile"];
    if sections.contains(&&*name) {
        return (name, None);
    }
    let long = sections
        .into_iter()
        .find_map(|section| Some((section, name.strip_prefix(section)?.strip_prefix('_')?)));
    let (section, key) = match (long, name.split_once('_')) {
        (Some((section, key)), _) | (None, Some((section, key))) => (section, Some(key)),
        (None, None) => (name.as_str(), None),
    };
    let key = key.map(|key| match section {
        "php" => key.replace("__", "."),
        // The names of environment variables are case-sensitive.
        "env" => written[written.len() - key.len()..].to_string(),
        _ => key.to_string(),
    });
    (section.to_string(), key)
}

/// The possible meanings of a text: a TOML value, a string, a list of strings.
fn candidates(section: &str, key: Option<&str>, text: &str) -> Vec<toml::Value> {
    let mut values = Vec::new();
    if section == "env" && key.is_some() {
        // Environment variables of PHP are taken literally.
        return vec![text.into()];
    }
    if let Ok(mut table) = toml::from_str::<toml::Table>(&format!("v = {text}"))
        && let Some(value) = table.remove("v")
        && !value.is_datetime()
    {
        values.push(value);
    }
    let list = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let list: Vec<_> = list.map(toml::Value::from).collect();
    // No file name of an extension contains a comma.
    match section == "php" && matches!(key, Some("extension" | "zend_extension")) {
        true => values.push(list.into()),
        // Of a setting that also accepts a single string, commas make a list, and an empty text is
        // an empty list; in php.ini they are the value.
        false if section != "php" && list.len() != 1 => values.extend([list.into(), text.into()]),
        false => values.extend([text.into(), list.into()]),
    }
    if key.is_none() {
        // serde would take a list for the values of a section, in the order of its fields.
        let is_section = |value: &toml::Value| match value {
            toml::Value::Array(tables) => tables.iter().all(toml::Value::is_table),
            value => value.is_table(),
        };
        values.retain(is_section);
    }
    values
}

/// Checks this value on its own.
fn check(section: &str, key: Option<&str>, value: &toml::Value) -> Result<(), toml::de::Error> {
    let mut table = toml::Table::new();
    match key {
        None => table.insert(section.into(), value.clone()),
        Some(key) => {
            let mut inner = toml::Table::new();
            inner.insert(key.into(), value.clone());
            table.insert(section.into(), inner.into())
        }
    };
    Config::deserialize(table).map(drop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn config(variables: &[(&str, &str)]) -> anyhow::Result<Config> {
        let mut table = toml::Table::new();
        apply(
            &mut table,
            variables
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string())),
        )?;
        Ok(Config::deserialize(table)?)
    }

    #[test]
    fn every_kind_of_value_is_accepted() {
        let config = config(&[
            ("SURUS_HTTP_LISTEN", "127.0.0.1:81,unix:/run/x"),
            ("SURUS_HTTP_TRUSTED_PROXIES", "unix"),
            ("SURUS_HTTP_MAX_BODY_SIZE", "1M"),
            ("SURUS_HTTP_MAX_HEADERS", "7"),
            ("SURUS_ENGINE_WORKERS", "3"),
            ("SURUS_ENGINE_USER", "1000"),
            ("SURUS_PHP_OPCACHE__ENABLE", "0"),
            ("SURUS_PHP_MEMORY_LIMIT", "64M"),
            ("SURUS_ENV_APP_ENV", "prod"),
            ("SURUS_ENV_no_proxy", "\"quoted\""),
            ("SURUS_PHP_EXTENSION", "gmp, redis"),
            ("SURUS_PHP_ZEND_EXTENSION", "['xdebug']"),
            ("SURUS_ACCESS_LOG_FORMAT", "json"),
            (
                "SURUS_POOL",
                "{ debug = { workers = 2, env = { A = 'b' } } }",
            ),
            ("SURUS_ROUTE", "[{ prefix = '/x', deny = true }]"),
            ("OTHER", "x"),
            // The variable that Kubernetes sets for a service called surus.
            ("SURUS_PORT", "tcp://10.0.0.1:80"),
            ("SURUS_PORT_80_TCP", "tcp://10.0.0.1:80"),
            ("SURUS_SERVICE_HOST", "10.0.0.1"),
        ])
        .unwrap();
        assert_eq!(config.http.listen.len(), 2);
        assert_eq!(config.http.max_body_size.0, 1 << 20);
        assert_eq!(config.http.max_headers, 7);
        assert_eq!(config.engine.workers, Some(3));
        assert_eq!(config.engine.user.as_deref(), Some("1000"));
        assert_eq!(config.php["opcache.enable"].entries(), ["0"]);
        assert_eq!(config.php["memory_limit"].entries(), ["64M"]);
        assert_eq!(config.env["APP_ENV"], "prod");
        assert_eq!(config.env["no_proxy"], "\"quoted\"");
        assert_eq!(config.php["extension"].entries(), ["gmp", "redis"]);
        assert_eq!(config.php["zend_extension"].entries(), ["xdebug"]);
        assert_eq!(config.pool["debug"].workers, Some(2));
        assert_eq!(config.pool["debug"].env["A"], "b");
        assert_eq!(config.route.len(), 1);
    }

    #[test]
    fn list_is_empty_without_text_and_has_several_values_with_commas() {
        let config = config(&[
            ("SURUS_SITE_INDEX", "index.php, index.html"),
            ("SURUS_SITE_HIDDEN", "*.bak"),
            ("SURUS_TLS_CERTIFICATE", ""),
            ("SURUS_WATCH_IGNORE", ""),
            ("SURUS_LAMBDA_AFTER_RESTORE", "['/a', '/b']"),
            ("SURUS_LAMBDA_ERROR_STATUSES", "503"),
        ])
        .unwrap();
        assert_eq!(config.site.index, ["index.php", "index.html"]);
        assert_eq!(config.site.hidden, ["*.bak"]);
        assert!(config.tls.certificate.is_empty());
        assert!(config.watch.ignore.is_empty());
        assert_eq!(config.lambda.after_restore, ["/a", "/b"]);
        assert_eq!(config.lambda.error_statuses.len(), 1);
    }

    #[test]
    fn section_with_an_underscore_can_be_a_table() {
        let config = config(&[
            ("SURUS_ACCESS_LOG", "{ format = 'off' }"),
            ("SURUS_ERROR_PAGES", "{ directory = 'errors' }"),
            ("SURUS_X_SENDFILE", "{ directories = ['files'] }"),
        ])
        .unwrap();
        assert_eq!(config.access_log.format.to_string(), "off");
        assert!(config.error_pages.directory.is_some());
        assert_eq!(config.x_sendfile.directories.len(), 1);
    }

    #[test]
    fn name_of_the_engine_replaces_no_other_setting() {
        let name = ("SURUS_ENGINE", "cli");
        let user = ("SURUS_ENGINE_USER", "nobody");
        for variables in [[name, user], [user, name]] {
            let engine = config(&variables).unwrap().engine;
            assert_eq!(engine.name.as_deref(), Some("cli"));
            assert_eq!(engine.user.as_deref(), Some("nobody"));
        }
        assert!(config(&[("SURUS_HTTP", "127.0.0.1:81")]).is_err());
    }

    #[test]
    fn wrong_value_is_named_in_the_error() {
        let error = |name, value| config(&[(name, value)]).unwrap_err().to_string();
        assert!(
            error("SURUS_HTTP_MAX_BODY_SIZE", "lots").contains("SURUS_HTTP_MAX_BODY_SIZE=`lots`")
        );
        assert!(error("SURUS_HTTP_MAX_BODI", "1").contains("max_body"));
        assert!(error("SURUS_LOG_FORMAT", "xml").contains("json"));
        let mode = error("SURUS_ENGINE_WARMUP", "lern");
        assert!(
            mode.contains("`lern`") && mode.contains("\"learn\""),
            "{mode}"
        );
        assert!(error("SURUS_POOL_DEBUG_WORKERS", "2").contains("SURUS_POOL='{ NAME"));
        assert!(error("SURUS_HANDLER", "handler.php").contains("SURUS_LAMBDA_HANDLER"));
    }
}
