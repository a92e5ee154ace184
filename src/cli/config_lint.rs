//! Finds settings that contradict each other.

use std::path::Path;
use std::sync::Arc;

use surus_sys::regular_file;

use crate::config::Config;
use crate::engine::{Engine, Report};
use crate::engines;
use crate::fronts::http::Settings;
use crate::units::Size;

/// The configuration, and what is known once PHP has started.
pub(super) struct LintInput<'a> {
    pub config: &'a Config,
    /// A value of PHP's report.
    pub php: &'a dyn Fn(&str) -> String,
    pub workers: usize,
    /// Bytes that this process may use.
    pub memory: u64,
    /// The limit of open files.
    pub open_files: u64,
}

/// One sentence for each contradiction: the problem, and the fix.
pub(super) fn contradictions(input: &LintInput<'_>) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(sizes(input));
    found.extend(memory(input));
    found.extend(times(input));
    found.extend(connections(input));
    found.extend(streamed_bodies(input.config));
    found.extend(slow_requests(input.config));
    let php = |name: &str| (input.php)(name);
    if is_displayed(&php("display_errors")) {
        found.push(
            "display_errors is on, so clients see PHP's errors with paths and values; set [php] \
             display_errors = false in production"
                .into(),
        );
    }
    if php("opcache") == "on" && ["1", "on"].contains(&php("opcache.validate_timestamps").as_str())
    {
        found.push(
            "opcache.validate_timestamps is on, so PHP checks whether each file has changed; if \
             only deployments change files, set it to 0 and run `surus reload` after each"
                .into(),
        );
    }
    found
}

/// Whether PHP shows its errors to clients.
pub(super) fn displays_errors<'a>(mut engines: impl Iterator<Item = &'a Arc<dyn Engine>>) -> bool {
    engines.any(|engine| is_displayed(engine.report().get("display_errors")))
}

fn is_displayed(display_errors: &str) -> bool {
    !["", "0", "off", "no", "false", "stderr"]
        .contains(&display_errors.to_ascii_lowercase().as_str())
}

fn sizes(input: &LintInput<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let body = input.config.http.max_body_size;
    let size = |name: &str| php_size(&(input.php)(name));
    let (post, upload) = (size("post_max_size"), size("upload_max_filesize"));
    if let Some(post) = post {
        if post > body {
            found.push(format!(
                "post_max_size is {post}, but bodies above {body} are rejected before PHP sees \
                 them (http.max_body_size)"
            ));
        } else if post < body {
            found.push(format!(
                "post_max_size is {post}, below http.max_body_size ({body}): PHP discards the \
                 fields of forms between the two; set both to the same"
            ));
        }
    }
    if let Some(upload) = upload {
        if upload > body {
            found.push(format!(
                "upload_max_filesize is {upload}, but bodies above {body} are rejected before PHP \
                 sees them (http.max_body_size)"
            ));
        }
        if let Some(post) = post.filter(|post| upload > *post) {
            found.push(format!(
                "upload_max_filesize is {upload}, but a form with such a file exceeds \
                 post_max_size ({post})"
            ));
        }
    }
    found
}

fn memory(input: &LintInput<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let Some(limit) = php_size(&(input.php)("memory_limit")) else {
        found.push(
            "memory_limit is -1, so one script may use all memory of the machine; set [php] \
             memory_limit"
                .into(),
        );
        return found;
    };
    if let Some(post) = php_size(&(input.php)("post_max_size")).filter(|post| limit < *post) {
        found.push(format!(
            "memory_limit is {limit}, below post_max_size ({post}): a large form may exceed it; \
             raise one or lower the other"
        ));
    }
    let all = limit.0.saturating_mul(input.workers as u64);
    if all > input.memory {
        found.push(format!(
            "{} workers that all reach memory_limit ({limit}) need {} MiB, but only {} MiB are \
             available; lower engine.workers or memory_limit",
            input.workers,
            all >> 20,
            input.memory >> 20
        ));
    }
    found
}

