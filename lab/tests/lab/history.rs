//! `lab check` refuses results of a revision that no one can check out.

use std::path::Path;
use std::process::Command;

use super::Tiny;

const EXCEPTIONS: &str = "lab/unknown-revisions.toml";

fn git(directory: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=lab", "-c", "user.email=lab@example.org"]);
    let output = command.current_dir(directory).args(arguments).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {said}");
}

/// A repository of two commits. Its only result is of the first.
fn repository() -> Tiny {
    let tiny = Tiny::new();
    git(tiny.directory.path(), &["init", "--quiet"]);
    std::fs::write(tiny.path(".gitignore"), "target\n").unwrap();
    git(tiny.directory.path(), &["add", "."]);
    git(
        tiny.directory.path(),
        &["commit", "--quiet", "-m", "lab: begin"],
    );
    tiny.succeed(&["run", "--publish"]);
    git(tiny.directory.path(), &["add", "."]);
    git(
        tiny.directory.path(),
        &["commit", "--quiet", "-m", "docs: measure"],
    );
    tiny
}

/// Its result, relative to `docs/results`.
fn result(tiny: &Tiny) -> String {
    let mut files = std::fs::read_dir(tiny.path("docs/results/tiny")).unwrap();
    let name = files.next().unwrap().unwrap().file_name();
    format!("tiny/{}", name.into_string().unwrap())
}

/// Makes its result one of another revision.
fn forge(tiny: &Tiny, revision: &str) -> String {
    let file = result(tiny);
    let path = tiny.path("docs/results").join(&file);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut results: serde_json::Value = serde_json::from_str(&text).unwrap();
    results["revision"] = revision.into();
    std::fs::write(path, results.to_string()).unwrap();
    file
}

fn except(tiny: &Tiny, file: &str, revision: &str) {
    let text = format!(
        "# Made up for the tests of the lab.\n[[result]]\nfile = \"{file}\"\n\
         revision = \"{revision}\"\nreason = \"its machine has burnt.\"\n"
    );
    std::fs::write(tiny.path(EXCEPTIONS), text).unwrap();
}

#[test]
fn result_of_a_revision_outside_of_the_history_is_refused() {
    let tiny = repository();
    let said = tiny.succeed(&["check"]);
    assert!(!said.contains("not checked"), "{said}");
    for revision in ["0123456789", "HEAD", "unknown", "0123456789-dirty"] {
        let file = forge(&tiny, revision);
        let said = tiny.fail(&["check"]);
        let revision = revision.trim_end_matches("-dirty");
        let expected = format!("{file}: its revision {revision} is not in the history");
        assert!(said.contains(&expected), "{said}");
        assert!(said.contains("make lab EXPERIMENT=tiny"), "{said}");
    }
}

#[test]
fn revision_of_another_branch_is_refused() {
    let tiny = repository();
    let directory = tiny.directory.path();
    git(directory, &["checkout", "--quiet", "--orphan", "other"]);
    git(directory, &["commit", "--quiet", "-m", "other: begin"]);
    let said = tiny.fail(&["check"]);
    assert!(said.contains("is not in the history"), "{said}");
}

#[test]
fn exception_lets_a_result_stay_and_its_page_says_why() {
    let tiny = repository();
    let file = forge(&tiny, "0123456789-dirty");
    except(&tiny, &file, "0123456789");
    tiny.succeed(&["check"]);
    tiny.succeed(&["render"]);
    let page = tiny.read("docs/results/tiny.md");
    let note = "> Revision 0123456789-dirty is not in the history of this repository: its machine \
                has burnt.";
    assert!(page.contains(note), "{page}");

    except(&tiny, &file, "9876543210");
    let said = tiny.fail(&["check"]);
    assert!(said.contains("its revision 0123456789 is not in"), "{said}");
}

#[test]
fn exception_that_is_needed_no_more_is_refused() {
    let tiny = repository();
    let file = result(&tiny);
    except(&tiny, &file, "0123456789");
    let said = tiny.fail(&["check"]);
    let expected = format!("{file} with revision 0123456789 needs no exception; remove it");
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn shallow_clone_and_a_copy_without_history_skip_the_check() {
    let tiny = repository();
    forge(&tiny, "0123456789");
    let from = format!("file://{}", tiny.directory.path().display());
    let clone = tiny.path("target/clone");
    let to = clone.to_str().unwrap();
    git(
        tiny.directory.path(),
        &["clone", "--quiet", "--depth=1", &from, to],
    );
    std::fs::remove_dir_all(tiny.path(".git")).unwrap();
    let said = tiny.succeed(&["check"]);
    assert!(said.contains("not checked: this is no clone"), "{said}");

    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    let output = command.arg("check").current_dir(clone).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("not checked: this is a shallow clone"),
        "{said}"
    );
}
