//! Tests that the help of each subcommand says what it does, with examples that can be run.

use clap::Command;

use super::commands::surus;
use super::shell::commands;

/// The first words of the subcommands' descriptions, which are imperatives.
const VERBS: [&str; 19] = [
    "Boot", "Build", "Check", "Compare", "Create", "Delete", "List", "Make", "Measure", "Print",
    "Put", "Run", "Serve", "Show", "Stop", "Take", "Try", "Watch", "Write",
];

#[test]
fn descriptions_of_subcommands_begin_with_an_imperative() {
    let wrong: Vec<_> = subcommands()
        .iter()
        .filter(|(_, command)| {
            let about = command.get_about().map(ToString::to_string);
            let about = about.unwrap_or_default();
            !VERBS.contains(&about.split(' ').next().unwrap()) || about.ends_with('.')
        })
        .map(|(name, command)| format!("{name}: {:?}", command.get_about()))
        .collect();
    assert!(
        wrong.is_empty(),
        "no verb of VERBS, or a full stop:\n{}\n",
        wrong.join("\n")
    );
}

#[test]
fn help_of_subcommands_has_examples_that_parse() {
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for (name, command) in subcommands() {
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let Some(examples) = help.strip_prefix("Examples:\n") else {
            wrong.push(format!("{name} has no \"Examples:\""));
            continue;
        };
        let path: Vec<_> = name.split(' ').collect();
        let mut is_named = false;
        for example in commands(examples) {
            checked += 1;
            is_named |= example.iter().take(path.len()).eq(&path);
            if example[0] != "surus" {
                wrong.push(format!(
                    "{name}: {}: no command of surus",
                    example.join(" ")
                ));
            } else if let Some(problem) = surus(&example[1..]) {
                wrong.push(format!("{name}: {}: {problem}", example.join(" ")));
            }
        }
        if !is_named {
            wrong.push(format!("no example of {name} begins with it"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 50, "only {checked} examples");
}

/// Every subcommand, by its words.
fn subcommands() -> Vec<(String, Command)> {
    let (mut found, mut waiting) = (Vec::new(), vec![("surus".into(), surus::cli::command())]);
    while let Some((name, command)) = waiting.pop() {
        for inner in command.get_subcommands() {
            waiting.push((format!("{name} {}", inner.get_name()), inner.clone()));
        }
        found.push((name, command));
    }
    found.retain(|(name, _)| name != "surus");
    found
}