fn times(input: &LintInput<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let (timeout, shutdown) = (
        input.config.http.request_timeout,
        input.config.http.shutdown_timeout,
    );
    let seconds = (input.php)("max_execution_time").parse().unwrap_or(0);
    if seconds > timeout.0.as_secs() {
        found.push(format!(
            "max_execution_time is {seconds} s, but a request without a response gets 504 after \
             {timeout} (http.request_timeout)"
        ));
    }
    let queue = input.config.engine.queue_timeout;
    if timeout < queue {
        found.push(format!(
            "http.request_timeout is {timeout}, below engine.queue_timeout ({queue}): a request \
             that no worker takes in time gets 504, not 503 with Retry-After; raise the one or \
             lower the other"
        ));
    }
    if shutdown < timeout {
        found.push(format!(
            "http.shutdown_timeout is {shutdown}, below http.request_timeout ({timeout}): a \
             shutdown aborts requests that take longer; raise one or lower the other"
        ));
    }
    found
}

fn connections(input: &LintInput<'_>) -> Option<String> {
    let (limit, files) = (input.config.http.max_connections, input.open_files);
    let is_set = limit != Settings::default().max_connections;
    (is_set && limit as u64 >= files).then(|| {
        format!(
            "http.max_connections is {limit}, but surus may open only {files} files, and each \
             connection is one; raise the limit (LimitNOFILE= of systemd, ulimit -Hn), or lower \
             http.max_connections"
        )
    })
}

/// Engines that run PHP as it is installed receive whole bodies.
fn streamed_bodies(config: &Config) -> Option<String> {
    let is_wanted =
        config.http.stream_body || (config.route.iter()).any(|rule| rule.stream_body == Some(true));
    let name = config.engine.name.as_deref()?;
    let engine = engines::find(name).ok()?;
    (is_wanted && engine.is_external()).then(|| {
        format!(
            "stream_body has no effect with the engine `{name}`, which receives whole bodies; use \
             one of surus-php, such as classic"
        )
    })
}

/// PHP as it is installed gives no backtraces, and a request that has been stopped is not slow.
fn slow_requests(config: &Config) -> Option<String> {
    let (slow, timeout) = (config.http.slow_request, config.http.request_timeout);
    if slow.0.is_zero() {
        return None;
    }
    let engine = config
        .engine
        .name
        .as_deref()
        .and_then(|name| engines::find(name).ok());
    if let Some(engine) = engine.filter(|engine| engine.is_external()) {
        return Some(format!(
            "http.slow_request has no effect with the engine `{}`, which gives no backtraces; use \
             one of surus-php, such as classic",
            engine.name
        ));
    }
    (slow >= timeout).then(|| {
        format!(
            "http.slow_request is {slow}, but a request without a response is stopped after \
             {timeout} (http.request_timeout); lower the one or raise the other"
        )
    })
}

/// A size as php.ini writes it; none if it means "no limit" or cannot be parsed.
fn php_size(text: &str) -> Option<Size> {
    text.trim().parse().ok().filter(|size| *size != Size(0))
}

/// Settings from `[php]` and `-d` that PHP does not know. Only these: Surus itself passes settings
/// that not every PHP has.
pub(super) fn unknown_settings<'a>(
    report: &'a Report,
    config: &Config,
) -> impl Iterator<Item = &'a str> {
    let names = report.get("ini_unknown").split(',');
    names.filter(|name| config.php.contains_key(*name))
}

/// A sentence about an unknown setting.
pub(super) fn unknown_setting(name: &str) -> String {
    format!(
        "PHP has no setting {name} ([php] or -d): check its spelling, and that its extension is \
         loaded"
    )
}

