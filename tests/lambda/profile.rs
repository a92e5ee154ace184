//! Tests that `surus lambda profile` measures a start correctly.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// An application of four files, one of which is requested twice.
fn project() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    // PHP's user must be able to read it.
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["vendor", "src"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let write = |name: &str, text: &str| {
        fs::write(dir.path().join(name), format!("<?php\n{text}\n")).unwrap()
    };
    write(
        "vendor/autoload.php",
        "spl_autoload_register(static fn ($class) => require __DIR__.\"/../src/$class.php\");",
    );
    write(
        "src/Kernel.php",
        "final class Kernel {
            function run() {
                usleep(20000);
                return include __DIR__.'/config.php';
            }
        }",
    );
    write("src/config.php", "return 'answer';");
    let boot = "require __DIR__.'/vendor/autoload.php'; $kernel = new Kernel; $kernel->run();";
    write("index.php", &format!("{boot} echo $kernel->run();"));
    write(
        "worker.php",
        &format!("{boot} $kernel->run(); surus_serve(static function () {{ echo 'answer'; }});"),
    );
    write("broken.php", "throw new Exception('no such table');");
    dir
}

fn profile(dir: &Path, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    // OPcache must accept files that have just been written.
    command.args(["lambda", "profile"]).arg(dir).args([
        "-d",
        "opcache.file_update_protection=0",
        "--starts",
        "3",
    ]);
    let output = command.args(args).current_dir(dir).output().unwrap();
    (
        output.status.success(),
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap(),
    )
}

/// The duration of a phase in the printed timeline.
fn takes(text: &str, part: &str) -> f64 {
    let line = text
        .lines()
        .find(|line| line.ends_with(part))
        .unwrap_or_else(|| panic!("no `{part}` in\n{text}"));
    let mut words = line.split_whitespace();
    words.nth(2).unwrap().parse().unwrap()
}

#[test]
fn each_phase_of_a_start_is_measured() {
    let dir = project();
    for (engine, args, part) in [
        (
            "classic",
            &["--engine", "classic"][..],
            "first event: framework and application",
        ),
        (
            "rewind",
            &["--engine", "rewind", "--script", "worker.php"],
            "framework and application",
        ),
    ] {
        let picture = dir.path().join(format!("{engine}.svg"));
        let (fine, text) = profile(
            dir.path(),
            &[args, &["--svg", picture.to_str().unwrap()]].concat(),
        );
        assert!(fine, "{text}");
        assert!(text.contains(&format!(" on {engine}: ")), "{text}");
        for name in [
            "start surus",
            "start and link the PHP process",
            "start PHP: php.ini, extensions",
            "check OPcache",
        ] {
            assert!(takes(&text, name) > 0.0, "{text}");
        }
        // The application sleeps 20 ms twice.
        assert!(takes(&text, part) >= 40.0, "{text}");
        assert!(text.contains("the script and the autoloader\n"), "{text}");
        // Files of the second event do not belong to the start.
        assert!(
            text.contains("\n5 PHP files: 4 compiled, 1 from OPcache; "),
            "{text}"
        );
        assert!(text.contains(" 3 files  src\n"), "{text}");
        assert!(text.contains("; the median of 3 starts"), "{text}");
        let svg = fs::read_to_string(picture).unwrap();
        assert!(
            svg.starts_with("<svg ") && svg.contains("<title>src/Kernel.php "),
            "{svg}"
        );
    }
}

#[test]
fn failed_application_has_no_profile() {
    let dir = project();
    let (fine, text) = profile(dir.path(), &["--engine", "classic", "--url", "/broken.php"]);
    assert!(
        !fine
            && text.contains("no such table")
            && text.contains("GET /broken.php failed with status 500"),
        "{text}"
    );
}

#[test]
fn handler_is_profiled_with_an_event() {
    let dir = project();
    let path = |name: &str| dir.path().join(name);
    fs::remove_file(path("index.php")).unwrap();
    let autoload = "<?php
        spl_autoload_register(static function ($class) {
            'Kernel' === $class && require __DIR__.'/../src/Kernel.php';
        });";
    fs::write(path("vendor/autoload.php"), autoload).unwrap();
    let code = "<?php
        $kernel = new Kernel;
        $kernel->run();
        return function (array $event) use ($kernel) {
            $event['order'] ?? throw new Exception('no order');
            return $kernel->run();
        };";
    fs::write(path("handler.php"), code).unwrap();
    let library = concat!(env!("CARGO_MANIFEST_DIR"), "/php/lambda/events.php");
    let settings = format!("[lambda]\nhandler = 'handler.php'\nscript = '{library}'\n");
    fs::write(path("surus.toml"), settings).unwrap();
    fs::write(path("event.json"), r#"{"order": 7}"#).unwrap();
    // The handler's file is loaded during the start, on the default engine of handlers.
    let (success, text) = profile(dir.path(), &["--event", "event.json"]);
    assert!(success, "{text}");
    assert!(text.contains("on worker"), "{text}");
    let event = takes(&text, "first event");
    assert!(event >= 20.0, "its 20 ms are in it: {event} in {text}");
    // The default event is `{}`, which this handler rejects.
    let (success, text) = profile(dir.path(), &[]);
    assert!(!success && text.contains("no order"), "{text}");
    for (arguments, expected) in [
        (["--event", "gone.json"], "cannot read gone.json"),
        (["--event", "handler.php"], "the event is not JSON"),
    ] {
        let (success, text) = profile(dir.path(), &arguments);
        assert!(!success && text.contains(expected), "{text}");
    }
    fs::remove_file(path("surus.toml")).unwrap();
    let (success, text) = profile(dir.path(), &["--event", "event.json"]);
    assert!(
        !success && text.contains("no handler; name its PHP file"),
        "{text}"
    );
}
