//! Tests that a page that may warm up the boot leaves the boot's temporary files as they are.

use super::client::{Client, PROXY};
use super::site::Site;

/// `/write` overwrites what `/read` shows. The name of the runtime lets Surus learn pages.
const FILES: &str = "<?php
$files = [tmpfile(), fopen('php://temp/maxmemory:0', 'w+')];
foreach ($files as $file) {
    fwrite($file, 'boot ');
}
surus_save_boot();
surus_serve(static function () use ($files) {
    if (isset($_SERVER['SURUS_WARMUP'])) {
        register_shutdown_function(static fn () => surus_restore_boot());
    }
    foreach ($files as $file) {
        fseek($file, 0);
        if ('/write' === $_SERVER['REQUEST_URI']) {
            fwrite($file, 'page ');
        }
        echo stream_get_contents($file, -1, 0);
    }
});";

#[test]
fn trial_of_a_page_does_not_write_to_temporary_files_of_the_boot() {
    let site = Site::new().write("index.php", FILES);
    let state = tempfile::tempdir().unwrap();
    let learn = [
        ("STATE_DIRECTORY", state.path().to_str().unwrap()),
        ("SURUS_ENGINE_WARMUP", "learn"),
        ("SURUS_ENV_APP_RUNTIME", r"Surus\Symfony\Runtime"),
        PROXY,
    ];
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &learn);
    let client = Client::new(&surus.url);
    for number in 0..210 {
        assert_eq!(client.get_from("/write", number).ok().text(), "page page ");
    }
    surus.wait_for_log(|log| {
        log.contains("the page /write, for which clients often ask, is left out")
            && log.contains("something in a temporary file that the boot holds open")
    });
    assert_eq!(client.get("/read").ok().text(), "boot boot ");
}
