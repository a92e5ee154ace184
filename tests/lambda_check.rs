//! Does `surus lambda check` find what goes wrong, where it is written, and nothing else?
#![allow(clippy::unwrap_used)]

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

/// A template with nothing wrong in it; each test takes one thing away.
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
fn a_good_template_is_left_in_peace() {
    let dir = project(GOOD, "[lambda]\nhandler = 'events.php'\n");
    let output = check(dir.path());
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("nothing found"), "{}", said(&output));
}

/// What `surus lambda template` prints is what `surus lambda check` wants.
#[test]
fn our_own_templates_have_nothing_wrong() {
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
            said(&output).contains("nothing found"),
            "{options:?}: {}",
            said(&output)
        );
    }
}

/// Each is a change of the good template, the configuration, how certain it is, the line, and what is said.
const CHANGES: &[(&str, &str, &str, char, usize, &str)] = &[
    (
        "FunctionResponseTypes: [ReportBatchItemFailures]",
        "Enabled: true",
        "[lambda]\nbatch = 'record'\n",
        '✗',
        23,
        "Lambda does not listen and deletes them all",
    ),
    // The handler decides what it answers.
    (
        "FunctionResponseTypes: [ReportBatchItemFailures]",
        "Enabled: true",
        "",
        '!',
        23,
        "if it throws, the whole batch comes again",
    ),
    (
        "AuthType: NONE",
        "AuthType: AWS_IAM",
        "[lambda]\nmode = 'stream'\n",
        '✗',
        17,
        "set InvokeMode: RESPONSE_STREAM",
    ),
    (
        "AuthType: NONE",
        "AuthType: AWS_IAM",
        "[lambda]\nmode = 'stream'\n",
        '✗',
        21,
        "which an HTTP API does not take",
    ),
    (
        "AuthType: NONE",
        "AuthType: NONE",
        "[lambda]\nrecord_timeout = '20s'\n",
        '!',
        16,
        "a late record is ended earlier than it is told",
    ),
    (
        "VisibilityTimeout: 120",
        "VisibilityTimeout: 19",
        "",
        '✗',
        32,
        "set VisibilityTimeout to 120",
    ),
    (
        "VisibilityTimeout: 120",
        "VisibilityTimeout: 60",
        "",
        '!',
        32,
        "set VisibilityTimeout to 120",
    ),
    // Lambda's default is 30 s.
    (
        "      VisibilityTimeout: 120\n",
        "",
        "",
        '!',
        29,
        "hides a message for 30 s",
    ),
    (
        "Default: 20",
        "Default: 31",
        "",
        '!',
        16,
        "its HTTP API answers 503 after 30 s",
    ),
    (
        "BatchSize: 10",
        "BatchSize: 100",
        "",
        '✗',
        27,
        "set MaximumBatchingWindowInSeconds: 1",
    ),
    (
        "VisibilityTimeout: 120",
        "FifoQueue: true",
        "",
        '✗',
        33,
        "SQS wants both alike: set FifoQueue of Failed",
    ),
    (
        "maxReceiveCount: 5",
        "maxReceiveCount: 1",
        "",
        '!',
        35,
        "gives a message up after 1 attempts",
    ),
    (
        "InvokeMode: BUFFERED",
        "InvokeMode: RESPONSE_STREAM",
        "",
        '!',
        17,
        "mode = \"stream\", or remove InvokeMode",
    ),
    (
        "Runtime: provided.al2023",
        "Runtime: php8.2",
        "",
        '✗',
        8,
        "set Runtime: provided.al2023",
    ),
    (
        "MemorySize: 512",
        "MemorySize: 512",
        "[engine]\nworkers = 5\n",
        '!',
        9,
        "5 workers that all reach memory_limit (128 MB) need 640 MB",
    ),
    // Records are done by as many workers as the machine has time for, where no number is set.
    (
        "MemorySize: 512",
        "MemorySize: 512",
        "[lambda]\nbatch = 'record'\n[php]\nmemory_limit = '256M'\n",
        '!',
        9,
        "4 workers that all reach memory_limit (256 MB) need 1024 MB",
    ),
    (
        "MemorySize: 512",
        "MemorySize: 512",
        "[lambda]\nbatch = 'record'\n[php]\nmemory_limit = '256M'\n[pool.events]\nworkers = 3\n",
        '!',
        9,
        "3 workers that all reach memory_limit (256 MB) need 768 MB",
    ),
    (
        "MemorySize: 512",
        "MemorySize: 512",
        "[php]\nmemory_limit = '1G'\n",
        '!',
        9,
        "(1024 MB) need 1024 MB, and Shop has 512 MB",
    ),
    // The template's environment counts as it will there.
    (
        "      Timeout: !Ref Seconds\n",
        "      Environment: {Variables: {SURUS_ENGINE_WORKERS: 9}}\n      Timeout: !Ref Seconds\n",
        "",
        '!',
        9,
        "9 workers",
    ),
    (
        "    Runtime: provided.al2023\n",
        "    Runtime: provided.al2023\n    SnapStart: {ApplyOn: PublishedVersions}\n",
        "",
        '✗',
        9,
        "SnapStart",
    ),
    (
        "Type: HttpApi",
        "Type: Api\n          Properties: {Path: /, Method: any}",
        "",
        '!',
        21,
        "set BinaryMediaTypes",
    ),
];

