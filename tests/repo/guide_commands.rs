//! Runs the commands of documents that need nothing but an application and a running Surus.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use super::common::{Surus, function_url};
use super::markdown::{pages, root};
use super::shell::commands;

/// Subcommands that run here. All commands are parsed (`commands.rs`).
const RUN: [&str; 7] = [
    "check",
    "engines",
    "lambda check",
    "lambda invoke",
    "lambda template",
    "reload",
    "status",
];

/// The tests that run the other subcommands. Longer names come before their beginnings.
const RUN_ELSEWHERE: [(&str, &str); 25] = [
    ("bench app", "tests/cli/bench_app.rs"),
    ("bench compare", "tests/cli/bench.rs"),
    ("bench", "tests/cli/bench.rs"),
    ("build", "tests/cli/build.rs"),
    ("completions", "tests/cli/manual.rs"),
    ("init", "tests/cli/init.rs"),
    ("lambda console", "tests/lambda/deploy.rs"),
    ("lambda deploy", "tests/lambda/deploy/aws.rs"),
    ("lambda dev", "tests/lambda/emulator/command_line.rs"),
    ("lambda logs", "tests/lambda/deploy.rs"),
    ("lambda package", "tests/lambda/package.rs"),
    ("lambda profile", "tests/lambda/profile.rs"),
    ("leaks", "tests/rewind/leak_report.rs"),
    ("manual", "tests/cli/manual.rs"),
    ("new", "tests/cli/new.rs"),
    ("serve", "tests/common/mod.rs"),
    ("top", "tests/cli/top.rs"),
    ("trust", "tests/http/tls/local.rs"),
    ("work failed", "tests/work/operate.rs"),
    ("work forget", "tests/work/operate.rs"),
    ("work pause", "tests/work/operate.rs"),
    ("work resume", "tests/work/operate.rs"),
    ("work retry", "tests/work/operate.rs"),
    ("work status", "tests/work/operate.rs"),
    ("work", "tests/work/work.rs"),
];

/// Commands of this repository that no test runs as they stand, and why. `commands.rs` tests that
/// their files and targets exist, and has the reasons for all other programs.
const NOT_RUN: [(&str, &str); 25] = [
    ("cargo build", "builds a release"),
    ("make check-headers", "downloads headers of PHP"),
    ("make deb", "builds packages; `make try-deb` installs them"),
    ("make deny", "asks the database of advisories"),
    ("make fuzz", "takes minutes"),
    ("make image", "builds an image; `make try-image` runs one"),
    ("make lab", "measures for minutes to hours"),
    ("make lab-docs", "writes into docs/"),
    ("make musl", "builds for another target"),
    ("make serve", "runs until Ctrl-C; `make try-readme` runs it"),
    ("make soak", "sends a million requests"),
    ("make test", "runs the tests; `make try-readme` runs it"),
    ("make test-applications", "needs root and a Debian"),
    (
        "make test-held",
        "takes minutes; `make test` runs a shorter form",
    ),
    ("make test-leaks", "takes hours"),
    ("make test-php8.4", "needs root and a Debian"),
    ("make test-learned", "takes minutes; CI runs a few of these"),
    ("make test-packages", "builds for another target"),
    (
        "make test-sanitized",
        "runs tests with another build of sapi/",
    ),
    (
        "make test-shared-memory",
        "takes ten minutes; `make test` runs a shorter form",
    ),
    ("make try-deb", "needs root and a Debian"),
    ("make try-readme", "needs root and a Debian"),
    (
        "php examples/vendor.php",
        "writes into examples/; tests/apps/site.rs runs it on copies",
    ),
    ("php -S", "runs until Ctrl-C"),
    (
        "php tests/run.php",
        "belongs to a new project; tests/cli/new.rs runs it",
    ),
];

#[test]
fn other_commands_of_documents_say_why_no_test_runs_them() {
    let mut unused: BTreeSet<&str> = NOT_RUN.iter().map(|(words, _)| *words).collect();
    for block in pages().iter().flat_map(|page| page.blocks()) {
        if block.language != "sh" {
            continue;
        }
        for command in commands(&block.text) {
            let is_ours = ["cargo", "make", "php"].contains(&&*command[0])
                || command[0].starts_with("scripts/");
            if !is_ours {
                continue;
            }
            let line = command.join(" ");
            let is_it = |words: &str| {
                let rest = line.strip_prefix(words);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            };
            let found = NOT_RUN.iter().find(|(words, _)| is_it(words));
            let (words, _) = found.unwrap_or_else(|| {
                panic!(
                    "{}: `{line}`: say in NOT_RUN why no test runs it",
                    block.place
                )
            });
            unused.remove(words);
        }
    }
    assert!(unused.is_empty(), "no document has {unused:?}");
}

#[test]
fn every_subcommand_in_documents_runs_in_a_test() {
    let mut unused: BTreeSet<&str> = RUN_ELSEWHERE.iter().map(|(words, _)| *words).collect();
    for block in pages().iter().flat_map(|page| page.blocks()) {
        if block.language != "sh" {
            continue;
        }
        for command in commands(&block.text) {
            let line = command[1..].join(" ");
            if !command[0].ends_with("surus") || RUN.iter().any(|words| line.starts_with(words)) {
                continue;
            }
            let elsewhere = RUN_ELSEWHERE
                .iter()
                .find(|(words, _)| line.starts_with(words));
            let (words, _) = elsewhere.unwrap_or_else(|| {
                panic!(
                    "{}: `surus {line}`: add its test to RUN_ELSEWHERE",
                    block.place
                )
            });
            unused.remove(words);
        }
    }
    assert!(unused.is_empty(), "no document has {unused:?}");
    for (words, file) in RUN_ELSEWHERE {
        let test = std::fs::read_to_string(root().join(file)).unwrap();
        for word in words.split(' ') {
            assert!(
                test.contains(&format!("\"{word}\"")),
                "{file} runs no {word}"
            );
        }
    }
}

#[test]
fn commands_of_documents_succeed() {
    let project = tempfile::tempdir().unwrap();
    let directory = project.path().canonicalize().unwrap();
    let open: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&directory, open).unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    write(
        "index.php",
        "<?php surus_serve(function () { echo 'hello'; });",
    );
    write("event.json", &function_url::get("/").to_string());
    let surus = Surus::serve(&directory, &[]);
    let run = |words: &[String]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
        command
            .args(words)
            .current_dir(&directory)
            .stdin(Stdio::null());
        command.output().unwrap()
    };
    let template = run(&["lambda".into(), "template".into(), "sam".into()]);
    std::fs::write(directory.join("template.yaml"), template.stdout).unwrap();

    let here = directory.display().to_string();
    let mut ran = 0;
    for block in pages().iter().flat_map(|page| page.blocks()) {
        if block.language != "sh" || !block.place.starts_with("docs/") {
            continue;
        }
        for command in commands(&block.text) {
            let line = command[1..].join(" ");
            if command[0] != "surus" || !RUN.iter().any(|words| line.starts_with(words)) {
                continue;
            }
            let own = |word: &String| match word.as_str() {
                "/srv/app" | "/srv/blog" => here.clone(),
                word => word.to_string(),
            };
            let words: Vec<_> = command[1..].iter().map(own).collect();
            let output = run(&words);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "{}: {command:?}: {said}",
                block.place
            );
            ran += 1;
        }
    }
    assert!(ran > 15, "only {ran} commands ran");
    drop(surus);
}
