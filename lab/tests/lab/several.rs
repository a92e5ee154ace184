//! Commands over several experiments, and what documents quote of their results.

use std::process::Stdio;

use super::Tiny;
use super::run::wait_for;

#[test]
fn repeated_command_skips_samples_finished_before_an_interruption() {
    let tiny = Tiny::new();
    let text = tiny.read("lab/experiments/tiny.toml");
    let long = text.replace("rounds = { small = 3", "rounds = { small = 100000");
    std::fs::write(tiny.path("lab/experiments/very.toml"), long).unwrap();
    let mut run = tiny
        .command(&["run"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("a round of the second experiment", || {
        assert!(run.try_wait().unwrap().is_none(), "the run ended");
        tiny.path("target/lab/very-small.json").exists()
    });
    let pid = run.id().to_string();
    let kill = std::process::Command::new("kill").arg(&pid).status();
    assert!(kill.unwrap().success());
    assert_eq!(run.wait().unwrap().code(), Some(1));

    // The rounds that it has measured suffice.
    let state = tiny.read("target/lab/very-small.json");
    let state = state.replace("\"wanted\": 100000", "\"wanted\": 1");
    std::fs::write(tiny.path("target/lab/very-small.json"), state).unwrap();
    let said = tiny.succeed(&["run"]);
    assert!(said.contains("tiny: finished before"), "{said}");
    assert!(said.contains("continuing after round"), "{said}");
    assert!(
        said.contains("target/lab/results/small-form.json"),
        "{said}"
    );
    let small: serde_json::Value =
        serde_json::from_str(&tiny.read("target/lab/results/small-form.json")).unwrap();
    let names: Vec<_> = small["seconds"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["tiny", "very"]);
    let said = tiny.succeed(&["run", "tiny"]);
    assert!(said.contains("round 3/3"), "a finished command: {said}");
    assert!(!said.contains("small-form.json"), "not all: {said}");
}

#[test]
fn published_run_fills_the_marked_places_of_documents() {
    let tiny = Tiny::new();
    let readme = "[readme]\nloads = [\"hello\"]\ncontestants = [\"first\", \"second\"]\n\n[[cont";
    tiny.change("lab/experiments/tiny.toml", "[[cont", readme);
    std::fs::create_dir(tiny.path("docs")).unwrap();
    let marked = |name: &str| format!("before\n<!-- {name} -->\nold\n<!-- /{name} -->\nafter\n");
    std::fs::write(tiny.path("README.md"), marked("benchmark")).unwrap();
    std::fs::write(tiny.path("docs/performance.md"), marked("results")).unwrap();
    tiny.succeed(&["run", "--publish"]);
    let page = tiny.read("README.md");
    assert!(page.contains("| | php -S | php -S, twice |\n"), "{page}");
    assert!(page.contains("\n| Hello | "), "{page}");
    assert!(page.starts_with("before\n") && page.ends_with(" -->\nafter\n"));
    let page = tiny.read("docs/performance.md");
    assert!(page.contains("[numbers](results/tiny.md)"), "{page}");
    assert!(!page.contains("old"), "{page}");
}
