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
    for revision in ["0123456789", "HEAD", "unknown"] {
        let file = forge(&tiny, revision);
        let said = tiny.fail(&["check"]);
        let expected = format!("{file}: its revision {revision} is not in the history");
        assert!(said.contains(&expected), "{said}");
        assert!(said.contains("make lab EXPERIMENT=tiny"), "{said}");
    }
}

#[test]
fn result_of_changes_that_were_not_committed_is_refused_unless_it_is_listed() {
    let tiny = repository();
    let path = tiny.path("docs/results").join(result(&tiny));
    let text = std::fs::read_to_string(path).unwrap();
    let results: serde_json::Value = serde_json::from_str(&text).unwrap();
    let revision = results["revision"].as_str().unwrap();
    let dirty = format!("{revision}-dirty");
    let file = forge(&tiny, &dirty);
    tiny.succeed(&["render"]);
    let said = tiny.fail(&["check"]);
    let expected = format!("{file}: its revision {dirty} had changes that were not committed");
    assert!(said.contains(&expected), "{said}");
    except(&tiny, &file, revision);
    let said = tiny.fail(&["check"]);
    assert!(said.contains(&expected), "another one is listed: {said}");
    except(&tiny, &file, &dirty);
    tiny.succeed(&["render"]);
    tiny.succeed(&["check"]);
}

#[test]
fn revision_of_a_run_with_a_file_in_no_commit_is_marked() {
    let tiny = repository();
    let revision = || {
        std::fs::remove_dir_all(tiny.path("target/lab/results")).unwrap_or_default();
        tiny.succeed(&["run"]);
        let revision = super::run::results(&tiny)["revision"].clone();
        revision.as_str().unwrap().to_string()
    };
    // A page that the lab has written itself changes nothing that it measures.
    std::fs::write(tiny.path("docs/results/new.md"), "new").unwrap();
    assert!(!revision().ends_with("-dirty"));
    std::fs::write(tiny.path("lab/contestants/php/new.php"), "<?php").unwrap();
    assert!(revision().ends_with("-dirty"));
}

#[test]
fn page_that_is_not_what_render_writes_is_refused() {
    let tiny = repository();
    let marked = |name: &str| format!("<!-- {name} -->\n<!-- /{name} -->\n");
    let page = marked("results") + &marked("goals");
    std::fs::write(tiny.path("docs/performance.md"), page).unwrap();
    let said = tiny.fail(&["check"]);
    assert!(said.contains("docs/performance.md differs from"), "{said}");
    assert!(said.contains("`make lab-docs` writes it again"), "{said}");
    tiny.succeed(&["render"]);
    tiny.succeed(&["check"]);
    for page in ["docs/results/tiny.md", "docs/results/tiny.html"] {
        let text = tiny.read(page);
        std::fs::write(tiny.path(page), text + "\n").unwrap();
        let said = tiny.fail(&["check"]);
        assert!(said.contains(&format!("{page} differs from")), "{said}");
        tiny.succeed(&["render"]);
    }
}

/// Removes what its result says of the run besides numbers, as in files from before it was kept.
fn forget_captions(tiny: &Tiny) {
    let path = tiny.path("docs/results").join(result(tiny));
    let text = std::fs::read_to_string(&path).unwrap();
    let mut results: serde_json::Value = serde_json::from_str(&text).unwrap();
    let captions = results.as_object_mut().unwrap().remove("captions");
    assert!(captions.is_some());
    std::fs::write(path, results.to_string()).unwrap();
}

#[test]
fn run_that_kept_no_words_has_those_of_its_revision() {
    let tiny = repository();
    forget_captions(&tiny);
    let experiment = "lab/experiments/tiny.toml";
    tiny.change(
        experiment,
        "title = \"Hello\"",
        "title = \"Hello, changed\"",
    );
    tiny.change(experiment, "rounds =", "notes = [\"A note.\"]\nrounds =");
    tiny.succeed(&["render"]);
    let page = tiny.read("docs/results/tiny.md");
    assert!(page.contains("## Hello: GET /, "), "{page}");
    assert!(!page.contains("A note."), "{page}");
}

#[test]
fn run_of_an_unknown_revision_is_not_shown_under_the_notes_of_today() {
    let tiny = repository();
    forget_captions(&tiny);
    forge(&tiny, "0123456789");
    let experiment = "lab/experiments/tiny.toml";
    tiny.change(experiment, "rounds =", "notes = [\"A note.\"]\nrounds =");
    tiny.succeed(&["render"]);
    let page = tiny.read("docs/results/tiny.md");
    assert!(!page.contains("A note."), "{page}");
    let note = "The notes of this run are unknown: revision 0123456789 is not in the history";
    assert!(page.contains(note), "{page}");
    assert!(page.contains("## Hello\n"), "no description: {page}");
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
    let file = forge(&tiny, "0123456789");
    except(&tiny, &file, "0123456789");
    tiny.succeed(&["render"]);
    tiny.succeed(&["check"]);
    let page = tiny.read("docs/results/tiny.md");
    let note = "> No one can check out revision 0123456789: its machine has burnt.";
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
