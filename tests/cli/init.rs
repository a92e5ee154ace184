//! Tests `surus init`.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::common::executable::copy_executable;
use crate::{Said, is_root, project, run, says, surus};

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
            "# - classic: cannot run it: ",
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
fn equal_reason_of_engines_is_written_once_with_their_names() {
    let project = project(&[("index.php", "<?php echo 'hello';")]);
    let said = init(project.path());
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
    let text = std::fs::read_to_string(project.path().join("surus.toml")).unwrap();
    // Comments are wrapped.
    let text = text.replace("\n# ", " ");
    let line = "- worker, standby, fork, rewind: cannot run it: ";
    says(&text, &["- classic: ", line, "\nname = \"classic\"\n"]);
    for text in [text, said.stderr] {
        let reasons = text.matches("has ended without serving").count();
        assert_eq!(reasons, 1, "{text}");
    }
}

#[test]
fn directory_that_cannot_be_written_is_named_before_engines_run() {
    use std::os::unix::fs::PermissionsExt;
    // Root may write everywhere, so another user runs it.
    let directory = project(&[("app/index.php", "<?php echo 'hello';")]);
    let (program, app) = (directory.path().join("surus"), directory.path().join("app"));
    copy_executable(env!("CARGO_BIN_EXE_surus").as_ref(), &program);
    std::fs::set_permissions(&app, PermissionsExt::from_mode(0o555)).unwrap();
    let mut command = Command::new(&program);
    command.arg("init").arg(&app).current_dir("/");
    if is_root() {
        command.uid(65534).gid(65534);
    }
    let said = run(&mut command);
    std::fs::set_permissions(&app, PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(said.status, 1);
    let file = format!("cannot write {}/surus.toml", app.display());
    says(&said.stderr, &[&file, "Permission denied"]);
    assert!(!said.stderr.contains("GET /"), "{}", said.stderr);
}

#[test]
fn init_writes_nothing_for_an_application_that_no_engine_runs() {
    let project = project(&[("public/index.php", "<?php http_response_code(500);")]);
    let said = init(project.path());
    assert_eq!(said.status, 1, "{}", said.stdout);
    says(&said.stderr, &["GET / returned 500", "storage/logs"]);
    assert!(!project.path().join("surus.toml").exists());
}