/// The extensions that composer.json requires and PHP does not have.
pub(super) fn missing_extensions(project: &Path, loaded: &str) -> anyhow::Result<Vec<String>> {
    const LARGEST: u64 = 16 << 20;
    let Ok(text) = regular_file::read(&project.join("composer.json"), LARGEST) else {
        return Ok(Vec::new());
    };
    let json: serde_json::Value = serde_json::from_slice(&text)?;
    // Composer writes the spaces of a name as dashes.
    let loaded: Vec<String> = loaded
        .split(',')
        .map(|name| name.to_ascii_lowercase().replace(' ', "-"))
        .collect();
    let required = json["require"].as_object().into_iter().flatten();
    Ok(required
        .filter_map(|(name, _)| name.strip_prefix("ext-"))
        .filter(|name| !loaded.contains(&name.to_ascii_lowercase()))
        .map(str::to_string)
        .collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn found(ini: &[(&str, &str)]) -> String {
        found_with(&Config::default(), ini)
    }

    fn found_with(config: &Config, ini: &[(&str, &str)]) -> String {
        let php = |name: &str| {
            let set = ini
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| *value);
            let default = match name {
                "post_max_size" | "upload_max_filesize" => "64M",
                "memory_limit" => "128M",
                "max_execution_time" => "30",
                _ => "",
            };
            set.unwrap_or(default).to_string()
        };
        let input = LintInput {
            config,
            php: &php,
            workers: 4,
            memory: 1 << 30,
            open_files: 1 << 16,
        };
        contradictions(&input).join("\n")
    }

    #[test]
    fn consistent_settings_have_no_finding() {
        assert_eq!(found(&[]), "");
    }

    #[test]
    fn contradicting_settings_are_found() {
        for (name, value, expected) in [
            ("post_max_size", "8M", "below http.max_body_size (64M)"),
            ("post_max_size", "100M", "bodies above 64M are rejected"),
            ("upload_max_filesize", "100M", "exceeds post_max_size (64M)"),
            (
                "memory_limit",
                "32M",
                "memory_limit is 32M, below post_max_size",
            ),
            (
                "memory_limit",
                "1G",
                "4 workers that all reach memory_limit (1G) need 4096 MiB",
            ),
            ("memory_limit", "-1", "memory_limit is -1"),
            ("max_execution_time", "90", "504 after 1m"),
            ("display_errors", "1", "clients see"),
        ] {
            let found = found(&[(name, value)]);
            assert!(found.contains(expected), "{name}={value}: {found}");
        }
    }

    #[test]
    fn shutdown_timeout_below_the_request_timeout_is_found() {
        let mut config = Config::default();
        config.http.shutdown_timeout = "59s".parse().unwrap();
        let found = found_with(&config, &[]);
        assert!(
            found.contains("http.shutdown_timeout is 59s, below http.request_timeout (1m)"),
            "{found}"
        );
    }

    #[test]
    fn more_connections_than_open_files_are_found() {
        let mut config = Config::default();
        assert!(!found_with(&config, &[]).contains("max_connections"));
        config.http.max_connections = 1 << 16;
        let found = found_with(&config, &[]);
        assert!(
            found.contains("http.max_connections is 65536, but surus may open only 65536 files"),
            "{found}"
        );
    }

    #[test]
    fn streamed_bodies_of_external_engines_are_found() {
        let mut config = Config::default();
        config.engine.name = Some("fpm".into());
        assert!(!found_with(&config, &[]).contains("stream_body"));
        config.http.stream_body = true;
        let found = found_with(&config, &[]);
        assert!(
            found.contains("stream_body has no effect with the engine `fpm`"),
            "{found}"
        );
        config.engine.name = Some("classic".into());
        assert!(!found_with(&config, &[]).contains("stream_body"));
    }

    #[test]
    fn slow_request_that_cannot_take_effect_is_found() {
        let mut config = Config::default();
        config.http.slow_request = "5s".parse().unwrap();
        assert_eq!(found_with(&config, &[]), "");
        config.engine.name = Some("fpm".into());
        let found = found_with(&config, &[]);
        assert!(
            found.contains("http.slow_request has no effect with the engine `fpm`"),
            "{found}"
        );
        config.engine.name = Some("classic".into());
        config.http.slow_request = "1m".parse().unwrap();
        let found = found_with(&config, &[]);
        assert!(
            found.contains("is stopped after 1m (http.request_timeout)"),
            "{found}"
        );
    }

    #[test]
    fn missing_extensions_of_composer_json_are_found() {
        let project = tempfile::tempdir().unwrap();
        let missing = || missing_extensions(project.path(), "Core,Zend OPcache,PDO");
        assert!(missing().unwrap().is_empty());
        let json = r#"{"require": {
            "php": ">=8.2", "ext-pdo": "*", "ext-zend-opcache": "*", "ext-redis": "*"
        }}"#;
        std::fs::write(project.path().join("composer.json"), json).unwrap();
        assert_eq!(missing().unwrap(), ["redis"]);
        std::fs::write(project.path().join("composer.json"), "{").unwrap();
        assert!(missing().is_err());
    }
}
