//! Runs are interleaved, resumable, and published with measured and published numbers apart.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Tiny;

const STATE: &str = "target/lab/tiny-small.json";
const MANIFEST: &str = "lab/contestants/php/manifest.toml";

/// The published JSON of the only run.
pub fn results(tiny: &Tiny) -> Value {
    let directory = tiny.path("target/lab/results/tiny");
    let mut files = std::fs::read_dir(directory).unwrap();
    let file = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none());
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn order(round: &Value) -> Vec<&str> {
    let turns = round["turns"].as_array().unwrap().iter();
    turns
        .map(|turn| turn["contestant"].as_str().unwrap())
        .collect()
}

#[test]
fn run_publishes_measured_numbers_and_those_of_others_apart() {
    let tiny = Tiny::new();
    let said = tiny.succeed(&["run"]);
    assert!(said.contains("round 3/3"), "{said}");
    assert!(!tiny.path(STATE).exists(), "a finished run leaves no state");

    let markdown = tiny.read("target/lab/results/tiny.md");
    let row = |title: &str| {
        let start = format!("| {title} | ");
        let line = markdown.lines().find(|line| line.starts_with(&start));
        line.unwrap_or_else(|| panic!("{markdown} has no row {title}"))
            .to_string()
    };
    assert!(markdown.contains("published: requests/s"), "{markdown}");
    assert!(row("php -S, twice").ends_with("| 1,234/s [a talk] | 2.00 ms to 4.00 ms [a talk] |"));
    assert!(row("php -S").ends_with("| – | – |"));
    let other = "| a server that is not here | – | – | – | estimated 77.0/s [a talk] | – |";
    assert_eq!(row("a server that is not here"), other);
    let why = "surus-lab-nowhere is not installed: there is nothing to install";
    assert!(row("A program that is nowhere").contains(why), "{markdown}");
    assert!(markdown.contains("a talk has published them (https://talk.example, 2019, 1 CPU)"));

    let html = tiny.read("target/lab/results/tiny.html");
    assert!(html.contains("measured here") && html.contains("published by others"));
    let results = results(&tiny);
    for key in ["date", "command", "revision", "machine", "contestants"] {
        assert!(!results[key].is_null(), "{key}");
    }
    let sample = &results["rounds"][0]["turns"][0]["samples"]["hello"];
    assert_eq!(sample["failed"], 0.0, "{sample}");
    let (least, median) = (&sample["min"], &sample["p50"]);
    assert!(least.as_f64().unwrap() > 0.0, "{sample}");
    assert!(
        least.as_f64().unwrap() <= median.as_f64().unwrap(),
        "{sample}"
    );
    assert_eq!(sample["responses"], 3.0, "{sample}");
    assert!(sample["rate"].as_f64().unwrap() > 0.0 && sample["start"].as_f64().unwrap() > 0.0);
}

#[test]
fn commands_are_those_that_were_run_with_their_environment() {
    let tiny = Tiny::new();
    let variable = "start = [[\"php\", \"-d\", \"user_agent=@message@ @repository@/lab\",";
    tiny.change(
        "lab/contestants/php/manifest.toml",
        "start = [[\"php\",",
        variable,
    );
    let more = "[env]\nGREETING = \"it's @message@\"\n\n[values]";
    tiny.change("lab/contestants/php/manifest.toml", "[values]", more);
    tiny.succeed(&["run"]);
    let results = results(&tiny);
    let commands = results["contestants"]["second"]["commands"]
        .as_array()
        .unwrap();
    let [command] = &commands[..] else {
        panic!("{commands:?}");
    };
    let command = command.as_str().unwrap();
    for part in [
        "env -i PATH=/usr/local/sbin:",
        " GREETING='it'\\''s bonjour' php -d 'user_agent=bonjour lab' -S 127.0.0.1:",
    ] {
        assert!(command.contains(part), "no {part} in {command}");
    }
    assert!(!command.contains('@'), "{command}");
    let port = command.split("127.0.0.1:").nth(1).unwrap();
    let port: u16 = port.split(' ').next().unwrap().parse().unwrap();
    assert!(port > 0, "{command}");
    // A shell understands it.
    let echo = command.replacen(" php -d ", " printf %s\\\\n ", 1);
    let said = Command::new("sh").args(["-c", &echo]).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.starts_with("user_agent=bonjour lab\n-S\n"), "{said}");
    let absent = &results["contestants"]["absent"]["commands"];
    assert_eq!(absent.as_array().unwrap().len(), 0);
}

