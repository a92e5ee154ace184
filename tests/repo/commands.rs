//! Tests that commands in documents exist: each is parsed as it would be run, or says why not.

use std::collections::BTreeSet;

use clap::Command;
use regex::Regex;

use super::markdown::{pages, root};
use super::shell::commands;

/// Programs that no test runs, and why.
const NOT_RUN: [(&str, &str); 18] = [
    ("apt-get", "installs packages"),
    ("aws", "needs an AWS account"),
    ("cd", "changes only the directory of the next commands"),
    ("chown", "changes the owner of an application's files"),
    ("composer", "downloads from Packagist"),
    ("console", "belongs to a Symfony application"),
    ("cp", "copies to directories of the system"),
    ("curl", "asks a server that an earlier command starts"),
    ("docker", "needs a registry of images"),
    (
        "helm",
        "needs a cluster; `make check-manifests` renders the chart",
    ),
    ("install", "copies to directories of the system"),
    ("kubectl", "needs a cluster"),
    ("redis-cli", "asks a server of Redis"),
    ("sam", "needs an AWS account"),
    (
        "shop",
        "is what `surus build` makes of an application; tests/cli/build.rs runs one",
    ),
    ("ssh", "connects to another machine"),
    ("systemctl", "changes the system's services"),
    ("systemd-sysusers", "creates a user of the system"),
];

