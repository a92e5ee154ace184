//! Tests how an engine that boots finds the boot script of an application without one of its own.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use super::client::Client;
use super::revalidation::eventually;
use super::site::Site;
use crate::common::Surus;

/// Slim 4's way to requests, with the decorator of `slim/http`. Debian has no package of it.
const SLIM: &str = r#"<?php
namespace Slim\Interfaces {
    use Psr\Http\Message\ServerRequestInterface;
    interface ServerRequestCreatorInterface {
        function createServerRequestFromGlobals(): ServerRequestInterface;
    }
}
namespace Psr\Http\Message {
    interface ServerRequestInterface {}
}
namespace Slim\Factory {
    use Psr\Http\Message\ServerRequestInterface;
    use Slim\Interfaces\ServerRequestCreatorInterface;
    final class Creator implements ServerRequestCreatorInterface {
        function createServerRequestFromGlobals(): ServerRequestInterface {
            return new class implements ServerRequestInterface { public int $decorated = 0; };
        }
    }
    final class Decorator implements ServerRequestCreatorInterface {
        function __construct(private ServerRequestCreatorInterface $creator) {}
        function createServerRequestFromGlobals(): ServerRequestInterface {
            $request = $this->creator->createServerRequestFromGlobals();
            $request->decorated++;
            return $request;
        }
    }
    class ServerRequestCreatorFactory {
        protected static ?ServerRequestCreatorInterface $serverRequestCreator = null;
        protected static bool $slimHttpDecoratorsAutomaticDetectionEnabled = true;
        static function create(): ServerRequestCreatorInterface {
            return static::determineServerRequestCreator();
        }
        static function determineServerRequestCreator(): ServerRequestCreatorInterface {
            $creator = static::$serverRequestCreator ?? new Creator();
            return static::$slimHttpDecoratorsAutomaticDetectionEnabled
                ? new Decorator($creator) : $creator;
        }
        static function setServerRequestCreator(ServerRequestCreatorInterface $creator): void {
            self::$serverRequestCreator = $creator;
        }
    }
}
namespace Slim {
    class App {
        public int $handled = 0;
        function run(): void {
            $creator = Factory\ServerRequestCreatorFactory::create();
            $request = $creator->createServerRequestFromGlobals();
            1 === $request->decorated || throw new \LogicException('decorated twice or not');
            $directory = getcwd() === __DIR__ ? '' : basename(getcwd());
            echo $_GET['q'] ?? 'nothing', ' ', ++$this->handled, ' ', $directory;
        }
    }
}
"#;

const SLIM_LOCK: &str = r#"{"packages": [{"name": "slim/slim", "version": "4.14.0"}]}"#;

pub const SLIM_INDEX: &str = "<?php require __DIR__.'/../vendor/autoload.php';
    $booted = microtime(true); $app = new Slim\\App(); $app->run(); echo ' end';";

pub fn slim() -> Site {
    Site::new()
        .write("vendor/autoload.php", SLIM)
        .write("composer.lock", SLIM_LOCK)
        .write(
            "public/index.php",
            &SLIM_INDEX.replace("require", "require_once"),
        )
}

fn reload(project: &Path) -> Output {
    let mut reload = Command::new(env!("CARGO_BIN_EXE_surus"));
    reload.arg("reload").arg(project).output().unwrap()
}

/// The lines of the log that warn about the boot.
pub fn warnings(log: &str) -> Vec<&str> {
    log.lines()
        .filter(|line| line.contains("cannot be booted"))
        .collect()
}

#[test]
fn unmodified_slim_is_booted_by_one_word() {
    let site = slim();
    for engine in ["rewind", "fork", "standby"] {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
        surus.wait_for_log(|log| log.contains("script=\"surus://boot/slim.php\""));
        for _ in 1..=2 {
            let said = Client::new(&surus.url).get("/?q=a").ok().text();
            assert_eq!(said, "a 1 public end", "{engine}");
        }
    }
    // A loop would leave out what comes after the request.
    let args = ["--engine", "worker", "--workers", "1"];
    let surus = site.serve_with(&args, &[]);
    for _ in 1..=2 {
        let said = Client::new(&surus.url).get("/?q=a").ok().text();
        assert_eq!(said, "a 1 public end");
    }
    let log = surus.log();
    assert_eq!(warnings(&log).len(), 1, "{log}");
    assert!(log.contains("goes on with `echo ' end'`"), "{log}");
    drop(surus);
    let site = site.replace("public/index.php", " echo ' end';", "");
    let surus = site.serve_with(&args, &[]);
    surus.wait_for_log(|log| log.contains("script=\"surus://boot/slim.php\""));
    for round in 1..=2 {
        let said = Client::new(&surus.url).get("/?q=a").ok().text();
        assert_eq!(said, format!("a {round} public"));
    }
}

