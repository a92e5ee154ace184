//! Tests that a page that fails for a while warms up a later boot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::learned::{LEARNED, status, visit};
use super::site::Site;
use crate::client::PROXY;
use crate::common::Surus;

/// An application that answers warm-ups and comparisons with the status in the file `warm-ups` or
/// `comparisons`, if there is one, and all other requests with 200.
const LIMITED: &str = "<?php
surus_save_boot();
surus_serve(static function () {
    if (isset($_SERVER['SURUS_WARMUP'])) {
        register_shutdown_function(static fn () => surus_restore_boot());
        $file = 'warm-ups';
    } else {
        $file = '192.0.2.1' === $_SERVER['REMOTE_ADDR'] ? 'comparisons' : 'visitors';
    }
    $status = @file_get_contents(sys_get_temp_dir().'/'.$file);
    if ($status && '/page' === $_SERVER['REQUEST_URI']) {
        http_response_code((int) $status);
    }
    echo $_SERVER['REQUEST_URI'], ' ', $status;
});";

const FAILS: &str = "a learned page fails for now and is asked for again later";

struct Server {
    surus: Surus,
    state: PathBuf,
}

fn serve(site: &Site, state: &Path) -> Server {
    let learn = [
        ("STATE_DIRECTORY", state.to_str().unwrap()),
        ("SURUS_ENGINE_WARMUP", "learn"),
        ("SURUS_ENV_APP_RUNTIME", r"Surus\Symfony\Runtime"),
        PROXY,
    ];
    Server {
        surus: site.serve_with(&["--engine", "rewind", "--workers", "1"], &learn),
        state: state.to_owned(),
    }
}

impl Server {
    /// The file of learned pages for the next start.
    fn stored(&self) -> String {
        let files = fs::read_dir(self.state.join("pages")).unwrap();
        let texts = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        texts.collect()
    }
}

fn fail(site: &Site, requests: &str, status: &str) {
    fs::write(site.tmp().join(requests), status).unwrap();
}

fn recover(site: &Site, requests: &str) {
    fs::remove_file(site.tmp().join(requests)).unwrap();
}

#[test]
fn page_that_is_limited_in_the_boot_is_tried_again_by_a_reload() {
    for status in ["429", "503"] {
        let site = Site::new().write("index.php", LIMITED);
        let state = tempfile::tempdir().unwrap();
        let server = serve(&site, state.path());
        fail(&site, "warm-ups", status);
        visit(&server.surus, &["/page"], 210);
        server.surus.wait_for_log(|log| log.contains(FAILS));
        let said = format!("does not warm up this boot, because it has status {status} for now");
        server.surus.wait_for_log(|log| log.contains(&said));
        let shown = self::status(&site);
        let line = "\nnot warmed up by http://localhost/page: it answers with 429 or 5xx for now \
                    in the boot; tried 1 of 5 times\n";
        assert!(shown.contains(line), "{status}: {shown}");
        recover(&site, "warm-ups");
        let mut reload = Command::new(env!("CARGO_BIN_EXE_surus"));
        let output = reload.arg("reload").arg(site.www()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        server.surus.wait_for_log(|log| log.contains(LEARNED));
        let shown = self::status(&site);
        let used = "\nwarmed up by http://localhost/page\n";
        assert!(shown.contains(used), "{status}: {shown}");
        let log = server.surus.log();
        assert!(!log.contains("left out"), "{status}: {log}");
    }
}

#[test]
fn page_that_fails_for_now_is_tried_by_the_next_start() {
    for requests in ["warm-ups", "comparisons"] {
        let site = Site::new().write("index.php", LIMITED);
        let state = tempfile::tempdir().unwrap();
        let server = serve(&site, state.path());
        fail(&site, requests, "503");
        visit(&server.surus, &["/page", "/other"], 210);
        server.surus.wait_for_log(|log| log.contains(FAILS));
        // The other page is good.
        server.surus.wait_for_log(|log| log.contains(LEARNED));
        let shown = status(&site);
        let used = "\nwarmed up by http://localhost/other\n";
        assert!(shown.contains(used), "{requests}: {shown}");
        let line = "\nnot warmed up by http://localhost/page: ";
        assert!(shown.contains(line), "{requests}: {shown}");
        let stored = server.stored();
        for page in ["http://localhost/page\n", "http://localhost/other\n"] {
            assert!(stored.contains(page), "{requests}: {stored}");
        }
        drop(server);
        recover(&site, requests);
        let server = serve(&site, state.path());
        server.surus.wait_for_log(|log| log.contains(LEARNED));
        let shown = status(&site);
        for used in ["localhost/page\n", "localhost/other\n"] {
            let used = format!("\nwarmed up by http://{used}");
            assert!(shown.contains(&used), "{requests}: {shown}");
        }
    }
}
