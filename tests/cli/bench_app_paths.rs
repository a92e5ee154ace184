//! Tests which paths `surus bench app` measures: none that Surus or another engine answers.

use std::process::Command;

use serde_json::Value;

use crate::bench_app::app;
use crate::{project, run, says};

#[test]
fn paths_that_no_engine_answers_are_left_out_and_named() {
    let settings = "[[route]]\nprefix = '/old'\nredirect = '/'\n\
        [[route]]\nprefix = '/legacy'\nengine = 'cgi'\n";
    let project = project(&[
        ("public/index.php", "<?php echo 'hello';"),
        ("public/logo.png", "no picture"),
        ("public/docs/index.html", "<p>hello"),
        ("surus.toml", settings),
    ]);
    let paths = ["/", "/logo.png", "/docs", "/old", "/legacy/a"];
    let args = [&["--engines", "classic", "--json", "--path"], &paths[..]].concat();
    let said = app(project.path(), &args, &[]);
    assert_eq!(said.status, 0, "{}", said.stderr);
    let json: Value = serde_json::from_str(&said.stdout).unwrap();
    let load = json["load"].as_str().unwrap();
    assert!(load.starts_with("GET /; "), "{load}");
    says(
        &json["notes"].to_string(),
        &[
            "/logo.png is not measured: Surus sends the file logo.png, whatever the engine",
            "/docs is not measured: Surus redirects it to /docs/",
            "/old is not measured: a route redirects it",
            "/legacy/a is not measured: a route sends it to `cgi`",
        ],
    );
}

#[test]
fn application_without_a_page_of_php_is_an_error_before_any_server_starts() {
    let project = project(&[("index.html", "<p>hello")]);
    let said = app(project.path(), &[], &[]);
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &[
            "no engine would be measured; name a page that PHP answers (--path): ",
            "/ is not measured: Surus sends the file index.html",
        ],
    );
    assert_eq!(said.stdout, "");
}

#[test]
fn route_of_a_framework_that_changes_some_engines_only_is_a_note() {
    // Surus's boot script for WordPress leaves its administration to `classic`.
    let project = project(&[
        (
            "index.php",
            "<?php require __DIR__ . '/wp-blog-header.php';",
        ),
        ("wp-blog-header.php", "<?php echo 'hello';"),
        ("wp-load.php", "<?php"),
        ("wp-config.php", "<?php"),
        ("wp-settings.php", "<?php"),
        ("wp-includes/version.php", "<?php $wp_version = '6.6';"),
        ("wp-admin/index.php", "<?php echo 'administration';"),
    ]);
    let args = [
        "--engines",
        "rewind",
        "--json",
        "--path",
        "/wp-admin/index.php",
    ];
    let said = app(project.path(), &args, &[]);
    assert_eq!(said.status, 0, "{}", said.stderr);
    let json: Value = serde_json::from_str(&said.stdout).unwrap();
    let note = "/wp-admin/index.php does not measure `rewind`: a route sends it to `classic` there";
    says(&json["notes"].to_string(), &[note]);
}

#[test]
fn directory_that_is_taken_for_a_path_is_named_with_the_right_order() {
    let project = project(&[("public/index.html", "<p>hello")]);
    let directory = project.path().to_str().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.args(["bench", "app", "--path", "/", directory]);
    // It is the application's, without a page of PHP, so that nothing is measured.
    let said = run(command.current_dir(project.path()));
    assert_eq!(said.status, 1);
    let hint = format!("write it first: `surus bench app {directory} --path /`");
    says(&said.stderr, &[&hint]);
}
