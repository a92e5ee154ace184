//! `lab start` serves one contestant until a signal comes.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::Tiny;

const MANIFEST: &str = "lab/contestants/php/manifest.toml";

#[test]
fn started_contestant_prints_its_commands_and_serves_until_a_signal() {
    let tiny = Tiny::new();
    let mut child = tiny
        .command(&["start", "tiny", "second"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    let command = line();
    assert!(command.contains(" php -S 127.0.0.1:"), "{command}");
    let address = line();
    let url = address.strip_prefix("listening on ").unwrap();
    let answer = Command::new("curl").args(["-s", url]).output().unwrap();
    let answer = String::from_utf8(answer.stdout).unwrap();
    assert!(answer.contains("bonjour"), "{answer}");
    let pid = child.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    let answer = Command::new("curl").args(["-s", url]).status().unwrap();
    assert_eq!(answer.code(), Some(7), "it no longer listens");
}

#[test]
fn unknown_contestant_and_load_are_named_with_those_that_exist() {
    let tiny = Tiny::new();
    let said = tiny.fail(&["start", "tiny", "third"]);
    assert!(said.contains("known: first, second, absent"), "{said}");
    let said = tiny.fail(&["start", "tiny", "first", "goodbye"]);
    assert!(
        said.contains("no load `goodbye` in tiny; known: hello"),
        "{said}"
    );
    let said = tiny.fail(&["start", "tiny", "absent"]);
    assert!(
        said.contains("absent: surus-lab-nowhere is not installed"),
        "{said}"
    );
}

#[test]
fn contestant_runs_commands_once_it_answers_and_before_it_is_measured() {
    let tiny = Tiny::new();
    // The load's page responds only once the command has requested another one.
    let index = "lab/contestants/php/index.php";
    let waits = "'/first' === $_SERVER['REQUEST_URI'] && touch(__DIR__.'/asked');\n\
                 if (!file_exists(__DIR__.'/asked')) {\n    exit;\n}\necho";
    tiny.change(index, "echo", waits);
    let command = "once_ready = [[\"curl\", \"-sf\", \"127.0.0.1:@port@/first\"]]\nstart =";
    tiny.change(MANIFEST, "start =", command);
    let said = tiny.succeed(&["run"]);
    assert!(!said.contains("hello: not measured"), "{said}");
}

#[test]
fn contestant_whose_command_fails_is_a_row_that_says_so() {
    let tiny = Tiny::new();
    let command = "once_ready = [[\"sh\", \"-c\", \"echo no pages; exit 1\"]]\nstart =";
    tiny.change(MANIFEST, "start =", command);
    tiny.succeed(&["run"]);
    let markdown = tiny.read("target/lab/results/tiny.md");
    assert!(markdown.contains("exit status: 1: no pages"), "{markdown}");
}