#[test]
fn rounds_begin_with_another_contestant_each() {
    let tiny = Tiny::new();
    tiny.succeed(&["run"]);
    let results = results(&tiny);
    let rounds = results["rounds"].as_array().unwrap();
    let orders: Vec<_> = rounds.iter().map(order).collect();
    assert_eq!(
        orders,
        [
            ["first", "second"],
            ["second", "first"],
            ["first", "second"]
        ]
    );
}

#[test]
fn killed_run_keeps_its_rounds_and_leaves_no_server() {
    let tiny = Tiny::new();
    tiny.change(
        "lab/experiments/tiny.toml",
        "rounds = { small = 3",
        "rounds = { small = 100000",
    );
    let mut killed = start(&tiny);
    wait_for("a first round", || {
        let has_ended = killed.try_wait().unwrap();
        assert!(has_ended.is_none(), "the run ended: {has_ended:?}");
        tiny.path(STATE).exists()
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    let kept = state(&tiny);
    wait_for("the end of all servers", || {
        !is_named(tiny.directory.path())
    });

    let mut continued = start(&tiny);
    let count = |state: &Value| state["rounds"].as_array().unwrap().len();
    wait_for("another round", || count(&state(&tiny)) > count(&kept));
    let pid = continued.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    assert_eq!(continued.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    continued
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(
        said.contains(&format!("continuing after round {} of", count(&kept))),
        "{said}"
    );
    assert!(
        said.contains("lab: interrupted; the same command continues"),
        "{said}"
    );
    let now = state(&tiny);
    for (index, round) in kept["rounds"].as_array().unwrap().iter().enumerate() {
        assert_eq!(*round, now["rounds"][index]);
    }
}

#[test]
fn changed_contestant_begins_again_and_keeps_the_earlier_rounds() {
    let tiny = Tiny::new();
    tiny.succeed(&["run"]);
    let mut earlier = results(&tiny);
    earlier["rounds"].as_array_mut().unwrap().truncate(1);
    earlier["fingerprint"] = "another".into();
    std::fs::write(tiny.path(STATE), earlier.to_string()).unwrap();
    let said = tiny.succeed(&["run"]);
    assert!(said.contains("beginning again: "), "{said}");
    assert!(tiny.path("target/lab/tiny-small.old.json").exists());
    assert_eq!(results(&tiny)["rounds"].as_array().unwrap().len(), 3);
}

#[test]
fn rounds_of_another_machine_are_not_continued() {
    let tiny = Tiny::new();
    tiny.succeed(&["run"]);
    let mut earlier = results(&tiny);
    earlier["rounds"].as_array_mut().unwrap().truncate(1);
    std::fs::write(tiny.path(STATE), earlier.to_string()).unwrap();
    let said = tiny.succeed(&["run"]);
    assert!(said.contains("continuing after round 1"), "{said}");
    earlier["machine"]["cpu"] = "Babbage's Analytical Engine".into();
    std::fs::write(tiny.path(STATE), earlier.to_string()).unwrap();
    let said = tiny.succeed(&["run"]);
    let why = "beginning again: the earlier rounds are of another machine: ";
    assert!(said.contains(why) && said.contains("Babbage's"), "{said}");
    let new = results(&tiny);
    assert_eq!(new["rounds"].as_array().unwrap().len(), 3);
    assert_ne!(new["machine"], earlier["machine"]);
}

#[test]
fn run_without_a_sample_of_this_repository_ends_after_a_round() {
    let tiny = Tiny::new();
    let manifest = tiny.read(MANIFEST);
    let home = manifest
        .lines()
        .find(|line| line.starts_with("home"))
        .unwrap();
    tiny.change(MANIFEST, home, "home = \"this repository\"");
    tiny.succeed(&["run"]);
    let command = "once_ready = [[\"sh\", \"-c\", \"echo no pages; exit 1\"]]\nstart =";
    tiny.change(MANIFEST, "start =", command);
    let published = tiny.read("target/lab/results/tiny.md");
    let said = tiny.fail(&["run", "--fresh"]);
    let reason = "no contestant of this repository could be measured: ";
    assert!(said.contains(reason), "{said}");
    assert!(said.contains("exit status: 1: no pages"), "{said}");
    assert_eq!(tiny.read("target/lab/results/tiny.md"), published);
}

#[test]
fn run_begins_again_if_anything_that_it_measures_has_changed() {
    let tiny = Tiny::new();
    let write = |name: &str, text: &str| {
        let path = tiny.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let parts = [
        "bin/surus",
        "bin/surus-php8.2",
        "examples/page/index.php",
        "lab/applications/php.ini",
        "php/lambda/events.php",
    ];
    for part in parts {
        write(part, "; as it was");
    }
    let application = "# A page for this test.\nfrom = \"examples/page\"\n";
    write("lab/applications/page/application.toml", application);
    let path = "application = \"page\"\npath";
    tiny.change("lab/experiments/tiny.toml", "path", path);
    let surus = tiny.path("bin/surus");
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
        command.arg("run").current_dir(tiny.directory.path());
        let output = command.arg("--surus").arg(&surus).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        said
    };
    run();
    // As after an interruption.
    let interrupt = || {
        let mut earlier = results(&tiny);
        earlier["rounds"].as_array_mut().unwrap().truncate(1);
        std::fs::write(tiny.path(STATE), earlier.to_string()).unwrap();
    };
    interrupt();
    write("bin/surus-php8.2.d", "no program");
    let said = run();
    assert!(said.contains("continuing after round 1"), "{said}");
    for part in parts {
        interrupt();
        write(part, "; changed");
        let said = run();
        assert!(said.contains("beginning again: "), "{part}: {said}");
    }
}

#[test]
fn contestant_with_another_response_is_a_row_with_that_response() {
    let tiny = Tiny::new();
    tiny.change(
        "lab/experiments/tiny.toml",
        "body = \"hello\"",
        "body = \"hello and hello\"",
    );
    let said = tiny.succeed(&["run"]);
    let tries = said.matches("second  hello: not measured").count();
    assert_eq!(tries, 2, "of three rounds: {said}");
    let end = "second  Hello: failed in 2 rounds, not tried again";
    assert_eq!(said.matches(end).count(), 1, "{said}");
    let markdown = tiny.read("target/lab/results/tiny.md");
    let row = markdown
        .lines()
        .find(|line| line.starts_with("| php -S, twice"));
    assert!(
        row.unwrap().contains("200, hello and bonjour"),
        "{markdown}"
    );
}

#[test]
fn contestant_that_fails_in_the_first_round_only_is_measured_in_the_others() {
    let tiny = Tiny::new();
    let manifest = "lab/contestants/php/manifest.toml";
    let marker = tiny.path("started");
    let start = format!(
        "\"sh\", \"-c\", \"test @message@ = hello || test -e {0} || {{ touch {0}; exit 3; }}; \
         exec php -S 127.0.0.1:@port@ @dir@/index.php\"",
        marker.display()
    );
    let php = "\"php\", \"-S\", \"127.0.0.1:@port@\", \"@dir@/index.php\"";
    tiny.change(manifest, php, &start);
    let said = tiny.succeed(&["run"]);
    assert!(!said.contains("not tried again"), "{said}");
    let results = results(&tiny);
    let measured = |round: &Value| {
        let mut turns = round["turns"].as_array().unwrap().iter();
        let turn = turns.find(|turn| turn["contestant"] == "second");
        !turn.unwrap()["samples"]["hello"].is_null()
    };
    let rounds = results["rounds"].as_array().unwrap();
    let rounds: Vec<_> = rounds.iter().map(measured).collect();
    assert_eq!(rounds, [false, true, true], "{said}");
}

#[test]
fn contestant_that_does_not_start_is_a_row_with_its_output() {
    let tiny = Tiny::new();
    let manifest = "lab/contestants/nowhere/manifest.toml";
    tiny.change(
        manifest,
        "\"surus-lab-nowhere\", install",
        "\"sh\", install",
    );
    let shell = "[\"sh\", \"-c\", \"echo no elephants; exit 3\"]";
    tiny.change(manifest, "[\"surus-lab-nowhere\"]", shell);
    tiny.succeed(&["run"]);
    let markdown = tiny.read("target/lab/results/tiny.md");
    assert!(markdown.contains("exit status: 3 before it answered; it said: no elephants"));
}

#[test]
fn contestant_that_cannot_be_built_is_a_row_with_the_last_line() {
    let tiny = Tiny::new();
    let manifest = "lab/contestants/nowhere/manifest.toml";
    tiny.change(
        manifest,
        "\"surus-lab-nowhere\", install",
        "\"sh\", install",
    );
    let build = "build = [[\"sh\", \"-c\", \"echo first; echo no alps >&2; exit 1\"]]\nstart =";
    tiny.change(manifest, "start =", build);
    tiny.succeed(&["run"]);
    let markdown = tiny.read("target/lab/results/tiny.md");
    assert!(
        markdown.contains("failed with exit status: 1: no alps"),
        "{markdown}"
    );
}

#[test]
fn load_serves_its_application_and_skips_contestants_that_cannot() {
    let tiny = Tiny::new();
    let page = tiny.path("lab/applications/page");
    std::fs::create_dir_all(&page).unwrap();
    let application = r#"# A page for this test.
prepare = [["sh", "-c", "echo prepared >@app@/word"]]
serve = [["tail", "-f", "@app@/word"]]
complete = [["sh", "-c", "echo completed >>@app@/word"]]
"#;
    std::fs::write(page.join("application.toml"), application).unwrap();
    let index = "lab/contestants/php/index.php";
    tiny.change(
        index,
        "@message@'",
        "@message@', file_get_contents('@app@/word')",
    );
    let experiment = "lab/experiments/tiny.toml";
    let body = "body = \"hello and hello\nprepared\ncompleted\"";
    tiny.change(experiment, "body = \"hello\"", &body.replace('\n', "\\n"));
    let path = "application = \"page\"\nskips = { second = \"it has no pages\" }\npath";
    tiny.change(experiment, "path", path);

    let mut run = start(&tiny);
    let mut said = String::new();
    run.stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(run.wait().unwrap().success(), "{said}");
    assert!(!said.contains("not measured: it"), "{said}");
    let markdown = tiny.read("target/lab/results/tiny.md");
    assert!(
        markdown.contains("| php -S, twice | it has no pages | "),
        "{markdown}"
    );
    assert!(
        !is_named(tiny.directory.path()),
        "a service outlives the run"
    );
}

#[test]
fn application_that_lacks_a_program_is_the_reason_in_each_row() {
    let tiny = Tiny::new();
    let page = tiny.path("lab/applications/page");
    std::fs::create_dir_all(&page).unwrap();
    let needs =
        "# A page for this test.\nneeds = [{ program = \"elephants\", install = \"walk\" }]\n";
    std::fs::write(page.join("application.toml"), needs).unwrap();
    tiny.change(
        "lab/experiments/tiny.toml",
        "path",
        "application = \"page\"\npath",
    );
    tiny.succeed(&["run"]);
    let markdown = tiny.read("target/lab/results/tiny.md");
    assert!(
        markdown.contains("| php -S | elephants is not installed: walk | "),
        "{markdown}"
    );
}

/// Starts a run whose temporary files are below the test's directory.
fn start(tiny: &Tiny) -> Child {
    let mut command = tiny.command(&["run"]);
    command
        .env("TMPDIR", tiny.directory.path())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn state(tiny: &Tiny) -> Value {
    serde_json::from_str(&tiny.read(STATE)).unwrap()
}

/// Whether a process has a path on its command line.
fn is_named(path: &Path) -> bool {
    let path = path.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.map(|entry| std::fs::read(entry.path().join("cmdline")));
    lines.any(|line| line.is_ok_and(|line| String::from_utf8_lossy(&line).contains(path)))
}

/// Waits for something that comes for certain.
pub fn wait_for(what: &str, mut has_come: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !has_come() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
