//! Tests warm-ups: which are left out, and what their trials leave behind.

use std::time::{Duration, Instant};

use crate::booted::try_booted;
use crate::site::kill;

#[test]
fn warm_up_that_changes_responses_is_reported_and_skipped() {
    // An include_once responds once.
    let boot = "$warm = 0;
        surus_serve(function () use (&$warm) {
            if ($_GET['page'] ?? '' === 'good') { $warm++; echo 'warm-ups: ', $warm, ' ', \
            bin2hex(random_bytes(8)); }
            elseif (isset($_GET['fails'])) { static $n = 0; if ($n++) no_such_function(); echo \
            'fine'; }
            else require_once __DIR__.'/hello.php';
        });";
    for engine in ["rewind", "fork"] {
        let warmup = ("SURUS_ENGINE_WARMUP", "/?page=good,/,/?fails=1");
        let site = try_booted(engine, boot, &["--workers", "2"], &[warmup])
            .unwrap_or_else(|log| panic!("{log}"));
        for _ in 0..4 {
            assert_eq!(site.get("/").body, "hello", "{engine}");
            assert_eq!(site.get("/?fails=1").body, "fine", "{engine}");
            let good = site.get("/?page=good").body;
            assert!(good.starts_with("warm-ups: 2 "), "{engine}: {good}");
        }
        let log = site.surus.log();
        let named = |text: &str| log.matches(text).count();
        let first = "the warm-up / is left out: asked again after it, the application answers with \
                     status 200 and 0 bytes instead of 200 and 5";
        assert_eq!(named(first), 1, "{engine}\n{log}");
        assert_eq!(named("the warm-up /?fails=1 is left out"), 1, "{log}");
        assert_eq!(named("is left out"), 2, "{engine}\n{log}");
        assert!(log.contains("no_such_function"), "{engine}\n{log}");
    }
}

#[test]
fn warm_up_after_which_the_page_is_another_is_skipped() {
    let boot = "surus_serve(function () {
            static $count = [];
            $page = $_GET['page'] ?? '';
            $n = $count[$page] = ($count[$page] ?? 0) + 1;
            if ($page === 'long') { echo bin2hex(random_bytes(8)); if ($n > 1) \
            echo str_repeat('error ', 9); }
            elseif ($page === 'type') { if ($n > 1) header('Content-Type: text/plain'); \
            echo bin2hex(random_bytes(8)); }
            elseif ($page === 'user') { echo 'you are ', $n > 1 ? 'Alice' : 'guest'; }
            elseif ($page === 'same') { echo 'page'; }
            elseif ($page === 'token') { echo bin2hex(random_bytes(8)), $n; }
            elseif ($page === 'time') { echo hrtime(true), ' ', $n; }
            else { echo json_encode($count); }
        });";
    for engine in ["rewind", "worker"] {
        let warmup = "/?page=long,/?page=type,/?page=user,/?page=same,/?page=token,/?page=time";
        let warmup = [("SURUS_ENGINE_WARMUP", warmup)];
        let site = try_booted(engine, boot, &["--workers", "1"], &warmup)
            .unwrap_or_else(|log| panic!("{log}"));
        let expected = r#"{"same":1,"token":1,"time":1,"":1}"#;
        assert_eq!(
            site.get("/").body,
            expected,
            "{engine}\n{}",
            site.surus.log()
        );
        for page in ["long", "type", "user"] {
            let named = format!("the warm-up /?page={page} is left out");
            site.surus
                .wait_for_log(|log| log.matches(&named).count() == 1);
        }
        let same = "with status 200 and 13 bytes instead of 200 and 13, and with other contents";
        site.surus.wait_for_log(|log| log.contains(same));
    }
}

