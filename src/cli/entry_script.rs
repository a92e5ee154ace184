//! Finds the PHP file that an engine boots or runs, and whether it serves requests by itself.

use std::path::{Path, PathBuf};

use surus_sys::regular_file;

use super::stub;
use crate::app::detect;
use crate::app::site::Site;
use crate::config::Config;
use crate::engines;

/// The script of the PHP library that boots a Laravel application.
pub const LARAVEL: &str = "vendor/surus/surus/src/Laravel/worker.php";

pub fn script(project: &Path, config: &Config) -> Option<PathBuf> {
    let named = config.engine.script.clone();
    let script = named.or_else(|| boots_laravel(config).then(|| LARAVEL.into()));
    script.map(|script| project.join(script))
}

/// Names scripts below the project relative to it, so that links on the way to the project are
/// followed once for each boot.
pub fn name_within(project: &Path, config: &mut Config) {
    let of_pools = config.pool.values_mut().map(|pool| &mut pool.script);
    for script in of_pools.chain([&mut config.engine.script]).flatten() {
        let below = script.strip_prefix(project).map(Path::to_path_buf);
        if let Ok(below) = below {
            *script = below;
        }
    }
}

/// Whether to boot Laravel: it is configured, and the engine boots a script.
fn boots_laravel(config: &Config) -> bool {
    let engine = config.engine.name.as_deref();
    let boots = |name| engines::find(name).is_ok_and(|entry| entry.boots_script());
    runtime(config) == Some(Runtime::Laravel) && engine.is_none_or(boots)
}

/// Whether the user decides how the application boots, by a script or a runtime.
pub fn has_own_boot(project: &Path, config: &Config) -> bool {
    let front = || front(project, config).is_some_and(|front| serves(&front));
    config.engine.script.is_some() || runtime_name(config).is_some() || front()
}

/// The runtime that the application is configured to use. Its entry script then does not call
/// `surus_serve()` itself.
#[derive(Debug, PartialEq)]
pub enum Runtime {
    /// Symfony's Runtime component loads Surus's runtime.
    Symfony,
    Laravel,
    /// The package runtime/frankenphp-symfony.
    FrankenPhp,
}

/// The runtime that `[env]` names, or the environment if PHP gets all of it, as on AWS Lambda.
pub fn runtime(config: &Config) -> Option<Runtime> {
    runtime_of(&runtime_name(config)?)
}

fn runtime_of(class: &str) -> Option<Runtime> {
    match class.trim_start_matches('\\') {
        r"Surus\Symfony\Runtime" => Some(Runtime::Symfony),
        r"Surus\Laravel\Runtime" => Some(Runtime::Laravel),
        r"Runtime\FrankenPhpSymfony\Runtime" => Some(Runtime::FrankenPhp),
        _ => None,
    }
}

fn runtime_name(config: &Config) -> Option<String> {
    let inherited = || match config.engine.clear_env {
        true => None,
        false => std::env::var(APP_RUNTIME).ok(),
    };
    config.env.get(APP_RUNTIME).cloned().or_else(inherited)
}

/// Names the runtime that composer.json chooses by `extra.runtime.class`, as the variable would, if
/// it boots. PHP sees the same class in both cases.
pub fn set_runtime_of_composer(project: &Path, config: &mut Config) {
    if runtime_name(config).is_some() {
        return;
    }
    let class = front(project, config).and_then(|front| detect::default_runtime(project, &front));
    if let Some(class) = class
        && runtime_of(&class).is_some()
    {
        config.env.insert(APP_RUNTIME.into(), class);
    }
}

/// The configured script, if it is a front controller that Symfony's Runtime component serves in
/// the loop of FrankenPHP's worker mode.
pub fn symfony_loop_script(project: &Path, config: &Config) -> Option<PathBuf> {
    let script = project.join(config.engine.script.as_ref()?);
    let has_own_runtime = runtime_name(config).is_some();
    (!has_own_runtime && detect::has_frankenphp_loop(project, &script)).then_some(script)
}