#[test]
fn commands_in_documents_exist() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let mut wrong = Vec::new();
    let mut not_run = BTreeSet::new();
    let mut checked = 0;
    for block in pages().iter().flat_map(|page| page.blocks()) {
        if block.language != "sh" {
            continue;
        }
        for command in commands(&block.text) {
            checked += 1;
            let program = command[0].rsplit('/').next().unwrap();
            let problem = match program {
                "surus" => surus(&command[1..]),
                "make" => make(&command[1..], &makefile),
                "cargo" => cargo(&command[1..]),
                "php" => php(&command[1..]),
                _ if command[0].starts_with("scripts/") => exists(&command[0]),
                _ => match NOT_RUN.iter().find(|(name, _)| *name == program) {
                    Some((name, _)) => {
                        not_run.insert(*name);
                        None
                    }
                    None => Some("say in NOT_RUN why no test runs it".into()),
                },
            };
            if let Some(problem) = problem {
                wrong.push(format!("{}: {}: {problem}", block.place, command.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 80, "only {checked} commands");
    for (name, _) in NOT_RUN {
        assert!(
            not_run.contains(name),
            "NOT_RUN has {name}, which no document names"
        );
    }
}

#[test]
fn subcommands_and_options_in_prose_exist() {
    let code = Regex::new(r"`surus ([a-z][^`]*)`").unwrap();
    let mut wrong = Vec::new();
    for page in pages() {
        let prose: Vec<_> = page.prose().into_iter().map(|(_, line)| line).collect();
        // Code may continue on the next line.
        for found in code.captures_iter(&prose.join(" ")) {
            if let Some(problem) = named(&found[1]) {
                wrong.push(format!("{}: surus {}: {problem}", page.name, &found[1]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn command_line_page_has_every_option_and_no_other() {
    let page = std::fs::read_to_string(root().join("docs/reference/cli.md")).unwrap();
    let sections: Vec<_> = page.split("\n## ").skip(1).collect();
    let option = Regex::new(r"(?m)^\| `(?:-\w, )?(-[\w-]+)").unwrap();
    let options = |text: &str| -> BTreeSet<String> {
        option
            .captures_iter(text)
            .map(|found| found[1].to_string())
            .collect()
    };
    let shared = Regex::new(r"\(#(options-of-[\w-]+)\)").unwrap();
    let mut waiting = vec![(String::from("surus"), surus::cli::command())];
    while let Some((name, command)) = waiting.pop() {
        for inner in command
            .get_subcommands()
            .filter(|inner| inner.get_name() != "help")
        {
            waiting.push((format!("{name} {}", inner.get_name()), inner.clone()));
        }
        if name == "surus" {
            continue;
        }
        let heading = format!("`{name}`\n");
        let section = sections
            .iter()
            .find(|section| section.starts_with(&heading));
        let section = section.unwrap_or_else(|| panic!("docs/reference/cli.md lacks {name}"));
        let mut documented = options(section);
        for group in shared.captures_iter(section) {
            let title = group[1].replace('-', " ");
            let found = sections
                .iter()
                .find(|section| section.to_lowercase().starts_with(&title));
            documented.extend(options(found.unwrap()));
        }
        let actual = command.get_arguments().filter(|it| !it.is_positional());
        let actual: BTreeSet<_> = actual
            .filter_map(|it| match (it.get_long(), it.get_short()) {
                (Some(long), _) => Some(format!("--{long}")),
                (None, short) => short.map(|short| format!("-{short}")),
            })
            .filter(|name| name != "--help")
            .collect();
        assert_eq!(documented, actual, "{name} in docs/reference/cli.md");
    }
}

#[test]
fn command_line_page_has_the_texts_of_help() {
    let page = std::fs::read_to_string(root().join("docs/reference/cli.md")).unwrap();
    let mut waiting = vec![surus::cli::command()];
    let mut wrong = BTreeSet::new();
    while let Some(command) = waiting.pop() {
        for option in command.get_arguments() {
            let (Some(long), Some(help)) = (option.get_long(), option.get_help()) else {
                continue;
            };
            let help = help.to_string().replace('`', "").replace('|', r"\|");
            let has_text = |line: &str| {
                let cells = line.split_once("` | ");
                cells.is_some_and(|(name, text)| {
                    let mut words = name.split(|c: char| !c.is_alphanumeric() && c != '-');
                    words.any(|word| word.strip_prefix("--") == Some(long))
                        && text.replace('`', "").starts_with(&help)
                })
            };
            if !option.is_hide_set() && !page.lines().any(has_text) {
                wrong.insert(format!("{} --{long}: {help}", command.get_name()));
            }
        }
        waiting.extend(command.get_subcommands().cloned());
    }
    assert!(wrong.is_empty(), "docs/reference/cli.md lacks {wrong:#?}");
}

/// Parses a command line as the program does.
pub fn surus(words: &[String]) -> Option<String> {
    let words = ["surus"]
        .into_iter()
        .chain(words.iter().map(String::as_str));
    let error = surus::cli::command().try_get_matches_from(words).err()?;
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    let is_fine = [DisplayHelp, DisplayVersion].contains(&error.kind());
    (!is_fine).then(|| error.to_string())
}

/// Checks the subcommands and options of a command that may be abridged.
fn named(text: &str) -> Option<String> {
    let mut command: Command = surus::cli::command();
    // `--help` and what all commands share is in the built command only.
    command.build();
    let mut is_subcommand = true;
    for word in text.split_whitespace() {
        let inner = command.find_subcommand(word).cloned();
        if let Some(long) = word.strip_prefix("--") {
            let long = long.split(['=', '|', ',']).next().unwrap();
            let known = command
                .get_arguments()
                .any(|it| it.get_long() == Some(long));
            if !known && !long.is_empty() {
                return Some(format!("no option --{long}"));
            }
            is_subcommand = false;
        } else if let (true, Some(inner)) = (is_subcommand, inner) {
            command = inner;
        } else if command.get_name() == "surus" {
            return Some(format!("no subcommand {word}"));
        } else {
            is_subcommand = false;
        }
    }
    None
}

fn make(targets: &[String], makefile: &str) -> Option<String> {
    let missing = targets.iter().find(|target| {
        let is_target = !target.contains('=') && !target.starts_with('-');
        is_target && !makefile.contains(&format!("\n{target}:"))
    })?;
    Some(format!("no target {missing}"))
}

/// Checks the names of test programs.
fn cargo(words: &[String]) -> Option<String> {
    let mut pairs = words.windows(2);
    let pair = pairs.find(|pair| pair[0] == "--test")?;
    let name = &pair[1];
    let place = root().join("tests").join(name);
    let exists =
        name == "NAME" || place.join("main.rs").exists() || place.with_extension("rs").exists();
    (!exists).then(|| format!("no tests/{name}"))
}

/// Checks the script, which is here or in the project that `surus new api` makes.
fn php(words: &[String]) -> Option<String> {
    let script = words.iter().find(|word| word.ends_with(".php"))?;
    let places = [root().to_path_buf(), root().join("php/skeleton")];
    let exists = places.iter().any(|place| place.join(script).exists());
    (!exists).then(|| format!("no {script}"))
}

fn exists(path: &str) -> Option<String> {
    (!root().join(path).exists()).then(|| "no such file".into())
}
