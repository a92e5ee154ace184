//! Tests what `surus completions` and `surus manual` write.

use std::process::Command;

fn surus(args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_surus"))
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn completions_know_subcommands_and_options() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = surus(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        let script = String::from_utf8(output.stdout).unwrap();
        for word in ["serve", "bench", "listen"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(surus(&["completions", "cmd"]).status.code(), Some(2));
}

#[test]
fn manual_has_a_page_for_every_subcommand() {
    let dir = tempfile::tempdir().unwrap();
    let output = surus(&["manual", dir.path().to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let mut waiting = vec![(String::from("surus"), surus::cli::command())];
    while let Some((name, command)) = waiting.pop() {
        let page = std::fs::read_to_string(dir.path().join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
        for inner in command.get_subcommands() {
            if inner.get_name() != "help" {
                waiting.push((format!("{name}-{}", inner.get_name()), inner.clone()));
            }
        }
    }
    let missing = dir.path().join("missing");
    let output = surus(&["manual", missing.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cannot write to"), "{said}");
}
