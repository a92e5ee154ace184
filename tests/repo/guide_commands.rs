//! Runs the commands of documents that need nothing but an application and a running Surus.

use std::process::{Command, Stdio};

use super::common::{Surus, function_url};
use super::markdown::pages;
use super::shell::commands;

/// Subcommands that run here. Others are parsed (`commands.rs`) and run in their own tests.
const RUN: [&str; 7] = [
    "check",
    "engines",
    "lambda check",
    "lambda invoke",
    "lambda template",
    "reload",
    "status",
];

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
