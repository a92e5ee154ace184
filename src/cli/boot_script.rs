//! Chooses the boot script that is part of Surus for an application without one of its own.

use std::path::Path;

use anyhow::{Context, bail};

use crate::app::detect::{self, DetectedApplication, Framework, FrameworkKind, package_directory};
use crate::app::site::routes::{self, RouteRule};
use crate::config::Config;
use crate::engines::{Code, EngineEntry};

/// Why an engine cannot boot the application, whose framework has a boot script. `classic` then
/// serves it.
pub fn obstacle(entry: &EngineEntry, application: &DetectedApplication) -> Option<String> {
    let (framework, why) = match application {
        _ if !entry.boots_script() || !entry.runs_scripts() => return None,
        DetectedApplication::NotBootable { framework, why } => (framework, why.as_str()),
        DetectedApplication::Known(framework) if !entry.isolates => match framework.kind {
            FrameworkKind::WordPress => {
                (framework, "it keeps the visitor in constants and globals")
            }
            _ => (framework, framework.needs_isolation.as_deref()?),
        },
        _ => return None,
    };
    Some(format!("{framework}: {why}"))
}

/// Why the configured engine does not boot the application.
pub fn configured_obstacle(config: &Config) -> Option<String> {
    let name = config.engine.name.as_deref()?;
    obstacle(crate::engines::find(name).ok()?, &config.application)
}

/// The boot script of an application. None if it has its own, or if there is none for it.
pub fn find(application: &DetectedApplication) -> Option<&Framework> {
    match application {
        DetectedApplication::Known(framework) => Some(framework),
        _ => None,
    }
}

/// Fails if the application has become one that its boot script would not serve as a whole: a
/// deploy may change the front controller.
pub fn check(
    framework: &Framework,
    entry: &EngineEntry,
    project: &Path,
    front: &Path,
) -> anyhow::Result<()> {
    let now = detect::detect(project, front);
    let why = match (obstacle(entry, &now), now) {
        (Some(why), _) => why,
        (None, DetectedApplication::Known(now)) if now.kind == framework.kind => return Ok(()),
        _ => format!("it was {framework} at the start, and is another application now"),
    };
    bail!(
        "the application cannot be booted any more: {why}; if that is intended, restart Surus, \
         which then chooses what serves it"
    )
}

/// Whether the rest of the script serves the request, so that there can be no warm-ups.
pub fn is_checkpoint(framework: &Framework) -> bool {
    matches!(
        framework.kind,
        FrameworkKind::Slim | FrameworkKind::WordPress
    )
}

/// Whether the boot script answers for the front controller only. WordPress's runs every script.
pub fn runs_front_only(kind: FrameworkKind) -> bool {
    kind != FrameworkKind::WordPress
}

/// Whether this pool answers for the front controller only. If a `[[route]]` names it, it also
/// answers requests for other scripts. With `[[site]]`, its name comes after that of its site.
pub fn leaves_others(kind: FrameworkKind, pool: &str, rules: &[RouteRule]) -> bool {
    let name = pool.rsplit('/').next();
    runs_front_only(kind) && routes::engines(rules).all(|engine| name != Some(engine))
}

/// Requests that need a process which has not loaded the application.
pub fn routes(kind: FrameworkKind) -> Vec<RouteRule> {
    if kind != FrameworkKind::WordPress {
        return Vec::new();
    }
    let to_classic = || RouteRule {
        engine: Some("classic".into()),
        ..RouteRule::default()
    };
    // Plugins look at the constants that these define before they load WordPress, and trackbacks
    // are only looked up by the script that loads it.
    let entries = r"^/(wp-admin(/|$)|wp-(activate|cron|mail|signup|trackback)\.php|xmlrpc\.php)";
    let mut rules = vec![RouteRule {
        regex: Some(entries.into()),
        ..to_classic()
    }];
    // The customizer and the site editor preview another theme than the one that is booted.
    let previews = [
        "customize_changeset_uuid",
        "wp_customize",
        "wp_theme_preview",
    ];
    rules.extend(previews.map(|parameter| RouteRule {
        prefix: Some("/".into()),
        query: Some(parameter.into()),
        ..to_classic()
    }));
    rules
}

/// The name of a boot script in the log and in PHP's messages.
pub fn name(kind: FrameworkKind) -> String {
    format!("surus://boot/{}", script(kind).0)
}

fn script(kind: FrameworkKind) -> (&'static str, &'static str) {
    macro_rules! script {
        ($name:literal) => {
            ($name, include_str!(concat!("../../php/boot/", $name)))
        };
    }
    match kind {
        FrameworkKind::SymfonyRuntime => script!("symfony-runtime.php"),
        FrameworkKind::Symfony => script!("symfony.php"),
        FrameworkKind::Laravel => script!("laravel.php"),
        FrameworkKind::Slim => script!("slim.php"),
        FrameworkKind::WordPress => script!("wordpress.php"),
    }
}

/// The classes that boot scripts use, by name.
const CLASSES: &[(&str, &str)] = &{
    macro_rules! classes {
        ($($path:literal),* $(,)?) => {
            [$(($path, include_str!(concat!("../../php/src/", $path, ".php")))),*]
        };
    }
    classes![
        "Boot/EarlyHooks",
        "Boot/Failure",
        "Boot/RequestCapture",
        "Boot/SlimRequests",
        "Boot/Translations",
        "Boot/WordPressCode",
        "Checkpoint",
        "DatabaseSession",
        "Engine",
        "Fingerprint",
        "Lambda/Context",
        "Lambda/Hook",
        "Laravel/BootDatabases",
        "Laravel/BootRequest",
        "Laravel/Bootstrap",
        "Laravel/Databases",
        "Laravel/Isolation",
        "Laravel/Octane",
        "Laravel/Priming",
        "Laravel/Runner",
        "Laravel/Source",
        "Laravel/Visitor",
        "LazyObject",
        "Process",
        "Retained",
        "Statics",
        "Symfony/BootDatabases",
        "Symfony/ExceptionHandler",
        "Symfony/Listeners",
        "Symfony/Priming",
        "Symfony/Runner",
        "Symfony/Runtime",
        "Symfony/Server",
        "Symfony/Visitor",
        "Warmup",
    ]
};