#[test]
fn what_goes_wrong_is_found_where_it_is_written() {
    for (from, to, configuration, mark, line, expected) in CHANGES {
        assert!(GOOD.contains(from), "{from}");
        let dir = project(&GOOD.replacen(from, to, 1), configuration);
        let output = check(dir.path());
        let said = said(&output);
        let found = said.lines().find(|text| text.contains(expected));
        let found = found.unwrap_or_else(|| panic!("{from} → {to}: {expected} is not in\n{said}"));
        let place = format!(
            "{mark} {}:{line}: ",
            dir.path().join("template.yaml").display()
        );
        assert!(found.starts_with(&place), "{from} → {to}: {found}");
        assert_eq!(output.status.success(), !said.contains('✗'), "{said}");
    }
}

#[test]
fn a_fifo_queue_has_limits_of_its_own() {
    let fifo =
        GOOD.replace(
            "VisibilityTimeout: 120",
            "VisibilityTimeout: 125\n      FifoQueue: true",
        )
        .replace(
            "BatchSize: 10",
            "BatchSize: 11\n            MaximumBatchingWindowInSeconds: 5",
        ) + "    Properties: {FifoQueue: true}\n";
    let dir = project(&fifo, "");
    let said = said(&check(dir.path()));
    assert!(
        said.contains("for which Lambda refuses a batching window"),
        "{said}"
    );
    assert!(
        said.contains("refuses more than 10 messages at once; lower BatchSize"),
        "{said}"
    );
    assert_eq!(said.matches('✗').count(), 3, "{said}"); // with the sum
}

#[test]
fn cloudformation_without_sam_is_read_too() {
    let template = r#"{
  "Resources": {
    "Shop": {"Type": "AWS::Lambda::Function", "Properties": {"Runtime": "provided.al2023", "Timeout": 60, "MemorySize": 1024}},
    "Url": {"Type": "AWS::Lambda::Url", "Properties": {"TargetFunctionArn": {"Fn::GetAtt": ["Shop", "Arn"]}, "AuthType": "NONE"}},
    "May": {"Type": "AWS::Lambda::Permission", "Properties": {"FunctionName": {"Ref": "Shop"}, "Action": "lambda:InvokeFunctionUrl"}},
    "Jobs": {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 30}},
    "Mapping": {"Type": "AWS::Lambda::EventSourceMapping", "Properties": {
      "FunctionName": {"Ref": "Shop"}, "EventSourceArn": {"Fn::GetAtt": "Jobs.Arn"}}}
  }
}"#;
    let dir = project(template, "[lambda]\nbatch = 'record'\n");
    let said = said(&check(dir.path()));
    for expected in [
        "template.yaml:4: the URL of Shop has AuthType NONE, but without a permission for lambda:InvokeFunction it",
        "template.yaml:6: Jobs hides a message for 30 s, but Shop may take 60 s, which Lambda refuses",
        "template.yaml:6: Jobs has no dead-letter queue",
        "template.yaml:7: Shop tells Lambda which records of Jobs have failed",
    ] {
        assert!(said.contains(expected), "{expected} is not in\n{said}");
    }
    assert!(!said.contains("lambda:InvokeFunctionUrl it"), "{said}");
}

#[test]
fn what_cannot_be_read_is_said() {
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
