//! Tests that `max_execution_time` counts the CPU time of each request separately, also if PHP's
//! timer keeps running between requests.

use crate::booted::try_booted;
use crate::site::Site;

/// Computes for the given CPU time, in microseconds, and prints for how long it could.
const BOOT: &str = "surus_serve(function () {
    $time = function () {
        $u = getrusage();
        return ($u['ru_utime.tv_sec'] + $u['ru_stime.tv_sec']) * 1e6
            + $u['ru_utime.tv_usec'] + $u['ru_stime.tv_usec'];
    };
    $began = $time();
    ini_set('display_errors', 0);
    register_shutdown_function(function () use ($began, $time) { echo (int) ($time() - $began); });
    if (isset($_GET['limit'])) set_time_limit((int) $_GET['limit']);
    while ($time() - $began < $_GET['for']) {}
    if (isset($_GET['then'])) { set_time_limit((int) $_GET['then']); while (true) {} }
});";

fn site(engine: &str) -> Site {
    let args = ["--workers", "1", "-d", "max_execution_time=1"];
    try_booted(engine, BOOT, &args, &[]).unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
}

/// The CPU time that it had, in seconds; the kernel's timer is accurate to about a third if many
/// other threads want the CPU. If it `fails`, it was ended for taking more.
fn had(site: &Site, query: &str, fails: bool) -> f64 {
    let answer = site.get(&format!("/?{query}"));
    assert_eq!(answer.status, if fails { 500 } else { 200 }, "{query}");
    answer.body.parse::<f64>().unwrap() / 1e6
}

#[test]
fn max_execution_time_counts_per_request() {
    for engine in ["rewind", "worker"] {
        let site = site(engine);
        // More in total than one request may take, so that the first one's timer expires during
        // another.
        for _ in 0..6 {
            had(&site, "for=300000", false);
        }
        for round in 0..3 {
            let seconds = had(&site, "for=9000000", true);
            assert!(
                (0.6..2.0).contains(&seconds),
                "{engine}, {round}: {seconds}"
            );
            (0..2).for_each(|_| _ = had(&site, "for=400000", false));
        }
    }
}

#[test]
fn set_time_limit_changes_the_limit_of_one_request() {
    let site = site("rewind");
    had(&site, "for=700000", false);
    let seconds = had(&site, "for=9000000&limit=2", true);
    assert!((1.4..3.0).contains(&seconds), "{seconds}");
    had(&site, "for=1500000&limit=0", false);
    // Its limit is its own: the next request has the configured one.
    let seconds = had(&site, "for=9000000", true);
    assert!((0.6..2.0).contains(&seconds), "{seconds}");
    // The same time again, from there on.
    let seconds = had(&site, "for=600000&then=1", true);
    assert!((1.1..2.6).contains(&seconds), "{seconds}");
    had(&site, "for=800000", false);
    had(&site, "for=800000", false);
}