/// The boot script with the classes that it loads, as one text. The application's own copy of a
/// class, from the Composer package, comes first.
pub fn code(framework: &Framework, project: &Path) -> anyhow::Result<Code> {
    let packages = package_directory(project);
    let packages = packages
        .to_str()
        .context("the path of the Composer packages is not UTF-8")?;
    let project = project
        .to_str()
        .context("the project's path is not UTF-8")?;
    let classes: String = (CLASSES.iter())
        .map(|(path, php)| {
            let class = format!("Surus\\{}", path.replace('/', "\\"));
            format!("{}=>{},", quote(&class), quote(&format!("?>{php}")))
        })
        .collect();
    let script = script(framework.kind).1;
    let script = script.strip_prefix("<?php").unwrap_or(script);
    // In the first line, so that PHP's messages have the line numbers of the script.
    let text = format!(
        "<?php namespace Surus\\Boot{{const PROJECT={};const PACKAGES={};\
         spl_autoload_register(static function(string $class):void{{\
         static $classes=[{classes}];if(isset($classes[$class])){{eval($classes[$class]);}}}});}}\
         namespace{{{script}\n}}",
        quote(project),
        quote(packages)
    );
    Ok(Code {
        name: name(framework.kind),
        text,
    })
}

/// A PHP string in double quotes, on one line.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + text.len() / 8);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '"' | '\\' | '$' => quoted.extend(['\\', character]),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn boot_scripts_have_all_classes_that_they_use() {
        let imported = regex::Regex::new(r"use Surus\\([\w\\]+);").unwrap();
        let uses = regex::Regex::new(r"(?:new |[^\w$\\>:])([A-Z]\w+)(?:::|\()").unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("php/src");
        let is_known = |class: &str| CLASSES.iter().any(|(known, _)| *known == class);
        for (path, php) in CLASSES {
            for class in imported.captures_iter(php) {
                let class = class[1].replace('\\', "/");
                assert!(is_known(&class), "{path} uses {class}");
            }
            for class in uses.captures_iter(php) {
                let class = Path::new(path).with_file_name(&class[1]);
                let is_there = sources.join(&class).with_extension("php").is_file();
                let class = class.to_str().unwrap();
                assert!(!is_there || is_known(class), "{path} uses {class}");
            }
        }
    }

    #[test]
    fn quoted_text_is_one_line_without_variables() {
        assert_eq!(quote("$a = \"b\\c\";\n"), r#""\$a = \"b\\c\";\n""#);
    }

    #[test]
    fn application_must_stay_one_that_its_boot_script_serves_as_a_whole() {
        let project = tempfile::tempdir().unwrap();
        let front = project.path().join("index.php");
        std::fs::create_dir(project.path().join("vendor")).unwrap();
        std::fs::write(project.path().join("vendor/autoload.php"), "<?php").unwrap();
        let entry = |name| crate::engines::find(name).unwrap();
        let error = |kind: FrameworkKind, text: &str| {
            std::fs::write(&front, text).unwrap();
            let checked = check(&of(kind), entry("rewind"), project.path(), &front);
            checked.err().map(|error| error.to_string())
        };
        let symfony = "<?php $request = Request::createFromGlobals(); $kernel->handle($request);";
        assert_eq!(error(FrameworkKind::Symfony, symfony), None);
        let why = error(FrameworkKind::Laravel, symfony).unwrap();
        assert!(why.contains("it was Laravel at the start"), "{why}");
        let more = format!("{symfony} count($visits);");
        let why = error(FrameworkKind::Symfony, &more).unwrap();
        assert!(why.contains("goes on with `count($visits)`"), "{why}");

        let lock = r#"{"packages": [{"name": "slim/slim", "version": "4.14.0"}]}"#;
        std::fs::write(project.path().join("composer.lock"), lock).unwrap();
        std::fs::write(&front, "<?php $app->run(); echo 'end';").unwrap();
        let slim = of(FrameworkKind::Slim);
        let on = |name| check(&slim, entry(name), project.path(), &front);
        assert!(on("rewind").is_ok());
        let why = on("worker").unwrap_err().to_string();
        assert!(why.contains("goes on with `echo 'end'`"), "{why}");
    }

    fn of(kind: FrameworkKind) -> Framework {
        Framework {
            kind,
            version: None,
            needs_isolation: None,
        }
    }

    #[test]
    fn application_that_only_isolation_serves_is_not_booted_on_worker() {
        let slim = Framework {
            needs_isolation: Some("it goes on".to_string()),
            ..of(FrameworkKind::Slim)
        };
        for framework in [of(FrameworkKind::WordPress), slim] {
            let application = DetectedApplication::Known(framework);
            let entry = |name| crate::engines::find(name).unwrap();
            assert!(obstacle(entry("worker"), &application).is_some());
            assert_eq!(obstacle(entry("rewind"), &application), None);
            assert_eq!(obstacle(entry("classic"), &application), None);
        }
        let application = DetectedApplication::Known(of(FrameworkKind::Slim));
        let worker = crate::engines::find("worker").unwrap();
        assert_eq!(obstacle(worker, &application), None);
    }
}
