//! Tests that `surus_restore_boot()` restores what warm-ups change, whatever values the boot has.

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
