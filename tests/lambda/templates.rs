//! Tests that the deployment tools accept the templates of `surus lambda template`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const BUFFERED: &str = "[lambda]\nhandler = \"events.php\"\n";

/// Configurations and options.
const CASES: &[(&str, &[&str])] = &[
    (BUFFERED, &["--http", "url"]),
    (
        BUFFERED,
        &[
            "--http",
            "api",
            "--env",
            "APP_ENV=prod",
            "--env",
            "QUOTED=a \"b\" ${c} %{d} #e: f",
        ],
    ),
    (
        BUFFERED,
        &[
            "--queue",
            "standard",
            "--architecture",
            "arm64",
            "--memory",
            "10240",
            "--timeout",
            "900",
        ],
    ),
    (
        BUFFERED,
        &["--queue", "fifo", "--http", "url", "--name", "other-name"],
    ),
    (BUFFERED, &["--queue", "fifo", "--http", "api"]),
];

fn project(configuration: &str) -> tempfile::TempDir {
    let dir = tempfile::Builder::new().prefix("shop").tempdir().unwrap();
    std::fs::write(dir.path().join("surus.toml"), configuration).unwrap();
    dir
}

fn surus(args: &[&str], project: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command
        .args(["lambda", "template"])
        .args(args)
        .arg(project)
        .output()
        .unwrap()
}

/// The template for a tool with these options.
fn template(tool: &str, configuration: &str, options: &[&str]) -> String {
    let project = project(configuration);
    let output = surus(&[&[tool], options].concat(), project.path());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {options:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// A program that `make setup` installs. If it is missing, the test prints why and passes; with
/// `CI` set it fails.
fn installed(name: &str) -> Option<PathBuf> {
    let surus = Path::new(env!("CARGO_BIN_EXE_surus"));
    let path = surus
        .ancestors()
        .nth(2)
        .unwrap()
        .join("tools/lint/bin")
        .join(name);
    if path.is_file() {
        return Some(path);
    }
    let text = format!(
        "skipped: {} is missing; make setup installs it",
        path.display()
    );
    assert!(std::env::var_os("CI").is_none(), "{text}");
    eprintln!("{text}");
    None
}

fn accepts(program: &Path, args: &[&str], files: &[PathBuf]) {
    let output = Command::new(program)
        .args(args)
        .args(files)
        .output()
        .unwrap();
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(
        output.status.success(),
        "{said}\n{}",
        std::fs::read_to_string(&files[0]).unwrap()
    );
}

/// Writes the templates of all cases to files.
fn all(tool: &str, extension: &str, dir: &Path) -> Vec<PathBuf> {
    let write = |(index, (configuration, options)): (usize, &(&str, &[&str]))| {
        let file = dir.join(format!("{index}.{extension}"));
        std::fs::write(&file, template(tool, configuration, options)).unwrap();
        file
    };
    CASES.iter().enumerate().map(write).collect()
}

#[test]
fn sam_template_is_valid_cloudformation() {
    let Some(lint) = installed("cfn-lint") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    accepts(
        &lint,
        &["--region", "eu-central-1", "--"],
        &all("sam", "yaml", dir.path()),
    );
}

#[test]
fn terraform_template_is_valid() {
    let Some(parse) = installed("hcl2tojson") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for file in all("terraform", "tf", dir.path()) {
        accepts(&parse, &[], &[file]);
    }
}

/// Settings whose absence hurts, in each tool's syntax.
#[test]
fn every_template_has_the_easily_forgotten_settings() {
    for (tool, words) in [
        (
            "sam",
            [
                "FunctionResponseTypes: [ReportBatchItemFailures]",
                "VisibilityTimeout: 360",
                "maxReceiveCount: 5",
                "FifoQueue: true",
            ],
        ),
        (
            "terraform",
            [
                "function_response_types = [\"ReportBatchItemFailures\"]",
                "visibility_timeout_seconds = 360",
                "maxReceiveCount     = 5",
                "invoked_via_function_url = true",
            ],
        ),
        (
            "cdk",
            [
                "reportBatchItemFailures: true",
                "cdk.Duration.seconds(360)",
                "maxReceiveCount: 5",
                "fifo: true",
            ],
        ),
        (
            "serverless",
            [
                "functionResponseType: ReportBatchItemFailures",
                "VisibilityTimeout: 360",
                "maxReceiveCount: 5",
                "InvokedViaFunctionUrl: true",
            ],
        ),
    ] {
        let text = template(tool, BUFFERED, &["--queue", "fifo", "--http", "url"]);
        for word in words {
            assert!(text.contains(word), "{tool}: {word} in\n{text}");
        }
        assert!(
            text.contains("events.php"),
            "{tool}: the handler in\n{text}"
        );
    }
}

#[test]
fn invalid_template_options_are_rejected() {
    for (configuration, options, expected) in [
        (
            BUFFERED,
            &["--http", "api", "--timeout", "60"][..],
            "an HTTP API answers 503 after 30 s",
        ),
        (BUFFERED, &["--http", "none"], "nothing would call"),
        (BUFFERED, &["--memory", "64"], "128 to 10240 MB"),
        (BUFFERED, &["--timeout", "901"], "1 to 900 seconds"),
        (
            BUFFERED,
            &["--name", "my shop"],
            "letters, digits and dashes",
        ),
        (BUFFERED, &["--env", "1A=x"], "starts with a letter"),
        ("", &["--queue", "fifo"], "[lambda] handler"),
    ] {
        let project = project(configuration);
        let output = surus(&[&["sam"], options].concat(), project.path());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(expected),
            "{options:?}: {errors}"
        );
    }
}

/// The Dockerfile names its packages after a PHP version: the one that the tests build for.
#[test]
fn dockerfile_has_the_projects_extensions() {
    let dir = project("[package]\nextensions = [\"redis\"]\n");
    std::fs::write(
        dir.path().join("composer.json"),
        r#"{"require": {"ext-intl": "*"}}"#,
    )
    .unwrap();
    let output = surus(&["dockerfile", "--extension", "pdo_mysql"], dir.path());
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "FROM debian:",
        "-intl",
        "-redis",
        "-mysql",
        "-opcache",
        "ENTRYPOINT [\"/usr/local/bin/surus\", \"lambda\"]",
    ] {
        assert!(
            text.contains(expected),
            "{expected} in\n{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let Some(lint) = installed("hadolint") else {
        return;
    };
    let file = dir.path().join("Dockerfile");
    std::fs::write(&file, text).unwrap();
    accepts(&lint, &[], &[file]);
}