/// Drupal 7 defines REQUEST_TIME in a file that its requests include. The boot may keep its own
/// time in the same second, and what each request sets is not kept.
#[test]
fn warm_up_that_keeps_its_request_time_is_named_and_skipped() {
    let boot = "final class Clock { static $now; static $last; }
        function now() { static $t; return $t ??= $_SERVER['REQUEST_TIME']; }
        define('BOOT', $_SERVER['REQUEST_TIME']);
        surus_serve(function () {
            static $own;
            $time = $_SERVER['REQUEST_TIME'];
            Clock::$last = $time;
            echo match ($_GET['page'] ?? '') {
                'function' => now(),
                'static' => Clock::$now ??= $time,
                'handler' => $own ??= $time,
                'constant' => defined('NOW') ? NOW : [define('NOW', $time), NOW][1],
                default => $time,
            } === $time ? 'its own' : 'of another';
        });";
    let pages = [
        ("function", "the static variable now(): $t keeps"),
        ("static", "the static property Clock::$now keeps"),
        ("handler", "the handler {$own} keeps"),
        ("constant", "the constant NOW keeps"),
    ];
    let warmup = "/?page=function,/?page=static,/?page=handler,/?page=constant,/?page=fine";
    for engine in ["rewind", "worker"] {
        let warmup = [("SURUS_ENGINE_WARMUP", warmup)];
        let site = try_booted(engine, boot, &["--workers", "1"], &warmup)
            .unwrap_or_else(|log| panic!("{log}"));
        // The boot's second is over.
        std::thread::sleep(Duration::from_millis(1100));
        for (page, kept) in pages {
            let named = format!("the warm-up /?page={page} is left out: {kept}");
            site.surus.wait_for_log(|log| log.contains(&named));
            assert_eq!(
                site.get(&format!("/?page={page}")).body,
                "its own",
                "{engine} {page}"
            );
        }
        assert_eq!(site.get("/?page=fine").body, "its own", "{engine}");
        let log = site.surus.log();
        assert_eq!(log.matches("is left out").count(), 4, "{engine}\n{log}");
    }
}

#[test]
fn warm_up_that_changes_responses_is_skipped_where_each_worker_boots() {
    let boot = "surus_serve(function () { require_once __DIR__.'/hello.php'; });";
    let open = format!("$c = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0); {boot}");
    for engine in ["standby", "worker"] {
        let warmup = [("SURUS_ENGINE_WARMUP", "/")];
        let named = |log: &str| log.matches("the warm-up / is left out").count();
        let site = try_booted(engine, boot, &["--workers", "2"], &warmup)
            .unwrap_or_else(|log| panic!("{log}"));
        assert_eq!(site.get("/").body, "hello", "{engine}");
        site.surus.wait_for_log(|log| named(log) == 1);
        if engine == "standby" {
            for _ in 0..4 {
                assert_eq!(site.get("/").body, "hello");
            }
        }
        assert_eq!(named(&site.surus.log()), 1, "{engine}");
        // A fork would use the boot's connections, too.
        let site = try_booted(engine, &open, &["--workers", "1"], &warmup)
            .unwrap_or_else(|log| panic!("{log}"));
        assert_eq!(site.get("/").body, "", "{engine}");
        site.surus
            .wait_for_log(|log| log.contains("the warm-up / is used without a trial"));
        let log = site.surus.log();
        assert_eq!(named(&log), 0, "{engine}");
        let untried = "the warm-up / is used without a trial, because the boot has left 2 \
                       connections, pipes or files open;";
        assert_eq!(log.matches(untried).count(), 1, "{engine}: {log}");
    }
}

/// A request that could write there would have later workers use a warm-up that was left out.
#[test]
fn results_of_warm_ups_are_not_mapped_by_workers_that_serve() {
    let boot = "$shared = static fn () => count(preg_grep('~ rw-s .* /dev/zero~', \
            file('/proc/self/maps')));
        $in_the_boot = $shared();
        surus_serve(function () use ($shared, $in_the_boot) {
            if (isset($_GET['unmapped'])) { echo $in_the_boot - $shared(); }
            else { require_once __DIR__.'/hello.php'; }
        });";
    for engine in ["standby", "worker"] {
        let warmup = [("SURUS_ENGINE_WARMUP", "/")];
        let site = try_booted(engine, boot, &["--workers", "1"], &warmup)
            .unwrap_or_else(|log| panic!("{log}"));
        assert_eq!(site.get("/?unmapped=1").body, "1", "{engine}");
        assert_eq!(site.get("/").body, "hello", "{engine}");
        // A worker that boots later finds the result.
        if engine == "worker" {
            kill(site.workers()[0], "KILL");
        }
        assert_eq!(site.get("/").body, "hello", "{engine}");
        let log = site.surus.log();
        let left_out = log.matches("the warm-up / is left out").count();
        assert_eq!(left_out, 1, "{engine}: {log}");
    }
}

