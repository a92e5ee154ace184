//! Tests what `surus check --boot` reports of warm-ups.

use std::path::Path;
use std::process::Command;

use crate::{Said, project, run, says};

/// What `surus check --boot` says of a project on `rewind`.
fn check_boot(project: &Path) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.args([
        "check",
        "--boot",
        "--engine",
        "rewind",
        "--listen",
        "127.0.0.1:0",
    ]);
    run(command.arg(project))
}

/// A page that a warm-up changes for everybody, with a random value in it.
const KEEPS: &str = "<?php
    $seen = [];
    surus_serve(function () use (&$seen) {
        $url = $_SERVER['REQUEST_URI'];
        if ($url === '/keeps') $seen[] = $url;
        echo $url, ' ', count($seen), ' ', bin2hex(random_bytes(8));
    });";

#[test]
fn check_boot_names_the_warm_up_that_changes_answers() {
    let files = [
        ("public/index.php", KEEPS),
        (
            "surus.toml",
            "[engine]\nwarmup = [\"/harmless\", \"/keeps\"]\n",
        ),
    ];
    let changed = project(&files);
    let said = check_boot(changed.path());
    assert_eq!(said.status, 1, "{}{}", said.stdout, said.stderr);
    says(
        &said.stdout,
        &[
            "! GET / has another answer after the warm-ups: `",
            "the cause is the warm-up /keeps; take it out of engine.warmup",
        ],
    );
    std::fs::write(
        changed.path().join("surus.toml"),
        "[engine]\nwarmup = [\"/harmless\"]\n",
    )
    .unwrap();
    let said = check_boot(changed.path());
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
    says(
        &said.stdout,
        &[
            "✓ warm-ups         GET /: no other answer\n",
            "GET /harmless: no other answer\n",
        ],
    );
    assert!(!said.stdout.contains("the cause is"), "{}", said.stdout);
}

/// The form's token is the same for all visitors once the form has been asked for.
const ONE_TOKEN: &str = "<?php
    $token = null;
    surus_serve(function () use (&$token) {
        if ($_SERVER['REQUEST_URI'] === '/form') $token ??= bin2hex(random_bytes(8));
        echo 'token: ', $token ?? bin2hex(random_bytes(8)), ' at ', date('H:i:s');
    });";

#[test]
fn check_boot_names_the_warm_up_that_gives_all_visitors_one_token() {
    let project = project(&[
        ("public/index.php", ONE_TOKEN),
        ("surus.toml", "[engine]\nwarmup = [\"/form\"]\n"),
    ]);
    let said = check_boot(project.path());
    says(
        &said.stdout,
        &[
            "! GET / has another answer after the warm-ups: `",
            " in all answers` instead of `another value in each answer`",
            "the cause is the warm-up /form; take it out of engine.warmup",
        ],
    );
}

#[test]
fn check_boot_names_the_warm_up_that_the_boot_leaves_out() {
    let once = "<?php surus_serve(function () {
        if ($_SERVER['REQUEST_URI'] === '/once') require_once __DIR__.'/page.inc';
        else echo 'fine';
    });";
    let project = project(&[
        ("public/index.php", once),
        ("public/page.inc", "once"),
        ("surus.toml", "[engine]\nwarmup = [\"/once\", \"/fine\"]\n"),
    ]);
    let said = check_boot(project.path());
    says(
        &said.stdout,
        &[
            "! GET /once is left out of the warm-ups",
            "GET /fine: no other answer\n",
        ],
    );
    assert!(!said.stdout.contains("/once: no other"), "{}", said.stdout);
}

/// Their numbers have more than a hundred characters.
#[test]
fn check_boot_names_all_of_many_warm_ups_that_the_boot_leaves_out() {
    let once = "<?php surus_serve(function () {
        if (strtok($_SERVER['REQUEST_URI'], '?') === '/once') {
            require_once __DIR__.'/page.inc';
        }
    });";
    let urls = (1..=40).map(|number| format!("\"/once?{number}\""));
    let urls = urls.collect::<Vec<_>>().join(", ");
    let project = project(&[
        ("public/index.php", once),
        ("public/page.inc", "once"),
        ("surus.toml", &format!("[engine]\nwarmup = [{urls}]\n")),
    ]);
    let said = check_boot(project.path());
    for number in 1..=40 {
        let left = format!("! GET /once?{number} is left out of the warm-ups");
        says(&said.stdout, &[&left]);
    }
}
