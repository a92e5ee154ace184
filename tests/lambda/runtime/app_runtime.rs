//! Tests variables of the function's environment: `APP_RUNTIME` says how an application boots, and
//! others override defaults in `[env]`.

use super::function::Function;

#[test]
fn app_runtime_of_the_function_chooses_the_engine() {
    // The script does not contain the name, as a framework's does not.
    let code = "<?php $serve = 'surus_'.'serve';
        $answer = fn () => print getenv('SURUS_ENGINE').' '.($_SERVER['APP_RUNTIME'] ?? '');
        getenv('SURUS_ENGINE') === 'classic' ? $answer() : $serve($answer);";
    let class = r"Surus\Symfony\Runtime";
    for (env, expected) in [
        (vec![], "classic "),
        (
            vec![("APP_RUNTIME", class)],
            r"rewind Surus\Symfony\Runtime",
        ),
        (
            vec![("APP_RUNTIME", class), ("SURUS_ENGINE_NAME", "worker")],
            r"worker Surus\Symfony\Runtime",
        ),
        (
            vec![("APP_RUNTIME", class), ("SURUS_ENV_APP_RUNTIME", "Other")],
            "classic Other",
        ),
    ] {
        let function = Function::start(&[("index.php", code)], &env);
        assert_eq!(function.get("a", "/").text(), expected);
    }
}

/// The loader that Symfony's Runtime component writes, with the default class of composer.json.
fn loader(class: &str) -> String {
    let class = class.replace('\\', r"\\");
    format!("<?php return $_SERVER['APP_RUNTIME'] ?? '{class}';")
}

const INDEX: &str = "<?php $runtime = require __DIR__.'/vendor/autoload_runtime.php';
    $serve = 'surus_'.'serve';
    $answer = fn () => print getenv('SURUS_ENGINE').' '.$runtime;
    getenv('SURUS_ENGINE') === 'classic' ? $answer() : $serve($answer);";

#[test]
fn app_runtime_of_the_function_overrides_the_loaders_class() {
    const STANDARD: &str = r"Symfony\Component\Runtime\SymfonyRuntime";
    const SURUS: &str = r"Surus\Symfony\Runtime";
    const BREF: &str = r"Runtime\Bref\Runtime";
    for (default, runtime, engine, expected) in [
        (r"Surus\Laravel\Runtime", SURUS, "", "rewind"),
        (r"Surus\Laravel\Runtime", BREF, "", "classic"),
        (STANDARD, SURUS, "", "rewind"),
        // The boot script for the standard class sets another one.
        (STANDARD, BREF, "worker", "worker"),
    ] {
        let loader = loader(default);
        let files = [
            ("index.php", INDEX),
            ("vendor/autoload_runtime.php", &loader),
        ];
        let mut env = vec![("APP_RUNTIME", runtime)];
        if !engine.is_empty() {
            env.push(("SURUS_ENGINE_NAME", engine));
        }
        let function = Function::start(&files, &env);
        let said = function.get("a", "/").text();
        assert_eq!(said, format!("{expected} {runtime}"), "{default}");
    }
}

#[test]
fn variables_of_the_function_override_defaults_of_the_package() {
    let code = "<?php echo getenv('OWN'), ' ', getenv('DEFAULT'), ' ', getenv('OTHER');";
    let settings = "[env]\nOWN = 'own'\nDEFAULT = 'default'\nOTHER = 'default'\n\
                    [lambda]\nenv_defaults = ['DEFAULT', 'OTHER']\n";
    let files = [("index.php", code), ("surus.toml", settings)];
    let env = [("OWN", "function"), ("DEFAULT", "function")];
    let function = Function::start(&files, &env);
    assert_eq!(function.get("a", "/").text(), "own function default");
}

#[test]
fn database_connection_of_the_function_keeps_the_session_driver_of_laravel() {
    let code = "<?php echo getenv('SESSION_DRIVER') ?: 'none', ' ', getenv('CACHE_STORE');";
    let settings = "[env]\nSESSION_DRIVER = 'cookie'\nCACHE_STORE = 'array'\n\
                    [lambda]\nenv_defaults = ['SESSION_DRIVER', 'CACHE_STORE']\n";
    let dotenv = "DB_CONNECTION=sqlite\nSESSION_DRIVER=database\nCACHE_STORE=file\n";
    let files = [
        ("index.php", code),
        ("surus.toml", settings),
        (".env", dotenv),
    ];
    for (connection, expected) in [("sqlite", "cookie array"), ("mysql", "none array")] {
        let function = Function::start(&files, &[("DB_CONNECTION", connection)]);
        assert_eq!(function.get("a", "/").text(), expected);
    }
}
