//! Tests of `surus lambda check`: it reports mistakes with their lines, and nothing else.

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
        "template.yaml:6: Jobs hides a message for 30 s, but Shop has Timeout 60, which Lambda rejects",
        "template.yaml:6: Jobs has no dead-letter queue",
        "template.yaml:7: Shop reports which records of Jobs failed",
    ] {
        assert!(said.contains(expected), "{expected} is not in\n{said}");
    }
    assert!(!said.contains("lambda:InvokeFunctionUrl it"), "{said}");
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

/// A zip with these files and a `bootstrap` whose ELF header names this machine (`e_machine`).
fn zip(path: &Path, machine: u8, files: &[(&str, &str)]) {
    use std::io::Write;
    let mut header = [0; 64];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    header[18] = machine;
    let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    let options = zip::write::SimpleFileOptions::default();
    zip.start_file("bootstrap", options).unwrap();
    zip.write_all(&header).unwrap();
    for (name, text) in files {
        zip.start_file(*name, options).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    zip.finish().unwrap();
}

const X86_64: u8 = 62;
const ARM64: u8 = 183;

/// The findings for a project with a template, a zip and files, without the file's name.
fn findings(template: &str, configuration: &str, prepare: impl Fn(&Path)) -> String {
    let dir = project(template, configuration);
    prepare(dir.path());
    let output = check(dir.path());
    let said = said(&output);
    assert_eq!(output.status.success(), !said.contains('✗'), "{said}");
    said.replace(&format!("{}/template.yaml", dir.path().display()), "")
}

#[test]
fn architecture_mismatch_is_found() {
    let template = |architecture: &str| {
        let properties = format!(
            "      CodeUri: function.zip\n      Handler: bootstrap\n      Architectures: [{architecture}]"
        );
        function(&properties, "")
    };
    for (wanted, machine, architecture) in [("arm64", X86_64, "x86_64"), ("x86_64", ARM64, "arm64")]
    {
        let made = |dir: &Path| zip(&dir.join("function.zip"), machine, &[]);
        let said = findings(&template(wanted), "", made);
        let expected = format!(
            "✗ :11: Shop has Architectures: [{wanted}], but the bootstrap of its zip is for {architecture}"
        );
        assert!(said.contains(&expected), "{said}");
        assert!(
            said.contains(&format!("write Architectures: [{architecture}]")),
            "{said}"
        );
        let fitting = findings(&template(architecture), "", made);
        assert!(fitting.contains("no problems found"), "{fitting}");
    }
    // Without a zip, this machine's architecture counts.
    let here = if std::env::consts::ARCH == "aarch64" {
        "arm64"
    } else {
        "x86_64"
    };
    let other = if here == "arm64" { "x86_64" } else { "arm64" };
    let said = findings(&template(other), "", |_| {});
    assert!(
        said.contains(&format!(
            "! :11: Shop has Architectures: [{other}], but `surus lambda package` on this machine makes zips for {here}"
        )),
        "{said}"
    );
    // x86_64 is Lambda's default.
    let silent = function("      CodeUri: function.zip\n      Handler: bootstrap", "");
    let said = findings(&silent, "", |dir| {
        zip(&dir.join("function.zip"), ARM64, &[])
    });
    assert!(
        said.contains("✗ :3: Shop has Architectures: [x86_64]"),
        "{said}"
    );
}

#[test]
fn missing_handler_is_found() {
    let template = |handler: &str| {
        function(
            &format!("      CodeUri: function.zip\n      Handler: {handler}"),
            "",
        )
    };
    let nothing = |_: &Path| {};
    let said = findings(&template("gone.php"), "", nothing);
    assert!(
        said.contains("✗ :10: the handler of Shop is gone.php, which the package does not contain"),
        "{said}"
    );
    for handler in ["events.php", "bootstrap", "word"] {
        let said = findings(&template(handler), "", nothing);
        assert!(said.contains("no problems found"), "{handler}: {said}");
    }
    // The zip counts if there is one, and surus.toml if it names a handler.
    let made = |dir: &Path| {
        zip(
            &dir.join("function.zip"),
            X86_64,
            &[("app/new.php", "<?php")],
        )
    };
    let said = findings(&template("events.php"), "", made);
    assert!(said.contains("the handler of Shop is events.php"), "{said}");
    let said = findings(&template("new.php"), "", made);
    assert!(said.contains("no problems found"), "{said}");
    let said = findings(
        &template("gone.php"),
        "[lambda]\nhandler = 'events.php'\n",
        nothing,
    );
    assert!(said.contains("no problems found"), "{said}");
}

#[test]
fn code_directory_without_bootstrap_is_found() {
    let template = function("      CodeUri: src/\n      Handler: bootstrap", "");
    let make = |dir: &Path| std::fs::create_dir_all(dir.join("src")).unwrap();
    let said = findings(&template, "", make);
    assert!(
        said.contains("✗ :9: the code of Shop is the directory src/, which has no bootstrap"),
        "{said}"
    );
    assert!(said.contains("write CodeUri: function.zip"), "{said}");
    let built = template.replace(
        "    Properties:",
        "    Metadata: {BuildMethod: makefile}\n    Properties:",
    );
    for (template, bootstrap) in [(&built, false), (&template, true)] {
        let said = findings(template, "", |dir| {
            make(dir);
            if bootstrap {
                std::fs::write(dir.join("src/bootstrap"), "").unwrap();
            }
        });
        assert!(said.contains("no problems found"), "{said}");
    }
}

#[test]
fn unused_bref_layer_is_found() {
    let layers = |layer: &str| {
        let properties = format!(
            "      CodeUri: function.zip\n      Handler: bootstrap\n      Layers:\n        - {layer}"
        );
        findings(&function(&properties, ""), "", |_| {})
    };
    for layer in [
        "arn:aws:lambda:eu-west-1:873528684822:layer:arm-php-84-fpm:12",
        "!Sub 'arn:aws:lambda:${AWS::Region}:534081306603:layer:php-83:45'",
        "arn:aws:lambda:eu-west-1:1:layer:bref-extra-imagick:1",
    ] {
        let said = layers(layer);
        assert!(
            said.contains("! :12: Shop uses Bref's layer"),
            "{layer}: {said}"
        );
        assert!(said.contains("remove it from Layers"), "{said}");
    }
    for other in [
        "arn:aws:lambda:eu-west-1:1:layer:datadog-extension:1",
        "!Ref Mine",
    ] {
        assert!(layers(other).contains("no problems found"), "{other}");
    }
}

#[test]
fn unhandled_or_empty_schedule_is_found() {
    let schedule = |handler: &str, input: &str| {
        let properties = format!(
            "      CodeUri: function.zip
      Handler: {handler}
      Events:
        Night: {{Type: Schedule, Properties: {{Schedule: rate(1 day){input}}}}}"
        );
        findings(&function(&properties, ""), "", |dir| {
            std::fs::create_dir_all(dir.join("public")).unwrap();
            std::fs::create_dir_all(dir.join("bin")).unwrap();
            std::fs::write(dir.join("public/index.php"), "<?php").unwrap();
            std::fs::write(dir.join("bin/console"), "#!/usr/bin/env php\n<?php").unwrap();
        })
    };
    let command = ", Input: '{\"command\": \"app:report\"}'";
    for (handler, input, expected) in [
        (
            "bootstrap",
            "",
            "! :12: a schedule invokes Shop, which has an HTTP application but no handler",
        ),
        ("bootstrap", command, "its events go to POST /events"),
        (
            "public/index.php",
            "",
            "which has an HTTP application but no handler",
        ),
        (
            "bin/console",
            "",
            "✗ :12: the handler of Shop runs commands, but a schedule without Input names none",
        ),
        ("bin/console", command, "no problems found"),
        ("events.php", "", "! :12: a schedule of Shop has no Input"),
        ("events.php", command, "no problems found"),
    ] {
        let said = schedule(handler, input);
        assert!(said.contains(expected), "{handler} {input}: {said}");
    }
    let rule = "  Rule:
    Type: AWS::Events::Rule
    Properties: {ScheduleExpression: rate(1 day), Targets: [{Id: a, Arn: !GetAtt Shop.Arn}]}
  Nightly:
    Type: AWS::Scheduler::Schedule
    Properties: {ScheduleExpression: rate(1 day), Target: {Arn: !GetAtt Shop.Arn, Input: '{}'}}\n";
    let template = function(
        "      CodeUri: function.zip\n      Handler: events.php",
        rule,
    );
    let said = findings(&template, "", |_| {});
    assert!(
        said.contains("! :11: a schedule of Shop has no Input"),
        "{said}"
    );
    assert_eq!(said.matches("schedule").count(), 1, "{said}");
}

#[test]
fn load_balancer_without_multi_value_headers_is_found() {
    let group = |attributes: &str, more: &str| {
        let resources = format!(
            "  Group:
    Type: AWS::ElasticLoadBalancingV2::TargetGroup
    Properties:
      TargetType: lambda
      Targets: [{{Id: !GetAtt Shop.Arn}}]
{attributes}{more}"
        );
        let template = function(
            "      CodeUri: function.zip\n      Handler: bootstrap",
            &resources,
        );
        findings(&template, "", |_| {})
    };
    let multi =
        "      TargetGroupAttributes: [{Key: lambda.multi_value_headers.enabled, Value: true}]\n";
    let may = "  May:
    Type: AWS::Lambda::Permission
    Properties: {FunctionName: !Ref Shop, Action: lambda:InvokeFunction, Principal: elasticloadbalancing.amazonaws.com}\n";
    let said = group("", may);
    assert!(
        said.contains("! :11: the load balancer of Shop passes on one value per header"),
        "{said}"
    );
    assert!(
        said.contains("lambda.multi_value_headers.enabled"),
        "{said}"
    );
    let said = group(&multi.replace("true", "\"false\""), may);
    assert!(said.contains("one value per header"), "{said}");
    let said = group(multi, "");
    assert!(
        said.contains("Principal: elasticloadbalancing.amazonaws.com"),
        "{said}"
    );
    let said = group(multi, may);
    assert!(said.contains("no problems found"), "{said}");
}

#[test]
fn binary_media_types_mismatch_is_found() {
    let api = |types: &str, configuration: &str| {
        let globals = format!("Globals: {{Api: {{{types}}}}}\nResources:");
        let properties = "      CodeUri: function.zip
      Handler: bootstrap
      Events:
        All: {Type: Api, Properties: {Path: '/{proxy+}', Method: ANY}}";
        let template = function(properties, "").replace("Resources:", &globals);
        findings(&template, configuration, |_| {})
    };
    let binary = "BinaryMediaTypes: ['*/*']";
    let knows = "[lambda]\nbinary_media_types = ['*/*']\n";
    for (types, configuration, expected) in [
        (
            "",
            "",
            "! :13: the REST API of Shop treats all bodies as text",
        ),
        ("", knows, "✗ :13: Shop sends compressed pages"),
        (
            binary,
            "",
            "! :13: the REST API of Shop has BinaryMediaTypes, but Surus is not told",
        ),
        (
            binary,
            "[lambda]\nmode = 'stream'\n",
            "responseTransferMode",
        ),
        (binary, knows, "no problems found"),
    ] {
        let said = api(types, configuration);
        assert!(said.contains(expected), "{types} {configuration}: {said}");
        assert!(
            !said.contains("is not told") || expected.contains("is not told"),
            "{said}"
        );
    }
}
