//! Settings that contradict each other: of functions, their queues and URLs, and surus.toml.

use super::{GOOD, check, project, said};

/// Changes of the good template: from, to, configuration, mark, line, expected message.
const CHANGES: &[(&str, &str, &str, char, usize, &str)] = &[
    (
        "FunctionResponseTypes: [ReportBatchItemFailures]",
        "Enabled: true",
        "[lambda]\nbatch = 'record'\n",
        '✗',
        23,
        "Lambda ignores the report and deletes them all",
    ),
    // The handler determines its result.
    (
        "FunctionResponseTypes: [ReportBatchItemFailures]",
        "Enabled: true",
        "",
        '!',
        23,
        "if it throws, Lambda sends the whole batch again",
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
        "but an HTTP API does not",
    ),
    (
        "AuthType: NONE",
        "AuthType: NONE",
        "[lambda]\nrecord_timeout = '20s'\n",
        '!',
        16,
        "so late records are cut short",
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
        "SQS requires the same of both: set FifoQueue of Failed",
    ),
    (
        "maxReceiveCount: 5",
        "maxReceiveCount: 1",
        "",
        '!',
        35,
        "gives up a message after 1 attempts",
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
        "5 workers at memory_limit (128 MB) need 640 MB",
    ),
    // Without a setting, the records run on as many workers as the machine has CPU time for.
    (
        "MemorySize: 512",
        "MemorySize: 512",
        "[lambda]\nbatch = 'record'\n[php]\nmemory_limit = '256M'\n",
        '!',
        9,
        "4 workers at memory_limit (256 MB) need 1024 MB",
    ),
    (
        "MemorySize: 512",
        "MemorySize: 512",
        "[lambda]\nbatch = 'record'\n[php]\nmemory_limit = '256M'\n[pool.events]\nworkers = 3\n",
        '!',
        9,
        "3 workers at memory_limit (256 MB) need 768 MB",
    ),
    (
        "MemorySize: 512",
        "MemorySize: 512",
        "[php]\nmemory_limit = '1G'\n",
        '!',
        9,
        "(1024 MB) need 1024 MB, but Shop has 512 MB",
    ),
    // The template's environment counts.
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
        "set its BinaryMediaTypes",
    ),
];

#[test]
fn mistake_is_reported_at_its_line() {
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
fn fifo_queue_limits_are_checked() {
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
        said.contains("for which Lambda rejects a batching window"),
        "{said}"
    );
    assert!(
        said.contains("rejects batches of more than 10 messages; lower BatchSize"),
        "{said}"
    );
    assert_eq!(said.matches('✗').count(), 3, "{said}"); // with the sum
}

#[test]
fn plain_cloudformation_is_checked() {
    let template = r#"{
  "Resources": {
    "Shop": {
      "Type": "AWS::Lambda::Function",
      "Properties": {"Runtime": "provided.al2023", "Timeout": 60, "MemorySize": 1024}
    },
    "Url": {
      "Type": "AWS::Lambda::Url",
      "Properties": {"TargetFunctionArn": {"Fn::GetAtt": ["Shop", "Arn"]}, "AuthType": "NONE"}
    },
    "May": {
      "Type": "AWS::Lambda::Permission",
      "Properties": {"FunctionName": {"Ref": "Shop"}, "Action": "lambda:InvokeFunctionUrl"}
    },
    "Jobs": {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 30}},
    "Mapping": {
      "Type": "AWS::Lambda::EventSourceMapping",
      "Properties": {
        "FunctionName": {"Ref": "Shop"},
        "EventSourceArn": {"Fn::GetAtt": "Jobs.Arn"}
      }
    }
  }
}"#;
    let dir = project(template, "[lambda]\nbatch = 'record'\n");
    let said = said(&check(dir.path()));
    for expected in [
        "template.yaml:7: the URL of Shop has AuthType NONE, but without a permission for \
            lambda:InvokeFunction it",
        "template.yaml:15: Jobs hides a message for 30 s, but Shop has Timeout 60, which Lambda \
            rejects",
        "template.yaml:15: Jobs has no dead-letter queue",
        "template.yaml:16: Shop reports which records of Jobs failed",
    ] {
        assert!(said.contains(expected), "{expected} is not in\n{said}");
    }
    assert!(!said.contains("lambda:InvokeFunctionUrl it"), "{said}");
}