/// The variable from which Symfony's Runtime component takes the name of its class.
const APP_RUNTIME: &str = "APP_RUNTIME";

/// Whether the application needs an engine that boots its script.
pub fn needs_boot(project: &Path, config: &Config) -> bool {
    script(project, config)
        .or_else(|| front(project, config))
        .is_some_and(|entry| serves(&entry))
}

/// The document root's `index.php`, if the configured script needs an engine that boots it and
/// that file does not.
pub fn script_without_boot(project: &Path, config: &Config) -> Option<PathBuf> {
    let front = front(project, config)?;
    (serves(&script(project, config)?) && !serves(&front)).then_some(front)
}

/// The project's `worker.php`, if it needs an engine that boots it, and neither a configured script
/// nor the document root's `index.php` does.
pub fn unconfigured_worker(project: &Path, config: &Config) -> Option<PathBuf> {
    let worker = project.join("worker.php");
    let is_needed = script(project, config).is_none() && runtime(config).is_none();
    (is_needed && !front(project, config).is_some_and(|front| serves(&front)) && serves(&worker))
        .then_some(worker)
}

/// The document root's `index.php`. If the site cannot be opened, `serve` reports it when it opens
/// the site.
pub fn front(project: &Path, config: &Config) -> Option<PathBuf> {
    let site = Site::open(project, &config.site, None).ok()?;
    let front = site.front_controller()?;
    Some(front.filename.to_path_buf())
}

/// Whether this PHP file serves, or, if it is a stub, a file that it requires. Laravel Octane's
/// entry script is such a stub.
pub fn serves(entry: &Path) -> bool {
    serves_within(entry, 3)
}

fn serves_within(file: &Path, files: u32) -> bool {
    let text = read(file);
    let required = || stub::required(&text, file).into_iter().take(8);
    calls_serve(&text) || (files > 1 && required().any(|file| serves_within(&file, files - 1)))
}

/// The file that the engine runs, or one that it requires, if it names what only worker scripts of
/// FrankenPHP need. Surus then may have chosen the wrong engine.
pub fn names_frankenphp_worker(project: &Path, config: &Config) -> Option<PathBuf> {
    let entry = script(project, config).or_else(|| front(project, config))?;
    let required = stub::required_among_others(&read(&entry), &entry);
    let mut files = std::iter::once(entry).chain(required.into_iter().take(8));
    files.find(|file| {
        let text = read(file);
        ["FRANKENPHP_WORKER", "frankenphp_handle_request"]
            .iter()
            .any(|name| text.contains(name))
    })
}

