//! Tests `surus init`.

use std::path::Path;
use std::process::Command;

use crate::{Said, project, run, says, surus};

fn init(project: &Path) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    run(command
        .arg("init")
        .arg(project)
        .env("SURUS_ENGINE_WORKERS", "1"))
}

#[test]
fn init_writes_a_commented_configuration_and_overwrites_none() {
    let project = project(&[(
        "public/index.php",
        "<?php surus_serve(function () { echo 'hello ', random_int(0, 1 << 30); });",
    )]);
    let said = init(project.path());
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
    let file = project.path().join("surus.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    says(
        &text,
        &[
            "# For an application with a boot script of its own",
            "\n[engine]\n",
            "rewind",
            "# - classic: does not run: ",
            "\nname = \"",
            "\n#[http]\n",
        ],
    );
    assert!(said.stdout.contains(&text), "{}", said.stdout);
    let check = surus(
        &[
            "check",
            project.path().to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
        ],
        &[],
    );
    assert_eq!(check.status, 0, "{}", check.stdout);
    says(&check.stdout, &["✓ configuration", "/surus.toml\n"]);

    let again = init(project.path());
    assert_eq!(again.status, 1, "{}", again.stdout);
    says(
        &again.stderr,
        &["exists, and `surus init` overwrites nothing"],
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn init_writes_nothing_for_an_application_that_no_engine_runs() {
    let project = project(&[("public/index.php", "<?php http_response_code(500);")]);
    let said = init(project.path());
    assert_eq!(said.status, 1, "{}", said.stdout);
    says(&said.stderr, &["GET / returned 500"]);
    assert!(!project.path().join("surus.toml").exists());
}
