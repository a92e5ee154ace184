//! Tests the command line: its help, and errors that say what failed, on what, and what to do.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

#[allow(dead_code)]
#[path = "../apps"]
mod apps {
    pub mod laravel_installed;
    pub mod site;
}

mod admin;
mod bench;
mod bench_app;
mod bench_app_effects;
mod bench_app_paths;
mod bench_find_max;
mod bench_options;
mod bench_reports;
mod build;
mod check;
mod check_boot;
mod configuration;
mod init;
mod manual;
mod new;
mod stdout;
mod top;
mod watch;

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::Surus;
use common::executable::copy_executable;

struct Said {
    status: i32,
    stdout: String,
    stderr: String,
}

fn surus(args: &[&str], env: &[(&str, &str)]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    run(command.args(args).envs(env.iter().copied()))
}

fn run(command: &mut Command) -> Said {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Said {
        status: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The status and body that a server answers with.
fn get(surus: &Surus, path: &str) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .build()
        .into();
    let mut response = agent.get(format!("{}{path}", surus.url)).call().unwrap();
    let body = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), body)
}

/// A project with these files.
fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let project = tempfile::tempdir().unwrap();
    std::fs::set_permissions(project.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for (name, text) in files {
        let path = project.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    project
}

/// `text` has all of `parts`.
#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn every_subcommand_and_option_has_help() {
    let all = surus(&["--help"], &[]);
    for (command, option) in [
        ("serve", "--listen"),
        ("check", "--engine"),
        ("status", "--json"),
        ("reload", "--config"),
        ("engines", "Usage: surus engines"),
    ] {
        says(&all.stdout, &[command]);
        let said = surus(&[command, "--help"], &[]);
        assert_eq!(said.status, 0);
        says(&said.stdout, &[option]);
        // Every option has a sentence.
        for line in said.stdout.lines().map(str::trim) {
            let named = line.starts_with('-') || line.starts_with('[');
            assert!(
                !named || line.contains("  "),
                "{command}: no help for {line}"
            );
        }
    }
}

#[test]
fn wrong_command_line_exits_with_status_2() {
    let said = surus(&["serve", "--listen", "nowhere"], &[]);
    assert_eq!(said.status, 2);
    says(
        &said.stderr,
        &["`nowhere` is not an address", "127.0.0.1:8080"],
    );
    assert_eq!(surus(&["dance"], &[]).status, 2);
}

#[test]
fn engines_command_lists_every_engine() {
    let said = surus(&["engines"], &[]);
    says(
        &said.stdout,
        &["classic", "rewind", "application boots", "survives"],
    );
}

#[test]
fn port_in_use_is_named_with_the_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let project = project(&[]);
    let said = surus(
        &[
            "serve",
            project.path().to_str().unwrap(),
            "--listen",
            &address,
        ],
        &[],
    );
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &[&address, "another process", "--listen", "http.listen"],
    );
}

#[test]
fn admin_port_in_use_names_the_admin_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let project = project(&[]);
    let said = surus(
        &["serve", project.path().to_str().unwrap(), "--listen", "0"],
        &[("SURUS_ADMIN_LISTEN", &address)],
    );
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &[
            "the admin listener",
            &address,
            "another process",
            "with admin.listen",
        ],
    );
    assert!(!said.stderr.contains("http.listen"), "{}", said.stderr);
}

#[test]
fn missing_preload_file_is_named_even_without_log_errors() {
    let project = project(&[("index.php", "")]);
    let settings = [
        "opcache.preload=/nowhere/preload.php",
        "opcache.preload_user=www-data",
        "log_errors=0",
    ];
    let mut args = vec!["serve", project.path().to_str().unwrap(), "--listen", "0"];
    args.extend(settings.iter().flat_map(|setting| ["-d", setting]));
    let said = surus(&args, &[]);
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &["cannot read /nowhere/preload.php (opcache.preload): No such file"],
    );
}

#[test]
fn preload_that_fails_without_a_message_is_explained() {
    let project = project(&[("index.php", ""), ("pre.php", "<?php exit(1);")]);
    let file = project.path().join("pre.php");
    let preload = format!("opcache.preload={}", file.display());
    let start = |user: &str, log_errors: &str, env: &[(&str, &str)]| {
        let user = format!("opcache.preload_user={user}");
        let errors = format!("log_errors={log_errors}");
        let mut args = vec!["serve", project.path().to_str().unwrap(), "--listen", "0"];
        for setting in [&preload, &user, &errors] {
            args.extend(["-d", setting]);
        }
        let said = surus(&args, env);
        assert_eq!(said.status, 1, "{}", said.stderr);
        said.stderr
    };
    let said = start("www-data", "1", &[]);
    says(
        &said,
        &[
            "pre.php",
            "if there is no error above, the file ends by exit",
        ],
    );
    assert!(!said.contains("set log_errors"), "{said}");
    says(
        &start("www-data", "0", &[]),
        &["pre.php", "set log_errors = 1"],
    );
    // PHP ignores the user unless it runs as root.
    if is_root() {
        let said = start("nosuch", "1", &[("SURUS_ENGINE_USER", "root")]);
        let advice = "\"opcache.preload_user\" names a user that does not exist";
        says(&said, &["nosuch", advice]);
    }
}

#[test]
fn unreadable_document_root_is_named() {
    use std::os::unix::fs::PermissionsExt;
    // Root may read everything, so another user runs it, from a directory that everybody may read.
    let directory = project(&[("app/index.php", "")]);
    let program = directory.path().join("surus");
    copy_executable(env!("CARGO_BIN_EXE_surus").as_ref(), &program);
    let closed = directory.path().join("app");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = Command::new(&program);
    command
        .arg("serve")
        .arg(&closed)
        .args(["--listen", "127.0.0.1:0"]);
    command.current_dir("/").env_remove("XDG_RUNTIME_DIR");
    if is_root() {
        command.uid(65534).gid(65534);
    }
    let said = run(&mut command);
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &[closed.to_str().unwrap(), "Permission denied"],
    );
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout == b"0\n"
}
