//! Tests of `surus lambda check`: it reports mistakes with their lines, and nothing else.

mod callers;
mod code;
mod settings;
mod templates;

use std::path::Path;
use std::process::{Command, Output};

fn check(dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_surus"))
        .args(["lambda", "check"])
        .arg(dir)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).unwrap()
}

fn project(template: &str, configuration: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("template.yaml"), template).unwrap();
    std::fs::write(dir.path().join("surus.toml"), configuration).unwrap();
    std::fs::write(
        dir.path().join("events.php"),
        "<?php return fn (array $event) => $event;\n",
    )
    .unwrap();
    dir
}

/// A template without mistakes; each test introduces one.
const GOOD: &str = r#"Transform: AWS::Serverless-2016-10-31
Parameters:
  Seconds:
    Type: Number
    Default: 20
Globals:
  Function:
    Runtime: provided.al2023
    MemorySize: 512
Resources:
  Shop:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: function.zip
      Handler: events.php
      Timeout: !Ref Seconds
      FunctionUrlConfig:
        AuthType: NONE
        InvokeMode: BUFFERED
      Events:
        Http:
          Type: HttpApi
        Jobs:
          Type: SQS
          Properties:
            Queue: !GetAtt Jobs.Arn
            BatchSize: 10
            FunctionResponseTypes: [ReportBatchItemFailures]
  Jobs:
    Type: AWS::SQS::Queue
    Properties:
      VisibilityTimeout: 120
      RedrivePolicy:
        deadLetterTargetArn: !GetAtt Failed.Arn
        maxReceiveCount: 5
  Failed:
    Type: AWS::SQS::Queue
"#;

#[test]
fn good_template_has_no_findings() {
    let dir = project(GOOD, "[lambda]\nhandler = 'events.php'\n");
    let output = check(dir.path());
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("no problems found"),
        "{}",
        said(&output)
    );
}

/// The templates of `surus lambda template` pass `surus lambda check`.
#[test]
fn generated_templates_have_no_findings() {
    for options in [
        &["--http", "url"][..],
        &["--http", "api"],
        &["--queue", "standard"],
        &["--queue", "fifo", "--http", "url"],
    ] {
        let dir = project("", "[lambda]\nhandler = 'events.php'\n");
        let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
        let template = command
            .args(["lambda", "template", "sam"])
            .args(options)
            .arg(dir.path())
            .output()
            .unwrap();
        assert!(template.status.success(), "{}", said(&template));
        std::fs::write(dir.path().join("template.yaml"), template.stdout).unwrap();
        let output = check(dir.path());
        assert!(
            said(&output).contains("no problems found"),
            "{options:?}: {}",
            said(&output)
        );
    }
}

#[test]
fn unreadable_template_is_reported() {
    for (template, expected) in [
        ("Resources:\n  A: [\n", "template.yaml: line"),
        ("a: b\n", "it has no Resources"),
        (
            "Resources:\n  Q: {Type: 'AWS::SQS::Queue'}\n",
            "describes no function",
        ),
    ] {
        let dir = project(template, "");
        let said = said(&check(dir.path()));
        assert!(said.contains(expected), "{expected} is not in\n{said}");
    }
    let dir = project(GOOD, "[lambda]\nhandler = 'gone.php'\n");
    assert!(said(&check(dir.path())).contains("handler names gone.php, which does not exist"));
    std::fs::remove_file(dir.path().join("template.yaml")).unwrap();
    assert!(said(&check(dir.path())).contains("surus lambda template sam"));
}

/// A SAM function with these properties in addition to the usual ones, and these resources.
fn function(properties: &str, resources: &str) -> String {
    format!(
        "Transform: AWS::Serverless-2016-10-31
Resources:
  Shop:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: provided.al2023
      MemorySize: 1024
      Timeout: 20
{properties}
{resources}"
    )
}

/// The findings for a project with a template, a zip and files, without the file's name.
fn findings(template: &str, configuration: &str, prepare: impl Fn(&Path)) -> String {
    let dir = project(template, configuration);
    prepare(dir.path());
    let output = check(dir.path());
    let said = said(&output);
    assert_eq!(output.status.success(), !said.contains('✗'), "{said}");
    said.replace(&format!("{}/template.yaml", dir.path().display()), "")
}