/// The text of a PHP file; empty if there is none.
fn read(file: &Path) -> String {
    const LARGEST: u64 = 16 << 20;
    let text = regular_file::read(file, LARGEST).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

/// Whether this PHP file calls a function that only booted scripts may call, or a runner of the
/// Composer package that does.
fn calls_serve(php: &str) -> bool {
    const FUNCTIONS: [&str; 3] = [
        "surus_serve",
        "surus_checkpoint",
        "frankenphp_handle_request",
    ];
    const RUNNERS: [&str; 3] = [
        r"Surus\Laravel\Runner",
        r"Surus\Symfony\Server",
        r"Surus\Psr15",
    ];
    let is_name = |c: char| c.is_alphanumeric() || "_$>:\\".contains(c);
    let code = || {
        php.lines()
            .map(str::trim_start)
            .filter(|line| !["//", "#", "*", "/*"].iter().any(|c| line.starts_with(c)))
    };
    let named = || code().any(|line| RUNNERS.iter().any(|runner| line.contains(runner)));
    code().any(|line| {
        FUNCTIONS.iter().any(|function| {
            line.match_indices(function).any(|(at, _)| {
                let before = line[..at].trim_end_matches('\\');
                let after = line[at + function.len()..].trim_start();
                after.starts_with('(') && !before.ends_with(is_name)
            })
        }) || (line.contains("::serve(") && named())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::{
        APP_RUNTIME, Runtime, calls_serve, name_within, names_frankenphp_worker, runtime, script,
    };
    use crate::config::{Config, PoolSettings};

    /// As with `surus serve /srv/current --script /srv/current/worker.php`.
    #[test]
    fn script_named_through_the_projects_link_is_of_the_release_that_the_link_led_to() {
        let place = tempfile::tempdir().unwrap();
        let [old, current] = ["old", "current"].map(|name| place.path().join(name));
        std::fs::create_dir(&old).unwrap();
        symlink(&old, &current).unwrap();
        let release = current.canonicalize().unwrap();
        std::fs::remove_file(&current).unwrap();
        symlink(place.path(), &current).unwrap();

        let mut config = Config::default();
        config.engine.script = Some(current.join("worker.php"));
        let other = PoolSettings {
            script: Some("/elsewhere/worker.php".into()),
            ..PoolSettings::default()
        };
        config.pool.insert("other".into(), other);
        let inner = PoolSettings {
            script: Some(current.join("inner.php")),
            ..PoolSettings::default()
        };
        config.pool.insert("inner".into(), inner);
        name_within(&current, &mut config);
        let of_pool = |name| script(&release, &config.for_pool(name).unwrap()).unwrap();
        assert_eq!(
            script(&release, &config).unwrap(),
            release.join("worker.php")
        );
        assert_eq!(of_pool("inner"), release.join("inner.php"));
        assert_eq!(of_pool("other").to_str(), Some("/elsewhere/worker.php"));
    }

    #[test]
    fn worker_script_that_no_engine_boots_is_found() {
        let project = tempfile::tempdir().unwrap();
        let write = |name: &str, php: &str| std::fs::write(project.path().join(name), php).unwrap();
        let config = Config::default();
        let found = || names_frankenphp_worker(project.path(), &config);
        write(
            "index.php",
            "<?php if (x()) { require 'w.php'; } else { echo 'page'; }",
        );
        assert_eq!(found(), None);
        write(
            "w.php",
            "<?php if (empty($_SERVER['FRANKENPHP_WORKER'])) exit(1);",
        );
        let worker = found().unwrap();
        assert_eq!(worker.file_name().unwrap(), "w.php");
        write(
            "index.php",
            "<?php $f = 'frankenphp_handle_request'; while ($f($handler));",
        );
        assert_eq!(found().unwrap().file_name().unwrap(), "index.php");
    }

    #[test]
    fn runtime_is_recognised_by_its_class() {
        let of = |class: &str| {
            let mut config = Config::default();
            config.env.insert(APP_RUNTIME.into(), class.into());
            runtime(&config)
        };
        assert_eq!(of(r"Surus\Symfony\Runtime"), Some(Runtime::Symfony));
        assert_eq!(of(r"\Surus\Symfony\Runtime"), Some(Runtime::Symfony));
        assert_eq!(of(r"Surus\Laravel\Runtime"), Some(Runtime::Laravel));
        let theirs = of(r"Runtime\FrankenPhpSymfony\Runtime");
        assert_eq!(theirs, Some(Runtime::FrankenPhp));
        assert_eq!(of(r"Symfony\Component\Runtime\SymfonyRuntime"), None);
    }

    #[test]
    fn serving_script_is_recognised_by_its_call() {
        for php in [
            "<?php\nsurus_serve(fn () => print 'x');",
            "<?php\n\\surus_serve($handler);",
            "while (frankenphp_handle_request ($handler)) {}",
            "surus_checkpoint();",
            r"Surus\Laravel\Runner::serve(require 'bootstrap/app.php');",
            "use Surus\\Symfony\\Server;\n\nServer::serve(new Kernel('prod', false));",
        ] {
            assert!(calls_serve(php), "{php}");
        }
        for php in [
            "<?php\nif (function_exists('surus_serve')) { }",
            "<?php\n// surus_serve($handler);",
            "<?php\nmy_surus_serve($x);",
            "<?php\n$app->surus_serve($x);",
            "<?php\nrequire 'vendor/autoload.php';",
            "<?php\nuse Surus\\Engine;\nOther::serve($x);",
        ] {
            assert!(!calls_serve(php), "{php}");
        }
    }
}
