//! Tests PHP files that appear and change while the application runs.

use std::time::{Duration, Instant};

engine_contract! {
    fn changed_file_is_recompiled_and_cached(engine) {
        // By default, OPcache checks every two seconds.
        let engine = engine
            .ini("opcache.enable_cli", "1")
            .ini("opcache.revalidate_freq", "1");
        let asked = engine.file(
            "$file = __DIR__.'/changing.php'; echo include $file, opcache_is_script_cached($file) \
                ? ', kept' : '';",
        );
        for content in ["one", "two"] {
            engine.write("changing.php", &format!("<?php return '{content}';"));
            let (began, expected) = (Instant::now(), format!("{content}, kept"));
            loop {
                let answer = engine.answer(engine.ask(&asked)).await.unwrap().text();
                if answer == expected {
                    break;
                }
                assert!(began.elapsed() < Duration::from_secs(30), "{answer}, not {expected}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
