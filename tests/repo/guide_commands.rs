//! Runs the commands of documents that need nothing but an application and a running Surus.

mod elsewhere;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use regex::Regex;

use self::elsewhere::{Elsewhere, runs};
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
const RUN_ELSEWHERE: [Elsewhere; 25] = [
    runs(
        "bench app",
        "cli::bench_app::leaking_application_differs_on_worker_and_not_on_rewind",
    ),
    runs(
        "bench compare",
        "cli::bench::comparison_of_a_server_with_itself_prints_a_verdict_per_quantity",
    ),
    runs(
        "bench",
        "cli::bench::run_prints_rate_latencies_and_the_server",
    ),
    runs("build", "cli::build::build_says_what_it_leaves_out"),
    runs(
        "completions",
        "cli::manual::completions_know_subcommands_and_options",
    ),
    runs(
        "init",
        "cli::init::init_writes_a_commented_configuration_and_overwrites_none",
    ),
    runs(
        "lambda console",
        "lambda::deploy::console_prints_the_output_and_exits_with_the_status",
    )
    .with(AWS)
    .left_out("make test-deploy"),
    runs(
        "lambda deploy",
        "lambda::deploy::deployment_creates_and_updates_the_function_and_changes_nothing_twice",
    )
    .with(AWS)
    .left_out("make test-deploy"),
    runs(
        "lambda dev",
        "lambda::emulator::command_line::dev_answers_requests_until_sigterm",
    ),
    runs(
        "lambda logs",
        "lambda::deploy::logs_are_printed_once_while_they_are_followed",
    )
    .with(AWS)
    .left_out("make test-deploy"),
    runs(
        "lambda package",
        "lambda::package::same_project_gives_the_same_bytes",
    )
    .with("tests/common/empty_root.rs")
    .left_out("make test-packages"),
    runs(
        "lambda profile",
        "lambda::profile::each_phase_of_a_start_is_measured",
    ),
    runs("leaks", "rewind::leak_report::leftover_state_is_named"),
    runs(
        "manual",
        "cli::manual::manual_has_a_page_for_every_subcommand",
    ),
    runs(
        "new",
        "cli::new::new_project_is_served_tested_and_without_findings",
    ),
    runs("serve", "http::files::large_file_arrives_unchanged"),
    runs(
        "top",
        "cli::top::top_prints_requests_errors_and_the_backtrace_of_a_stopped_request",
    ),
    runs(
        "trust",
        "http::tls::local::trust_puts_the_authority_into_the_stores_and_takes_it_out",
    )
    .left_out("a mount namespace needs root"),
    runs(
        "work failed",
        "work::operate::failed_job_is_listed_retried_and_forgotten",
    ),
    runs(
        "work forget",
        "work::operate::failed_job_is_listed_retried_and_forgotten",
    ),
    runs("work pause", PAUSED),
    runs("work resume", PAUSED),
    runs(
        "work retry",
        "work::operate::failed_job_is_listed_retried_and_forgotten",
    ),
    runs(
        "work status",
        "work::operate::status_and_reload_find_a_running_work",
    ),
    runs(
        "work",
        "work::plain::workers_follow_the_jobs_and_no_more_jobs_are_taken_than_they_can_run",
    )
    .with("tests/work/work.rs"),
];

const AWS: &str = "tests/lambda/deploy/aws.rs";
const PAUSED: &str =
    "work::operate::paused_queue_returns_jobs_that_have_not_begun_and_continues_when_resumed";

/// Commands of this repository that no test runs as they stand, and why. `commands.rs` tests that
/// their files and targets exist, and has the reasons for all other programs.
const NOT_RUN: [(&str, &str); 28] = [
    ("cargo build", "builds a release"),
    ("make check-features", "compiles for minutes"),
    ("make check-headers", "downloads headers of PHP"),
    ("make check-tls", "takes minutes"),
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
    (
        "make test-work",
        "takes an hour; `make test` runs a shorter form",
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
    let mut unused: BTreeSet<&str> = RUN_ELSEWHERE.iter().map(|entry| entry.words).collect();
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
                .find(|entry| line.starts_with(entry.words));
            let entry = elsewhere.unwrap_or_else(|| {
                panic!(
                    "{}: `surus {line}`: add its test to RUN_ELSEWHERE",
                    block.place
                )
            });
            unused.remove(entry.words);
        }
    }
    assert!(unused.is_empty(), "no document has {unused:?}");
    let read = |file: &str| std::fs::read_to_string(root().join(file)).ok();
    let problems = RUN_ELSEWHERE.iter().filter_map(|entry| {
        let problem = entry.problem(read)?;
        Some(format!("surus {}: {problem}", entry.words))
    });
    let problems: Vec<_> = problems.collect();
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Options that no test passes on a command line.
const NOT_PASSED: [&str; 1] = [
    "--sqs", // tests/lambda/emulator/sqs.rs runs what it starts
];

/// [`RUN_ELSEWHERE`] names one test for all options of a subcommand.
#[test]
fn options_in_documents_are_passed_in_a_test() {
    let mut sources = String::new();
    for pattern in ["tests", "scripts", "src/cli"] {
        let mut left = vec![root().join(pattern)];
        while let Some(directory) = left.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => left.push(path),
                    false => sources += &std::fs::read_to_string(path).unwrap_or_default(),
                }
            }
        }
    }
    let mut missing = BTreeSet::new();
    for block in pages().iter().flat_map(|page| page.blocks()) {
        for command in commands(&block.text) {
            if block.language != "sh" || !command[0].ends_with("surus") {
                continue;
            }
            // The rest is for the program that `surus` starts.
            let own = command.iter().take_while(|word| *word != "--");
            for option in own.filter(|word| word.starts_with("--")) {
                let name = option.split('=').next().unwrap_or(option);
                let is_passed = [
                    format!("\"{name}\""),
                    format!("\"{name}="),
                    format!(" {name} "),
                ];
                let is_known = NOT_PASSED.contains(&name);
                if !is_known && !is_passed.iter().any(|text| sources.contains(text)) {
                    missing.insert(format!("{}: {name}", block.place));
                }
            }
        }
    }
    assert!(missing.is_empty(), "no test passes {missing:#?}");
}

/// As in: "`make try-deb` installs them", or "tests/cli/new.rs runs it".
#[test]
fn reasons_name_targets_and_files_that_exist() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let target = Regex::new("`make ([^`]+)`").unwrap();
    let file = Regex::new(r"tests/[\w/]+\.rs").unwrap();
    for (words, reason) in NOT_RUN {
        for found in target.captures_iter(reason) {
            let has_it = makefile.contains(&format!("\n{}:", &found[1]));
            assert!(has_it, "{words}: no target {}", &found[1]);
        }
        for found in file.find_iter(reason) {
            let path = root().join(found.as_str());
            assert!(path.is_file(), "{words}: no file {}", found.as_str());
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
        if block.language != "sh" {
            continue;
        }
        for command in commands(&block.text) {
            let line = command[1..].join(" ");
            if command[0] != "surus" || !RUN.iter().any(|words| line.starts_with(words)) {
                continue;
            }
            let own = |word: &String| match word.as_str() {
                "/srv/app" | "/srv/blog" => here.clone(),
                word if word.starts_with("examples/") => root().join(word).display().to_string(),
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
