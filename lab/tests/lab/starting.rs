//! `lab start` serves one contestant until a signal comes.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::Tiny;

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
