//! Tests that a request on `worker` does not see results of the one before it.

use crate::kept_by_worker::worker;
use crate::site::{Site, descriptors};

/// A function, what leaves a result, and the result of a new request in JSON.
const RESULTS: &[(&str, &str, &str)] = &[
    ("json_last_error()", "json_decode('{');", "0"),
    ("preg_last_error()", r#"preg_match('/a/u', "\xff");"#, "0"),
    ("date_get_last_errors()", "date_create('no date');", "false"),
    (
        "[intl_get_error_code(), intl_get_error_message()]",
        r#"Normalizer::normalize("\xff");"#,
        r#"[0,"U_ZERO_ERROR"]"#,
    ),
    (
        "mb_ereg_search_getregs()",
        "mb_ereg_search_init('secret', 'c.*'); mb_ereg_search_regs();",
        "false",
    ),
    ("error_get_last()", "@trigger_error('secret');", "null"),
];

fn ask(site: &Site, path: &str) -> String {
    let answer = site.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", site.surus.log());
    answer.body
}

#[test]
fn last_results_of_functions_are_those_of_the_request() {
    let codes: Vec<(String, String)> = RESULTS
        .iter()
        .enumerate()
        .map(|(at, (function, leave, _))| {
            let code = format!(
                "if (isset($_GET['leave'])) {{ {leave} }}
                 echo json_encode([{function}, getmyinode() === fileinode(__FILE__)]);"
            );
            (format!("{at}.php"), code)
        })
        .collect();
    let files: Vec<(&str, &str)> = codes
        .iter()
        .map(|(name, code)| (name.as_str(), code.as_str()))
        .collect();
    let site = worker("", &files);
    for (at, (function, _, fresh)) in RESULTS.iter().enumerate() {
        let expected = format!("[{fresh},true]");
        for _ in 0..2 {
            assert_eq!(ask(&site, &format!("/{at}.php")), expected, "{function}");
            let left = ask(&site, &format!("/{at}.php?leave"));
            assert_ne!(left, expected, "{function}: the script leaves nothing");
        }
        assert_eq!(ask(&site, &format!("/{at}.php")), expected, "{function}");
    }
}

#[test]
fn last_results_of_the_boot_are_not_those_of_a_request() {
    let boot = "json_decode('{'); date_create('no date'); opendir(__DIR__); getmyinode();";
    let see = "try { $entry = @readdir(); } catch (TypeError) { $entry = null; }
        echo json_encode([json_last_error(), date_get_last_errors(), $entry,
            getmyinode() === fileinode(__FILE__)]);";
    let site = worker(boot, &[("see.php", see)]);
    for _ in 0..2 {
        assert_eq!(ask(&site, "/see.php"), "[0,false,null,true]");
    }
}

#[test]
fn directory_that_a_request_leaves_open_is_closed_at_its_end() {
    let files = [
        ("pid.php", "echo getmypid();"),
        ("leave.php", "opendir(__DIR__); echo is_string(@readdir());"),
        (
            "see.php",
            "try { echo @readdir(); } catch (TypeError) { echo 'none'; }",
        ),
    ];
    // Without a right to read directories, and with a `glob` of the application's own.
    let boots = [
        "",
        "ini_set('open_basedir', __DIR__);",
        "class Own {} stream_wrapper_unregister('glob'); stream_wrapper_register('glob', 'Own');",
    ];
    for boot in boots {
        let site = worker(boot, &files);
        let pid = ask(&site, "/pid.php").parse().unwrap();
        let before = descriptors(pid);
        for _ in 0..3 {
            assert_eq!(ask(&site, "/leave.php"), "1", "{boot}");
            assert_eq!(descriptors(pid), before, "{boot}");
            assert_eq!(ask(&site, "/see.php"), "none", "{boot}");
        }
    }
}

#[test]
fn directory_that_a_service_keeps_stays_open() {
    let files = [
        (
            "leave.php",
            "Kept::$directory = opendir(__DIR__); echo is_string(readdir(Kept::$directory));",
        ),
        (
            "see.php",
            "try { echo @readdir(); } catch (TypeError) { echo 'none'; } \
             echo is_string(readdir(Kept::$directory));",
        ),
    ];
    let site = worker("class Kept { static $directory; }", &files);
    assert_eq!(ask(&site, "/leave.php"), "1");
    for _ in 0..2 {
        assert_eq!(ask(&site, "/see.php"), "none1");
    }
}