#[test]
fn application_with_another_directory_of_packages_is_booted() {
    let composer = r#"{"config": {"vendor-dir": "packages"}}"#;
    let index = SLIM_INDEX.replace("vendor", "packages");
    let site = slim()
        .remove("vendor/autoload.php")
        .write("packages/autoload.php", SLIM)
        .write("composer.json", composer)
        .write(
            "public/index.php",
            &index.replace("require", "require_once"),
        );
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
    surus.wait_for_log(|log| log.contains("script=\"surus://boot/slim.php\""));
    let said = Client::new(&surus.url).get("/?q=a").ok().text();
    assert_eq!(said, "a 1 public end");
}

/// The boot script is no file, so `open_basedir` need not allow one.
#[test]
fn boot_script_runs_within_open_basedir_and_without_opcache() {
    let site = slim();
    let allowed = format!("open_basedir={}", site.www().parent().unwrap().display());
    for setting in [allowed.as_str(), "opcache.enable=0"] {
        let surus = site.serve_with(&["--engine", "rewind", "-d", setting], &[]);
        surus.wait_for_log(|log| log.contains("script=\"surus://boot/slim.php\""));
        assert_eq!(
            Client::new(&surus.url).get("/").ok().text(),
            "nothing 1 public end"
        );
    }
}

/// The request comes in the middle of the script, so none can come before the boot has ended.
#[test]
fn warm_ups_of_an_application_that_cannot_have_any_are_reported() {
    for warmup in ["[\"/\"]", "\"learn\"", "\"auto\""] {
        let settings = format!("[engine]\nname = \"rewind\"\nwarmup = {warmup}\n");
        let site = slim().write("surus.toml", &settings);
        let surus = site.serve_with(&["--workers", "1"], &[]);
        Client::new(&surus.url).get("/").ok();
        let is_expected = warmup != "\"auto\"";
        let is_said = |log: &str| log.contains("engine.warmup has no effect");
        match is_expected {
            true => surus.wait_for_log(is_said),
            false => assert!(!is_said(&surus.log()), "{warmup}"),
        }
        drop(surus);
        let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_surus"));
        let said = check.arg("check").arg(site.www()).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let is_said = said.contains("! engine.warmup has no effect: Slim");
        assert_eq!(is_said, is_expected, "{warmup}: {said}");
    }
}

/// What error pages do with the lowest file of a stack trace. Frameworks make an exception of a
/// warning.
const ASKS: &str = r#"<?php
    set_error_handler(static fn (int $type, string $text) => throw new ErrorException($text));
    $trace = (new Exception())->getTrace();
    $file = end($trace)['file'];
    foreach ([$file, "$file(1) : eval()'d code"] as $name) {
        $found = file_exists($name) || is_file($name) || is_readable($name) || is_dir($name);
        $lines = file($name);
        $text = highlight_file($name, true);
        $said[] = [$found, $lines[0] ?? '', str_contains($text, 'SlimRequests')];
    }
    foreach (['w', 'r+', 'x'] as $mode) {
        try {
            fopen($file, $mode);
            $said[] = $mode;
        } catch (ErrorException) {
        }
    }
    echo json_encode([$file, $said], JSON_UNESCAPED_SLASHES);
"#;

#[test]
fn boot_script_in_a_stack_trace_is_asked_for_without_a_warning() {
    let index = SLIM_INDEX
        .replace("require", "require_once")
        .replace("$app->run();", "$app->run(); require __DIR__.'/asks.php';");
    let site = slim()
        .write("public/asks.php", ASKS)
        .write("public/index.php", &index);
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
    surus.wait_for_log(|log| log.contains("script=\"surus://boot/slim.php\""));
    let said = Client::new(&surus.url).get("/").ok().text();
    let shown = r#"["surus://boot/slim.php",[[false,"<?php\n",true],[false,"",false]]]"#;
    assert!(said.contains(shown), "{said}\n{}", surus.log());
}

#[test]
fn script_of_the_application_wins() {
    let serves = "<?php surus_serve(function () { echo 'own'; });";
    let with_script = slim().write("boot.php", serves);
    let script = with_script.www().join("boot.php").display().to_string();
    let args = ["--engine", "rewind", "--script", &script];
    let surus = with_script.serve_with(&args, &[]);
    assert_eq!(Client::new(&surus.url).get("/").ok().text(), "own");
    let with_front = slim().write("public/index.php", serves);
    let surus = with_front.serve_with(&["--engine", "rewind"], &[]);
    assert_eq!(Client::new(&surus.url).get("/").ok().text(), "own");
    assert!(!surus.log().contains("surus://boot"), "{}", surus.log());
}

