//! Tests that `surus_restore_boot()` restores what warm-ups change, whatever values the boot has.

use std::net::TcpListener;

use crate::booted::try_booted;
use crate::site::Site;

fn warmed_up(engine: &str, script: &str, warmup: &str) -> Site {
    let warmup = ("SURUS_ENGINE_WARMUP", warmup);
    try_booted(engine, script, &["--workers", "1"], &[warmup])
        .unwrap_or_else(|log| panic!("{engine}: {log}"))
}

/// References keep what they refer to in every array that has them.
#[test]
fn boot_script_restores_values_behind_references_in_arrays() {
    let script = "
        #[AllowDynamicProperties] final class Box { public static $static; }
        function refer(&$to): array { return [0, ['deep' => &$to]]; }
        $one = 'boot'; $global = refer($one); $other = refer($one); unset($one);
        $two = 'boot'; $box = new Box(); $box->dynamic = refer($two); $box->other = refer($two);
        $three = 'boot'; Box::$static = refer($three); $box->static = refer($three);
        $four = 'boot'; $inside = new ArrayObject(refer($four)); $box->four = refer($four);
        unset($two, $three, $four);
        surus_save_boot();
        surus_serve(function () use ($box, $inside) {
            if (isset($_GET['write'])) {
                $GLOBALS['global'][1]['deep'] = $box->dynamic[1]['deep'] = 'visitor';
                Box::$static[1]['deep'] = $inside[1]['deep'] = 'visitor';
            }
            register_shutdown_function(fn () => surus_restore_boot());
            echo $GLOBALS['other'][1]['deep'], ' ', $box->other[1]['deep'], ' ',
                $box->static[1]['deep'], ' ', $box->four[1]['deep'];
        });";
    let warmup = "/?write=1";
    for engine in ["rewind", "fork", "standby"] {
        let site = warmed_up(engine, script, warmup);
        let seen = site.get("/hello.php").body;
        assert_eq!(
            seen,
            "boot boot boot boot",
            "{engine}: {}",
            site.surus.log()
        );
    }
}

/// The check of open connections comes after the collection.
#[test]
fn boot_warms_up_although_an_unreachable_cycle_holds_a_connection() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let script = format!(
        "
        $cycle = new stdClass();
        $cycle->self = $cycle;
        $cycle->connection = stream_socket_client('tcp://{address}');
        unset($cycle);
        surus_serve(function () {{
            static $boot = 'cold';
            if (isset($_GET['warm'])) {{
                $boot = 'warm';
            }}
            echo isset($_GET['warm']) ? 'once' : $boot;
        }});"
    );
    for engine in ["rewind", "fork", "standby"] {
        let site = warmed_up(engine, &script, "/?warm=1");
        let seen = site.get("/hello.php").body;
        assert_eq!(seen, "warm", "{engine}: {}", site.surus.log());
    }
}

/// PHP collects them when no request is under way.
#[test]
fn destructors_of_unreachable_cycles_may_use_output_buffers() {
    let script = "
        final class Printing {
            private $self;
            function __construct() { $this->self = $this; }
            function __destruct() {
                ob_start();
                highlight_string('<?php');
                ob_end_clean();
                echo \"printed by a destructor\\n\";
            }
        }
        new Printing();
        surus_serve(function () { echo 'served'; });";
    for engine in ["rewind", "fork", "standby", "worker"] {
        let site = warmed_up(engine, script, "/?warm=1");
        assert_eq!(site.get("/hello.php").body, "served", "{engine}");
        site.surus
            .wait_for_log(|log| log.contains("printed by a destructor"));
    }
}

