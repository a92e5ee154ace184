//! Tests a script that writes over what idle workers read from shared memory, without a pause.

use std::time::Instant;

use crate::shared_memory::{ENGINES, SOON, answers_within, ready, site};
use crate::site::Site;

/// Runs in the first worker only; others keep a request until it is there.
const OVERWRITES: &str = "if (own_line() !== line(0)) { usleep(100000); exit('other'); } \
    ini_set('max_execution_time', 0); touch($_GET['began']); \
    $header = memory('surus-rings')[0] + 64; \
    while (!file_exists($_GET['end'])) { \
    for ($i = 0; $i < 1000; $i++) poke($header, str_repeat(\"\\1\\0\\0\\0\", 16)); \
    clearstatcache(); } echo 'done';";

#[test]
fn idle_line_of_the_rings_overwritten_without_a_pause_costs_no_worker() {
    for engine in ENGINES {
        let site = site(engine, &[("lie.php", OVERWRITES)], &[]);
        let end = site.dir.path().join("writable/end");
        let lie = in_first_worker(&site, &format!("/lie.php?end={}", end.display()));
        let workers = site.workers();
        for n in 0..6 {
            let began = Instant::now();
            answers_within(&site, SOON, engine);
            assert!(ready(&site), "{engine}: {:?}", began.elapsed());
            // On `fork`, each request has its own process, and `rewind` exchanges workers that
            // share the regular expressions of the script.
            if !["fork", "rewind"].contains(&engine) {
                assert_eq!(
                    site.workers(),
                    workers,
                    "{engine} {n}: {}",
                    site.surus.log()
                );
            }
        }
        std::fs::write(end, "").unwrap();
        assert_eq!(lie.join().unwrap().unwrap().body, "done", "{engine}");
    }
}

/// Begins a request that only the first worker keeps.
fn in_first_worker(
    site: &Site,
    path: &str,
) -> std::thread::JoinHandle<std::io::Result<crate::site::Answer>> {
    let began = Instant::now();
    loop {
        let others: Vec<_> = (0..3).map(|_| site.begin("/nap.php?ms=100")).collect();
        let begun = site.try_begun(path);
        others.into_iter().for_each(|it| drop(it.join()));
        if let Ok(begun) = begun {
            return begun;
        }
        assert!(
            began.elapsed() < SOON * 8,
            "the first worker gets no request"
        );
    }
}
