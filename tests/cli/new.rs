//! Tests `surus new`.

use std::path::Path;
use std::process::Command;

use crate::common::Surus;
use crate::{Said, run, says};

fn new(dir: &Path) -> Said {
    run(Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("new")
        .arg(dir))
}

#[test]
fn new_project_is_served_tested_and_without_findings() {
    let parent = crate::project(&[]);
    let dir = parent.path().join("sites/shop");
    let said = new(&dir);
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
    let named = dir.display();
    says(
        &said.stdout,
        &[
            &format!("written: {named}/public/index.php\n"),
            &format!("written: {named}/surus.toml\n"),
            "\nNext:\n  surus serve ",
            &format!("php {named}/tests/app.php\n"),
        ],
    );

    let tested = run(Command::new("php").arg(dir.join("tests/app.php")));
    assert_eq!(tested.status, 0, "{}", tested.stdout);
    says(&tested.stdout, &["ok      a name is escaped\n"]);
    assert!(!tested.stdout.contains("FAILED"), "{}", tested.stdout);

    let check = run(Command::new(env!("CARGO_BIN_EXE_surus"))
        .args(["check", "--listen", "127.0.0.1:0"])
        .arg(&dir));
    assert_eq!(check.status, 0, "{}", check.stdout);

    let surus = Surus::serve(&dir, &["--workers", "1"]);
    let get = |path: &str| crate::get(&surus, path);
    let (status, body) = get("/?name=%3Cb%3E");
    assert_eq!(status, 200);
    says(&body, &["<h1>Hello &lt;b&gt;</h1>"]);
    assert_eq!(get("/none").0, 404);
    says(&get("/style.css").1, &["color-scheme"]);
}

#[test]
fn new_api_is_the_project_of_surus_api_and_is_served() {
    let parent = crate::project(&[]);
    let dir = parent.path().join("ours/My Über_API");
    let said = run(Command::new(env!("CARGO_BIN_EXE_surus"))
        .args(["new", "api"])
        .arg(&dir));
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
    let named = dir.display();
    says(
        &said.stdout,
        &[
            &format!("written: {named}/app.php\n"),
            &format!("written: {named}/packages/surus, the library\n"),
            &format!("php '{named}'/tests/run.php\n"),
        ],
    );

    let theirs = parent.path().join("theirs/My Über_API");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("php/bin/surus-api");
    let made = run(Command::new("php").arg(program).arg("new").arg(&theirs));
    assert_eq!(made.status, 0, "{}", made.stderr);
    let differs = run(Command::new("diff").arg("-r").args([&theirs, &dir]));
    assert_eq!((differs.status, &*differs.stdout), (0, ""));

    let tested = run(Command::new("php").arg(dir.join("tests/run.php")));
    assert_eq!(tested.status, 0, "{}", tested.stdout);
    let check = run(Command::new(env!("CARGO_BIN_EXE_surus"))
        .args(["check", "--listen", "127.0.0.1:0"])
        .arg(&dir));
    assert_eq!(check.status, 0, "{}", check.stdout);
    let surus = Surus::serve(&dir, &["--workers", "1"]);
    let mut response = ureq::get(&surus.url).call().unwrap();
    let body = response.body_mut().read_to_string().unwrap();
    assert_eq!(body, r#"{"message":"Hello World!"}"#);
}

#[test]
fn directory_may_be_called_like_a_kind_and_an_unknown_kind_is_refused() {
    let parent = crate::project(&[]);
    let run_there = |args: &[&str]| {
        run(Command::new(env!("CARGO_BIN_EXE_surus"))
            .current_dir(parent.path())
            .arg("new")
            .args(args))
    };
    let said = run_there(&["api"]);
    assert_eq!(said.status, 1, "{}", said.stdout);
    says(&said.stderr, &["`surus new api DIR`", "`surus new ./api`"]);
    assert!(!parent.path().join("api").exists());
    let said = run_there(&["./api"]);
    assert_eq!(said.status, 0, "{}", said.stderr);
    assert!(parent.path().join("api/src/app.php").is_file());
    let said = run_there(&["website", "shop"]);
    assert_eq!(said.status, 2, "{}", said.stderr);
    says(&said.stderr, &["'website' for '[KIND]'", "api"]);
}

#[test]
fn commands_for_an_odd_directory_work_in_a_shell() {
    for name in ["it's a $shop", "-shop"] {
        let parent = crate::project(&[]);
        let program = Path::new(env!("CARGO_BIN_EXE_surus"));
        let run_there = |command: &mut Command| run(command.current_dir(parent.path()));
        let said = run_there(Command::new(program).args(["new", "--", name]));
        assert_eq!(said.status, 0, "{}", said.stderr);
        let mut lines = said.stdout.lines();
        let check = lines
            .find(|line| line.starts_with("  surus check "))
            .unwrap();
        let command = check.replace("surus", &program.display().to_string());
        let checked = run_there(Command::new("sh").args(["-c", &command]));
        assert_eq!(checked.status, 0, "{command}: {}", checked.stderr);
        says(&checked.stdout, &[name]);
    }
}

#[test]
fn new_overwrites_nothing() {
    let dir = crate::project(&[("notes.txt", "mine")]);
    let said = new(dir.path());
    assert_eq!(said.status, 1, "{}", said.stdout);
    says(
        &said.stderr,
        &[
            "is not empty: it has notes.txt",
            "overwrites nothing",
            "`surus init`",
        ],
    );
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 1);

    let file = dir.path().join("notes.txt");
    let said = new(&file);
    assert_eq!(said.status, 1);
    says(&said.stderr, &["cannot create the directory"]);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "mine");
}
