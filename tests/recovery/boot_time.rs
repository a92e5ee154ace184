//! Tests that constants and variables with a time of the boot are named.

use crate::booted::try_booted;

#[test]
fn time_and_microtime_of_the_boot_are_reported() {
    let boot = "usleep(20000); define('NOW', time()); define('ASSETS', 'v='.time().'.css');
        define('RANGE', ['from' => microtime(true)]);
        define('LATER', time() + 1000); define('EARLIER', time() - 1000); const ONE = 1;
        class Clock { static $at; static function tick() { static $since;
            self::$at = microtime(true); $since = time(); } }
        Clock::tick(); $began = microtime(true);
        surus_serve(function () { echo 'fine'; });";
    for engine in ["rewind", "fork", "standby", "worker"] {
        let site = try_booted(engine, boot, &["--workers", "2"], &[])
            .unwrap_or_else(|log| panic!("{log}"));
        assert_eq!(site.get("/").body, "fine", "{engine}");
        for kept in [
            "the constant NOW keeps",
            "the constant ASSETS keeps",
            "the constant RANGE['from'] keeps",
            "the static property Clock::$at keeps",
            "the static variable tick(): $since keeps",
            "the variable $began keeps",
        ] {
            site.surus.wait_for_log(|log| log.contains(kept));
        }
        let log = site.surus.log();
        let count = log.matches("the time of the boot").count();
        assert_eq!(count, 6, "{engine}\n{log}");
    }
}

/// What Surus's boot scripts renew, and times within objects, such as that of a container's build.
#[test]
fn renewed_times_and_those_of_objects_are_not_reported() {
    let boot = "usleep(20000); define('LARAVEL_START', microtime(true));
        define('WP_START_TIMESTAMP', microtime(true)); $timestart = microtime(true);
        $container = (object) ['build' => ['time' => microtime(true)]];
        surus_serve(function () { echo 'fine'; });";
    let package = r"eval('namespace Surus\Laravel; class Runner {}');";
    for (before, count) in [(package, 0), ("", 3)] {
        let boot = format!("{before} {boot}");
        let site = try_booted("rewind", &boot, &["--workers", "1"], &[])
            .unwrap_or_else(|log| panic!("{log}"));
        assert_eq!(site.get("/").body, "fine");
        let log = site.surus.log();
        assert_eq!(log.matches("the time of the boot").count(), count, "{log}");
    }
}
