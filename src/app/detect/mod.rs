//! Recognises the framework of an application by its files, without running any of them.

mod front_controller;
mod packages;
mod wordpress;

pub use packages::directory as package_directory;

use std::fmt::{self, Display, Formatter};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// An application as its files show it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DetectedApplication {
    /// It has a boot script of its own, or chooses a runtime.
    Own,
    /// Surus has a boot script for it.
    Known(Framework),
    /// Surus has a boot script for its framework, but this application cannot be booted.
    NotBootable { framework: Framework, why: String },
    #[default]
    Unknown,
}

impl DetectedApplication {
    /// The URL paths below which the framework publishes what visitors upload.
    pub fn uploads(&self) -> Option<Vec<String>> {
        let (Self::Known(framework) | Self::NotBootable { framework, .. }) = self else {
            return None;
        };
        // `artisan storage:link` makes this link (config/filesystems.php).
        (framework.kind == FrameworkKind::Laravel).then(|| vec!["/storage".to_owned()])
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Framework {
    pub kind: FrameworkKind,
    /// As Composer or WordPress names it.
    pub version: Option<String>,
    /// Why only an engine that isolates can boot the application. None: any engine that boots can.
    pub needs_isolation: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FrameworkKind {
    /// With its Runtime component.
    SymfonyRuntime,
    /// With a front controller that creates the request itself.
    Symfony,
    Laravel,
    Slim,
    WordPress,
}

impl Display for Framework {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self.kind {
            FrameworkKind::SymfonyRuntime | FrameworkKind::Symfony => "Symfony",
            FrameworkKind::Laravel => "Laravel",
            FrameworkKind::Slim => "Slim",
            FrameworkKind::WordPress => "WordPress",
        })?;
        match &self.version {
            Some(version) => write!(out, " {version}"),
            None => Ok(()),
        }
    }
}

/// What loads the Runtime component.
const LOADER: &str = "autoload_runtime.php";

/// Detects the application in `project` whose front controller is `front`.
pub fn detect(project: &Path, front: &Path) -> DetectedApplication {
    let Some(text) = read(front) else {
        return DetectedApplication::Unknown;
    };
    let code = front_controller::without_comments(&text);
    let front_name = front.strip_prefix(project).unwrap_or(front).display();
    let found = |kind, version, why: Option<String>| {
        let framework = Framework {
            kind,
            version,
            needs_isolation: None,
        };
        match why {
            Some(why) => DetectedApplication::NotBootable { framework, why },
            None => DetectedApplication::Known(framework),
        }
    };
    if code.contains("wp-blog-header.php") {
        let root = front.parent().unwrap_or(project);
        return found(
            FrameworkKind::WordPress,
            wordpress::version(root),
            wordpress::obstacle(root),
        );
    }
    let version = |package: &str| packages::version(project, package);
    let missing = |file: &Path| {
        let name = file.strip_prefix(project).unwrap_or(file).display();
        format!("{name} is missing (composer install)")
    };
    let autoload = packages::directory(project).join("autoload.php");
    let autoloads = autoload.is_file();
    let lacks_libraries = || (!autoloads).then(|| missing(&autoload));
    let early = |calls: &[&str]| {
        front_controller::before_request(&code, calls).map(|found| {
            format!(
                "{front_name} uses `{found}` before the framework has the request, and a boot \
                 would do so once for all requests"
            )
        })
    };
    if code.contains(LOADER) {
        let loader = packages::directory(project).join(LOADER);
        let why = match &read(&loader) {
            None => Some(missing(&loader)),
            Some(text) if !text.contains(r"Component\\Runtime\\SymfonyRuntime'") => {
                return DetectedApplication::Own;
            }
            Some(_) => early(&[]),
        };
        return found(
            FrameworkKind::SymfonyRuntime,
            version("symfony/http-kernel"),
            why,
        );
    }
    let unusual = |call| {
        front_controller::after_request(&code, call).map(|rest| {
            format!(
                "{front_name} goes on with `{rest}` after {call}), which a boot would leave out"
            )
        })
    };
    let around = |call| unusual(call).or_else(|| early(&[call]));
    if code.contains("bootstrap/app.php") && code.contains("Request::capture(") {
        let why = lacks_libraries().or_else(|| around("Request::capture("));
        return found(FrameworkKind::Laravel, version("laravel/framework"), why);
    }
    if code.contains("Request::createFromGlobals(") && code.contains("->handle(") {
        let why = lacks_libraries().or_else(|| around("Request::createFromGlobals("));
        return found(FrameworkKind::Symfony, version("symfony/http-kernel"), why);
    }
    match version("slim/slim") {
        Some(version) if version.starts_with("4.") && autoloads => {
            let why = early(&["createServerRequestFromGlobals(", "->run("]);
            match found(FrameworkKind::Slim, Some(version), why) {
                DetectedApplication::Known(framework) => DetectedApplication::Known(Framework {
                    needs_isolation: unusual("->run("),
                    ..framework
                }),
                other => other,
            }
        }
        Some(version) => {
            let why = match autoloads {
                true => "only Slim 4 lets the boot say where requests come from".to_string(),
                false => missing(&autoload),
            };
            found(FrameworkKind::Slim, Some(version), Some(why))
        }
        None => DetectedApplication::Unknown,
    }
}

/// The class that the application's runtime loader creates if `APP_RUNTIME` is not set:
/// `extra.runtime.class` of composer.json. None without a loader.
pub fn default_runtime(project: &Path, front: &Path) -> Option<String> {
    if !front_controller::without_comments(&read(front)?).contains(LOADER) {
        return None;
    }
    let loader = read(&packages::directory(project).join(LOADER))?;
    let (_, rest) = loader.split_once("['APP_RUNTIME'] ?? '")?;
    Some(rest.split_once('\'')?.0.replace(r"\\", r"\"))
}

/// Whether a front controller loads Symfony's own runtime, and that has a runner for FrankenPHP's
/// worker mode, as since Symfony 7.4.
pub fn has_frankenphp_loop(project: &Path, front: &Path) -> bool {
    let runner = "symfony/runtime/Runner/FrankenPhpWorkerRunner.php";
    default_runtime(project, front).as_deref() == Some(r"Symfony\Component\Runtime\SymfonyRuntime")
        && packages::directory(project).join(runner).is_file()
}

/// A text file, unless it is too large to be one of those that are looked at here.
fn read(path: &Path) -> Option<String> {
    const LARGEST: u64 = 16 << 20;
    let bytes = surus_sys::regular_file::read(path, LARGEST).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// An application of these files, whose front controller is public/index.php.
    fn look_at(files: &[(&str, &str)]) -> DetectedApplication {
        let project = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = project.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        detect(project.path(), &project.path().join("public/index.php"))
    }

    fn known(kind: FrameworkKind, version: Option<&str>) -> DetectedApplication {
        DetectedApplication::Known(Framework {
            kind,
            version: version.map(str::to_string),
            needs_isolation: None,
        })
    }

    fn why(application: DetectedApplication) -> String {
        match application {
            DetectedApplication::NotBootable { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }

    const AUTOLOAD: (&str, &str) = ("vendor/autoload.php", "<?php");

    const LARAVEL: &str = "<?php
use Illuminate\\Http\\Request;
define('LARAVEL_START', microtime(true));
require __DIR__.'/../vendor/autoload.php';
(require_once __DIR__.'/../bootstrap/app.php')
    ->handleRequest(Request::capture()); // serve";

    #[test]
    fn laravel_is_recognised_with_its_version() {
        let lock = r#"{"packages": [{"name": "laravel/framework", "version": "v12.3.1"}]}"#;
        let files = [("public/index.php", LARAVEL), AUTOLOAD];
        assert_eq!(look_at(&files), known(FrameworkKind::Laravel, None));
        let files = [&files[..], &[("composer.lock", lock)]].concat();
        assert_eq!(
            look_at(&files),
            known(FrameworkKind::Laravel, Some("12.3.1"))
        );
    }

    #[test]
    fn directory_of_packages_is_the_one_that_composer_uses() {
        let composer = r#"{"config": {"vendor-dir": "lib/php"}}"#;
        let index = LARAVEL.replace("vendor", "lib/php");
        let list = r#"{"packages": [{"name": "laravel/framework", "version": "v12.3.1"}]}"#;
        let files = [("public/index.php", &*index), ("composer.json", composer)];
        let reason = why(look_at(&files));
        assert!(reason.contains("lib/php/autoload.php"), "{reason}");
        let installed = [
            ("lib/php/autoload.php", "<?php"),
            ("lib/php/composer/installed.json", list),
        ];
        assert_eq!(
            look_at(&[&files[..], &installed].concat()),
            known(FrameworkKind::Laravel, Some("12.3.1"))
        );
    }

    #[test]
    fn laravel_without_libraries_is_not_bootable() {
        let reason = why(look_at(&[("public/index.php", LARAVEL)]));
        assert!(reason.contains("composer install"), "{reason}");
    }

    #[test]
    fn front_controller_with_other_code_after_the_request_is_not_bootable() {
        let index = format!("{LARAVEL}\nstatistics();");
        let reason = why(look_at(&[("public/index.php", &index), AUTOLOAD]));
        assert!(reason.contains("`statistics()`"), "{reason}");
    }

    #[test]
    fn front_controller_that_looks_at_the_request_first_is_not_bootable() {
        for (start, found) in [
            ("define('PAGE', $_GET['page'] ?? 1);", "`$_GET`"),
            (
                "if ($_SERVER['REMOTE_ADDR'] !== '::1') { exit; }",
                "`$_SERVER['REMOTE_ADDR']`",
            ),
        ] {
            let index = LARAVEL.replace("<?php", &format!("<?php {start}"));
            let reason = why(look_at(&[("public/index.php", &index), AUTOLOAD]));
            assert!(reason.contains(found), "{reason}");
        }
    }

    #[test]
    fn symfony_is_recognised_with_and_without_the_runtime() {
        let with = "<?php require_once dirname(__DIR__).'/vendor/autoload_runtime.php';
            return fn (array $context) => new Kernel($context['APP_ENV'], false);";
        let runtime = |class: &str| format!("<?php $runtime = $_SERVER['APP_RUNTIME'] ?? {class};");
        let standard = runtime(r"'Symfony\\Component\\Runtime\\SymfonyRuntime'");
        let files = |text| {
            [
                ("public/index.php", with),
                ("vendor/autoload_runtime.php", text),
            ]
        };
        assert_eq!(
            look_at(&files(&standard)),
            known(FrameworkKind::SymfonyRuntime, None)
        );
        let other = runtime(r"'Runtime\\FrankenPhpSymfony\\Runtime'");
        assert_eq!(look_at(&files(&other)), DetectedApplication::Own);

        let early = with.replace("new Kernel(", "new Kernel($_COOKIE, ");
        let files = [
            ("public/index.php", &*early),
            ("vendor/autoload_runtime.php", &*standard),
        ];
        let reason = why(look_at(&files));
        assert!(reason.contains("`$_COOKIE`"), "{reason}");

        let files = [("public/index.php", SYMFONY_5), AUTOLOAD];
        assert_eq!(look_at(&files), known(FrameworkKind::Symfony, None));
        let early = SYMFONY_5.replace("(new Dotenv", "$page = $_GET; (new Dotenv");
        let reason = why(look_at(&[("public/index.php", &early), AUTOLOAD]));
        assert!(reason.contains("`$_GET`"), "{reason}");
    }

    /// The front controller of Symfony 5.0.
    const SYMFONY_5: &str = "<?php
        use Symfony\\Component\\HttpFoundation\\Request;
        require dirname(__DIR__).'/vendor/autoload.php';
        (new Dotenv())->bootEnv(dirname(__DIR__).'/.env');
        if ($_SERVER['APP_DEBUG']) {
            umask(0000);
            Debug::enable();
        }
        if ($trustedProxies = $_SERVER['TRUSTED_PROXIES'] ?? false) {
            Request::setTrustedProxies(explode(',', $trustedProxies), Request::HEADER_FORWARDED);
        }
        if ($trustedHosts = $_SERVER['TRUSTED_HOSTS'] ?? false) {
            Request::setTrustedHosts([$trustedHosts]);
        }
        $kernel = new Kernel($_SERVER['APP_ENV'], (bool) $_SERVER['APP_DEBUG']);
        $request = Request::createFromGlobals();
        $response = $kernel->handle($request);
        $response->send();
        $kernel->terminate($request, $response);";

    #[test]
    fn default_runtime_is_that_of_a_loader_in_use() {
        let of = |front: &str, loader: &str| {
            let project = tempfile::tempdir().unwrap();
            std::fs::create_dir(project.path().join("vendor")).unwrap();
            let loads = project.path().join("vendor/autoload_runtime.php");
            std::fs::write(loads, loader).unwrap();
            let index = project.path().join("index.php");
            std::fs::write(&index, front).unwrap();
            default_runtime(project.path(), &index)
        };
        let uses = "<?php require 'vendor/autoload_runtime.php'; return fn () => new Kernel;";
        let loader = r"<?php $runtime = $_SERVER['APP_RUNTIME'] ?? $_ENV['APP_RUNTIME'] ??
            'Runtime\\FrankenPhpSymfony\\Runtime';";
        let loader = loader.replace("\n           ", "");
        let class = r"Runtime\FrankenPhpSymfony\Runtime";
        assert_eq!(of(uses, &loader), Some(class.into()));
        assert_eq!(of(uses, "<?php $runtime = new Other;"), None);
        let unused = "<?php // require 'vendor/autoload_runtime.php';";
        assert_eq!(of(unused, &loader), None);
    }

    #[test]
    fn wordpress_is_bootable_once_it_is_configured() {
        let index = "<?php require __DIR__ . '/wp-blog-header.php';";
        let files = [
            ("public/index.php", index),
            ("public/wp-load.php", "<?php"),
            (
                "public/wp-includes/version.php",
                "<?php\n$wp_version = '6.8.1';",
            ),
        ];
        assert!(why(look_at(&files)).contains("wp-config.php"));
        for place in ["public/wp-config.php", "wp-config.php"] {
            let files = [&files[..], &[(place, "<?php")]].concat();
            assert_eq!(
                look_at(&files),
                known(FrameworkKind::WordPress, Some("6.8.1"))
            );
        }
    }

    #[test]
    fn slim_is_bootable_from_version_4_on() {
        let index = ("public/index.php", "<?php require 'app.php'; $app->run();");
        let of = |version: &str| {
            let lock =
                format!(r#"{{"packages": [{{"name": "slim/slim", "version": "{version}"}}]}}"#);
            look_at(&[index, AUTOLOAD, ("composer.lock", &lock)])
        };
        assert_eq!(of("4.14.0"), known(FrameworkKind::Slim, Some("4.14.0")));
        assert!(why(of("3.12.4")).contains("Slim 4"));
        assert_eq!(look_at(&[index]), DetectedApplication::Unknown);
    }

    #[test]
    fn slim_with_code_around_the_request_is_bootable_in_part() {
        let of = |index: &str| {
            let lock = r#"{"packages": [{"name": "slim/slim", "version": "4.14.0"}]}"#;
            let index = format!("<?php require 'app.php'; {index}");
            let files = [("public/index.php", &*index), AUTOLOAD];
            look_at(&[&files[..], &[("composer.lock", lock)]].concat())
        };
        let reason = why(of("define('PAGE', $_GET['page'] ?? 1); $app->run();"));
        assert!(reason.contains("public/index.php uses `$_GET`"), "{reason}");
        let DetectedApplication::Known(framework) = of("$app->run(); echo 'end';") else {
            panic!("not bootable");
        };
        let reason = framework.needs_isolation.unwrap();
        assert!(reason.contains("goes on with `echo 'end'`"), "{reason}");
    }
}