/// `restore_error_handler()` and `restore_exception_handler()` find those of the boot below them.
#[test]
fn boot_script_restores_earlier_handlers() {
    let script = "
        function one() { return false; } function two() { return false; }
        set_error_handler('one', E_NOTICE); set_error_handler('two');
        set_exception_handler('one'); set_exception_handler('two');
        surus_save_boot();
        surus_serve(function () {
            register_shutdown_function(fn () => surus_restore_boot());
            if (isset($_GET['adds'])) {
                set_error_handler(fn () => false, E_WARNING); set_exception_handler('one');
            } elseif (isset($_GET['takes'])) {
                restore_error_handler(); restore_error_handler();
                restore_exception_handler(); restore_exception_handler();
            } else {
                foreach (['error', 'exception'] as $kind) {
                    [$set, $restore] = [\"set_{$kind}_handler\", \"restore_{$kind}_handler\"];
                    while (($handler = $set(null)) && is_string($handler)) {
                        $restore(); $restore();
                        echo \"$kind $handler, \";
                    }
                }
            }
        });";
    let warmup = "/?adds=1,/?takes=1";
    for engine in ["rewind", "fork", "standby"] {
        let site = warmed_up(engine, script, warmup);
        let seen = site.get("/hello.php").body;
        let expected = "error two, error one, exception two, exception one, ";
        assert_eq!(seen, expected, "{engine}: {}", site.surus.log());
    }
}

/// 2^60 paths lead to the innermost array, and 50,000 arrays are around the reference.
#[test]
fn shared_and_deep_arrays_of_the_boot_are_saved_once() {
    let script = "
        final class Box { public static $shared = []; public static $deep; }
        for ($i = 0; $i < 60; $i++) { Box::$shared = [Box::$shared, Box::$shared]; }
        $value = 'boot'; $deep = [&$value];
        for ($i = 0; $i < 50000; $i++) { $deep = [$deep]; }
        Box::$deep = $deep;
        unset($deep);
        $loop = ['loop' => null]; $loop['loop'] = &$loop;
        surus_save_boot();
        surus_serve(function () use (&$value) {
            if (isset($_GET['write'])) { $value = 'visitor'; }
            register_shutdown_function(fn () => surus_restore_boot());
            echo $value;
        });";
    let warmup = "/?write=1";
    let site = warmed_up("rewind", script, warmup);
    let seen = site.get("/hello.php").body;
    assert_eq!(seen, "boot", "{}", site.surus.log());
}

/// PHP 8.4: such an object shows the properties of another.
#[test]
fn object_that_a_warm_up_makes_lazy_does_not_end_the_boot() {
    let script = "
        #[AllowDynamicProperties] class Service { public $own = 'boot'; }
        $service = new Service();
        $service->dynamic = 1;
        surus_save_boot();
        surus_serve(function () use ($service) {
            if (PHP_VERSION_ID >= 80400 && isset($_GET['reset'])) {
                $class = new ReflectionClass('Service');
                $class->resetAsLazyProxy($service, fn () => new Service());
            }
            register_shutdown_function(fn () => surus_restore_boot());
            echo $service->own;
        });";
    let warmup = "/?reset=1";
    let site = warmed_up("rewind", script, warmup);
    let seen = site.get("/hello.php").body;
    assert_eq!(seen, "boot", "{}", site.surus.log());
}

/// An uncaught exception there is no unclean shutdown. It skips the shutdown functions that follow,
/// and so does exit(). Code that has restored the boot may change it again, and end there.
#[test]
fn boot_that_its_script_does_not_restore_after_the_last_warm_up_is_rejected() {
    let unrestored =
        "ended before the boot script had restored the boot; call surus_restore_boot()";
    let warmup = [("SURUS_ENGINE_WARMUP", "/?warm=1")];
    for functions in [
        "fn () => surus_restore_boot() && no_such_function()",
        "fn () => throw new Exception(), surus_restore_boot(...)",
        "fn () => exit(), surus_restore_boot(...)",
        "fn () => surus_restore_boot() && exit()",
        "",
    ] {
        let script = format!(
            "surus_save_boot();
            surus_serve(function () {{
                array_map(register_shutdown_function(...), [{functions}]);
                echo 'served';
            }});"
        );
        for engine in ["rewind", "fork", "standby"] {
            let Err(log) = try_booted(engine, &script, &["--workers", "1"], &warmup) else {
                panic!("{engine} has started: {functions}");
            };
            let words = format!("the warm-up /?warm=1 {unrestored}");
            assert!(log.contains(&words), "{engine}: {functions}\n{log}");
        }
    }
}

/// The script restores the boot after the last one only, which is left out.
#[test]
fn boot_whose_last_warm_up_is_left_out_is_restored() {
    let script = "
        final class Kept { public static $by = 'boot'; }
        surus_save_boot();
        surus_serve(function () {
            [$number, $of] = explode('/', $_SERVER['SURUS_WARMUP'] ?? '0/1');
            if ((int) $number === (int) $of) {
                register_shutdown_function(fn () => surus_restore_boot());
            }
            if (isset($_GET['keeps'])) {
                Kept::$by = 'warm-up';
            } elseif (isset($_GET['changes'])) {
                defined('CHANGED') ? http_response_code(500) : define('CHANGED', 1);
            }
            echo Kept::$by;
        });";
    for engine in ["rewind", "fork", "standby"] {
        let site = warmed_up(engine, script, "/?keeps=1,/?changes=1");
        let log = site.surus.log();
        let left_out = "the warm-up /?changes=1 is left out";
        assert!(log.contains(left_out), "{engine}: {log}");
        assert_eq!(site.get("/").body, "boot", "{engine}: {log}");
    }
}

/// By that, a boot script knows that nothing of it is kept.
#[test]
fn trial_of_a_warm_up_has_the_number_0() {
    let script = "surus_serve(function () {
        if ($number = $_SERVER['SURUS_WARMUP'] ?? null) {
            file_put_contents(__DIR__.'/writable/asked', \"$number \", FILE_APPEND);
        }
        echo 'served';
    });";
    for engine in ["rewind", "fork"] {
        let site = warmed_up(engine, script, "/?one=1,/?two=2");
        let asked = std::fs::read_to_string(site.dir.path().join("writable/asked")).unwrap();
        assert!(asked.starts_with("0/0 "), "{engine}: {asked}");
        assert_eq!(asked.replace("0/0 ", ""), "1/2 2/2 ", "{engine}: {asked}");
    }
}