#[test]
fn application_that_is_known_not_to_boot_is_served_by_classic_with_one_warning() {
    let index = "<?php if (false) { require __DIR__.'/../bootstrap/app.php'; Request::capture(); }
        echo 'classic ', $_GET['q'];";
    let site = Site::new()
        .write("public/index.php", index)
        .write("vendor/autoload.php", "<?php");
    let surus = site.serve_with(&["--engine", "rewind"], &[]);
    assert_eq!(
        Client::new(&surus.url).get("/?q=1").ok().text(),
        "classic 1"
    );
    let log = surus.log();
    assert_eq!(warnings(&log).len(), 1, "{log}");
    let code = "public/index.php goes on with `echo 'classic ', $_GET['q']`";
    assert!(log.contains(code), "{log}");
}

#[test]
fn application_whose_boot_fails_is_served_by_classic_with_one_warning() {
    let unknown = Site::new().write("index.php", "<?php echo 'classic ', $_GET['q'] ?? '';");
    let throws = SLIM_INDEX
        .replace("require", "require_once")
        .replace(
            "$booted",
            "getenv('SURUS_ENGINE') === 'classic' || throw new Error('why'); $booted",
        )
        .replace(" echo ' end';", "");
    for (site, reason) in [
        (unknown, "ended without serving"),
        (slim().write("public/index.php", &throws), "why"),
    ] {
        for engine in ["rewind", "worker"] {
            let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
            let said = Client::new(&surus.url).get("/?q=1").ok().text();
            assert!(
                ["classic 1", "1 1 public"].contains(&said.as_str()),
                "{said}"
            );
            let log = surus.log();
            assert_eq!(warnings(&log).len(), 1, "{log}");
            assert!(log.contains(reason), "{log}");
        }
    }
}

#[test]
fn application_that_classic_serves_instead_is_booted_by_a_reload_once_it_can_be() {
    let index = SLIM_INDEX
        .replace("require", "require_once")
        .replace(
            "$booted",
            "getenv('SURUS_ENGINE') === 'classic' || is_file(__DIR__.'/mended') \
                || throw new Error('why'); $booted",
        )
        .replace("' end'", "' ', getenv('SURUS_ENGINE')");
    let site = slim().write("public/index.php", &index);
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
    let client = Client::new(&surus.url);
    let root = site.www();
    let command = |name: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_surus"));
        let output = command.arg(name).arg(&root).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let is_instead = "rewind (the application cannot be booted, `classic` serves it): PHP";

    assert_eq!(client.get("/?q=a").ok().text(), "a 1 public classic");
    assert!(command("status").starts_with(is_instead));

    command("reload");
    assert_eq!(client.get("/?q=a").ok().text(), "a 1 public classic");
    assert_eq!(
        surus.log().matches("still cannot be booted").count(),
        1,
        "{}",
        surus.log()
    );

    let site = site.write("public/mended", "");
    command("reload");
    assert_eq!(client.get("/?q=a").ok().text(), "a 1 public rewind");
    assert!(command("status").starts_with("rewind: PHP"));
    drop(site);
}

/// As after the start of a machine, when the database is late.
#[test]
fn application_whose_boot_fails_at_the_start_is_booted_soon_without_a_reload() {
    let index = SLIM_INDEX
        .replace("require", "require_once")
        .replace(
            "$booted",
            "getenv('SURUS_ENGINE') === 'classic' || is_file(__DIR__.'/ready') \
                || throw new Error('why'); $booted",
        )
        .replace("' end'", "' ', getenv('SURUS_ENGINE')");
    let site = slim().write("public/index.php", &index);
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
    let client = Client::new(&surus.url);
    assert_eq!(client.get("/?q=a").ok().text(), "a 1 public classic");
    let site = site.write("public/ready", "");
    surus.wait_for_log(|log| log.contains("application booted"));
    assert_eq!(client.get("/?q=a").ok().text(), "a 1 public rewind");
    assert_eq!(warnings(&surus.log()).len(), 1, "{}", surus.log());
    // The engine that serves by now notices changed files.
    let changed = index.replace("getenv('SURUS_ENGINE')", "'changed'");
    let site = site.write("public/index.php", &changed);
    eventually(&surus, "/?q=a", |answer| {
        answer.text() == "a 1 public changed"
    });
    drop(site);
}

/// Surus's script would leave out what the new front controller does.
#[test]
fn application_that_its_boot_script_does_not_fit_any_more_is_not_booted() {
    let site = slim();
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
    let client = Client::new(&surus.url);
    assert_eq!(client.get("/?q=a").ok().text(), "a 1 public end");
    let lock = |version: &str| SLIM_LOCK.replace("4.14.0", version);
    let site = site.write("composer.lock", &lock("3.12.4"));
    let failed = reload(&site.www());
    assert!(!failed.status.success(), "{failed:?}");
    let said = format!("{failed:?}{}", surus.log());
    assert!(said.contains("only Slim 4 lets the boot say"), "{said}");
    assert_eq!(client.get("/?q=a").ok().text(), "a 1 public end");
    let site = site.write("composer.lock", &lock("4.15.0"));
    let output = reload(&site.www());
    assert!(output.status.success(), "{output:?}");
}