/// Such a warm-up loads what redirects or rejects, and not the page.
#[test]
fn configured_warm_up_that_is_redirected_or_rejected_is_named_once() {
    let boot = "surus_serve(function () {
            if (isset($_GET['moved'])) { header('Location: https://app.test/', true, 301); }
            elseif ($_SERVER['HTTP_HOST'] !== 'app.test') { http_response_code(400); echo 'host'; }
            else { echo 'page'; }
        });";
    let open = format!("$c = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0); {boot}");
    for (engine, boot) in [("rewind", boot), ("worker", boot), ("worker", &*open)] {
        let warmup = [("SURUS_ENGINE_WARMUP", "/,/?moved=1,http://app.test/good")];
        let site = try_booted(engine, boot, &["--workers", "2"], &warmup)
            .unwrap_or_else(|log| panic!("{log}"));
        for named in [
            "the warm-up / has status 400 at localhost, so it loads no more",
            "the warm-up /?moved=1 has status 301 at localhost, so it loads no more",
        ] {
            site.surus.wait_for_log(|log| log.contains(named));
            let log = site.surus.log();
            assert_eq!(log.matches(named).count(), 1, "{engine}: {log}");
            assert!(!log.contains("the warm-up /good has status"), "{log}");
        }
    }
}

#[test]
fn warm_up_without_an_end_leaves_no_process() {
    for engine in ["standby", "worker", "rewind"] {
        let place = tempfile::tempdir().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(place.path(), mode).unwrap();
        let boot = format!(
            "surus_serve(function () {{ touch('{}/'.getmypid()); for (;;) usleep(10000); }});",
            place.path().display()
        );
        let mut began: Vec<String> = Vec::new();
        // On a busy machine, the warm-up may not have begun by then.
        for limit in ["2s", "8s", "25s"] {
            let limits = [
                ("SURUS_ENGINE_WARMUP", "/"),
                ("SURUS_ENGINE_BOOT_TIMEOUT", limit),
            ];
            let log = try_booted(engine, &boot, &["--workers", "1"], &limits);
            assert!(log.is_err(), "{engine}");
            let files = std::fs::read_dir(place.path()).unwrap();
            began.extend(files.map(|entry| entry.unwrap().file_name().into_string().unwrap()));
            if !began.is_empty() {
                break;
            }
        }
        assert!(!began.is_empty(), "{engine}");
        for pid in began {
            let process = std::path::PathBuf::from(format!("/proc/{pid}"));
            let until = Instant::now() + Duration::from_secs(60);
            while process.exists() {
                assert!(Instant::now() < until, "{engine}: process {pid} stays");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

#[test]
fn children_of_a_boot_stay_the_applications_after_warm_ups() {
    let boot = "$p = proc_open(['true'], [], $pipes); usleep(200000);
        surus_serve(function () use (&$p) {
            if (str_contains($_SERVER['REQUEST_URI'], 'warm')) { return; }
            echo $p ? proc_close($p) : 'closed'; $p = null; });";
    let site = try_booted(
        "worker",
        boot,
        &["--workers", "1"],
        &[("SURUS_ENGINE_WARMUP", "/warm")],
    )
    .unwrap_or_else(|log| panic!("{log}"));
    assert_eq!(site.get("/").body, "0");
    let untried = "used without a trial, because the boot has left child processes;";
    site.surus.wait_for_log(|log| log.contains(untried));
}

#[test]
fn worker_is_ready_after_its_warm_ups() {
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(
        place.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let boot = format!(
        "surus_serve(function () {{ fastcgi_finish_request(); usleep(300000); \
            touch('{}/'.getmypid()); }});",
        place.path().display()
    );
    for engine in ["worker", "standby"] {
        let warmup = [("SURUS_ENGINE_WARMUP", "/hello.php")];
        let site = try_booted(engine, &boot, &["--workers", "2"], &warmup);
        let _site = site.unwrap_or_else(|log| panic!("{log}"));
        let warm = std::fs::read_dir(place.path()).unwrap().count();
        assert!(warm >= 2, "{engine}: {warm} of 2");
        for file in std::fs::read_dir(place.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
}
