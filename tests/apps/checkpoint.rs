//! Tests `surus_checkpoint()`: the rest of the script runs for each request.

use super::client::Client;
use super::site::Site;
use crate::common::Surus;

const SCRIPT: &str = r#"<?php
$boots = 1;
function deep() { deeper(); }
function deeper() { surus_checkpoint(); }
register_shutdown_function(static function () { echo ' end'; });
deep();
echo isset($seen) ? 'seen' : 'new', ' boots=', $boots++, ' get=', $_GET['get'] ?? '';
$seen = true;
if (isset($_GET['exit'])) exit(3);
if (isset($_GET['throw'])) throw new Exception('thrown');
if (isset($_GET['again'])) surus_checkpoint();
if (isset($_GET['error'])) trigger_error('fatal', E_USER_ERROR);
"#;

#[test]
fn rest_of_the_script_runs_per_request_in_the_global_scope() {
    let site = Site::new().write("index.php", SCRIPT);
    for engine in ["rewind", "fork", "standby"] {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
        let client = Client::new(&surus.url);
        for _ in 0..2 {
            let answers = |query: &str, status| {
                let answer = client.get(&format!("/?{query}")).status(status).text();
                let get = query.strip_prefix("get=").unwrap_or("");
                let expected = format!("new boots=1 get={get} end");
                assert_eq!(answer, expected, "{engine} {query}");
            };
            answers("get=1", 200);
            answers("get=2", 200);
            answers("exit", 200);
            answers("throw", 500);
            answers("again", 500);
            answers("error", 500);
        }
        surus.wait_for_log(|log| log.contains("can be called once"));
        let log = surus.log();
        assert!(!log.contains("replaced instead of rewound"), "{log}");
    }
}

#[test]
fn checkpoint_on_an_unsuitable_engine_fails() {
    let site = Site::new().write("index.php", SCRIPT);
    let classic = site.serve_with(&["--engine", "classic"], &[]);
    Client::new(&classic.url).get("/").status(500);
    classic.wait_for_log(|log| log.contains("this is `classic`"));
    drop(classic);
    let Err(log) = Surus::spawn(&site.www(), &["--engine", "worker"], &[]) else {
        panic!("`worker` cannot rewind, but has started")
    };
    assert!(
        log.contains("needs the engine rewind, standby or fork"),
        "{log}"
    );
}