/// Each process of `standby` boots for itself, also after the link has been exchanged.
#[test]
fn boot_after_an_exchange_of_the_link_has_one_release() {
    let releases = ["old", "new"].map(|name| {
        let constant = format!("namespace {{ const RELEASE = '{name}'; }}");
        let said = format!("' {name} ', RELEASE");
        let index = SLIM_INDEX.replace("require", "require_once");
        slim()
            .write("vendor/autoload.php", &format!("{SLIM}{constant}"))
            .write("public/index.php", &index.replace("' end'", &said))
    });
    // PHP's user owns the files.
    let stored = releases.each_ref().map(Site::stored);
    let stored = stored[0].each_ref().map(|text| ["-d", text.as_str()]);
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let [current, new] = ["current", "new"].map(|name| place.path().join(name));
    symlink(releases[0].www(), &current).unwrap();
    // Nothing but a reload boots the new release.
    let args = ["--engine", "standby", "--workers", "1"];
    let unchecked = ["-d", "opcache.validate_timestamps=0"];
    let args = [stored.as_flattened(), &args, &unchecked].concat();
    let surus = Surus::spawn(&current, &args, &[]).unwrap_or_else(|log| panic!("{log}"));
    let client = Client::new(&surus.url);
    let said = || client.get("/?q=a").ok().text();
    assert_eq!(said(), "a 1 public old old");
    symlink(releases[1].www(), &new).unwrap();
    std::fs::rename(new, &current).unwrap();
    for _ in 0..4 {
        assert_eq!(said(), "a 1 public old old", "{}", surus.log());
    }
    let output = reload(&current);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(said(), "a 1 public new new", "{}", surus.log());
}

/// Without the rule, `classic` runs these scripts.
const ADMIN_ON_REWIND: &str = "engine.name = 'rewind'
[[route]]
prefix = '/admin/'
engine = 'rewind'
";

#[test]
fn application_with_a_firewall_that_no_boot_reads_is_served_by_classic_with_one_warning() {
    let site = slim()
        .write("public/admin/index.php", "<?php echo 'admin';")
        .write("public/admin/waf.php", "<?php exit('blocked');");
    let firewall = site.www().join("public/admin/waf.php");
    let ini = format!("auto_prepend_file = {}\n", firewall.display());
    let site = site
        .write("public/admin/.user.ini", &ini)
        .write("surus.toml", ADMIN_ON_REWIND);
    let surus = site.serve_with(&["--workers", "1"], &[]);
    let client = Client::new(&surus.url);
    assert_eq!(client.get("/?q=a").ok().text(), "a 1 public end");
    assert_eq!(client.get("/admin/").ok().text(), "blocked");
    let log = surus.log();
    assert_eq!(warnings(&log).len(), 1, "{log}");
    let reason = "public/admin/.user.ini sets auto_prepend_file";
    assert!(log.contains(reason), "{log}");
    let command = |name: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_surus"));
        let said = command.arg(name).arg(site.www()).output();
        String::from_utf8(said.unwrap().stdout).unwrap()
    };
    let said = command("check");
    assert!(said.contains("and `classic` will serve it: "), "{said}");
    assert!(said.contains(reason), "{said}");
    assert!(!said.contains("✗ engine"), "{said}");
}

#[test]
fn changed_configuration_is_rejected_if_the_application_that_served_does_not_boot_any_more() {
    let site = slim().write("surus.toml", "engine.name = 'rewind'\nengine.workers = 1\n");
    let surus = site.serve_with(&[], &[]);
    let client = Client::new(&surus.url);
    assert_eq!(client.get("/?q=a").ok().text(), "a 1 public end");
    let site = site
        .write("public/admin/index.php", "<?php echo 'admin';")
        .write("public/admin/.user.ini", "auto_prepend_file = waf.php\n")
        .write("surus.toml", ADMIN_ON_REWIND);
    surus.signal("HUP");
    let kept = "nothing was reloaded, and the old configuration stays in use";
    surus.wait_for_log(|log| log.contains(kept) && log.contains("cannot boot the application"));
    assert_eq!(client.get("/?q=a").ok().text(), "a 1 public end");
    std::fs::remove_file(site.www().join("public/admin/.user.ini")).unwrap();
    surus.signal("HUP");
    surus.wait_for_log(|log| log.contains("reloaded with the changed configuration"));
    assert_eq!(client.get("/?q=a").ok().text(), "a 1 public end");
}
