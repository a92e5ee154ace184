//! Tests of `surus lambda deploy`, `logs` and `console` against moto.

mod aws;
mod fault;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use aws::{ARM64, Aws, Project, RISCV, ROLE, X86_64, bare, follow};
use fault::{Fault, Network, Proxy};
use serde_json::{Value, json};

const SHOP: &str = "[deploy]\nname = 'shop'\nrole = 'arn:aws:iam::123456789012:role/shop'\n\
                    [deploy.env]\nAPP_ENV = 'prod'\n";

#[test]
fn deployment_creates_and_updates_the_function_and_changes_nothing_twice() {
    let Some(aws) = Aws::start("eu-central-1") else {
        return;
    };
    let project = Project::new(SHOP);
    for _ in 0..2 {
        let said = project.deploy(&aws, &["--dry-run"]).succeeded();
        for part in [
            "would create the function shop",
            "x86_64, 1024 MB, 60 s",
            "would publish a version",
            "would request / of the new version",
            "would create the alias live",
            "would create a public function URL (BUFFERED)",
            "would allow lambda:InvokeFunctionUrl through the URL",
        ] {
            assert!(said.out.contains(part), "no {part:?} in {}", said.out);
        }
    }
    assert!(aws.lambda("functions/shop/configuration").is_none());

    let said = project.deploy(&aws, &[]).succeeded();
    assert!(said.out.starts_with("https://") && said.out.lines().count() == 1);
    assert!(
        said.err.contains("create the function shop"),
        "{}",
        said.err
    );
    let function = aws.lambda("functions/shop/configuration").unwrap();
    assert_eq!(function["Runtime"], "provided.al2023");
    assert_eq!(function["Architectures"], json!(["x86_64"]));
    assert_eq!(function["Role"], ROLE);
    assert_eq!(function["Environment"]["Variables"]["APP_ENV"], "prod");
    assert_eq!(aws.live("shop").unwrap(), "1");
    assert_eq!(statements(&aws, "shop"), 2);

    let again = project.deploy(&aws, &[]).succeeded();
    assert_eq!(again.err, "shop is up to date\n");
    assert_eq!(again.out, said.out);
    assert_eq!(aws.live("shop").unwrap(), "1");
    let said = project.deploy(&aws, &["--dry-run"]).succeeded();
    assert_eq!(said.out, "nothing to do: shop is up to date\n");

    project.package(X86_64, b"<?php echo 2;");
    let options = ["--memory", "512", "--env", "DSN=a-secret"];
    let said = project.deploy(&aws, &options).succeeded();
    let change = "update the configuration: memory 1024 MB → 512 MB, variable DSN";
    assert!(said.err.contains(change), "{}", said.err);
    assert!(!said.err.contains("a-secret"));
    let function = aws.lambda("functions/shop/configuration").unwrap();
    assert_eq!(function["MemorySize"], 512);
    let variables = json!({"APP_ENV": "prod", "DSN": "a-secret"});
    assert_eq!(function["Environment"]["Variables"], variables);
    assert_eq!(aws.live("shop").unwrap(), "2");
    assert_eq!(statements(&aws, "shop"), 2);
}

fn statements(aws: &Aws, name: &str) -> usize {
    let path = format!("functions/{name}/policy?Qualifier=live");
    let policy = aws.lambda(&path).unwrap()["Policy"].clone();
    let policy: Value = serde_json::from_str(policy.as_str().unwrap()).unwrap();
    policy["Statement"].as_array().unwrap().len()
}

#[test]
fn failed_request_to_the_new_version_leaves_the_old_one_live() {
    let Some(aws) = Aws::start("eu-west-1") else {
        return;
    };
    let project = Project::new(SHOP);
    project.deploy(&aws, &[]).succeeded();
    project.package(X86_64, b"<?php throw new Exception;");
    aws.answer(&json!({"statusCode": 500, "body": ""}));
    project.deploy(&aws, &["--smoke", "/health"]).failed_with(&[
        "cannot request /health of the new version",
        "version 1 stays live (alias live)",
        "it responded with 500",
    ]);
    assert_eq!(aws.live("shop").unwrap(), "1");
    // The next deployment continues with what is there.
    aws.answer(&json!({"statusCode": 200, "body": ""}));
    let said = project.deploy(&aws, &[]).succeeded();
    assert!(!said.err.contains("update the code"), "{}", said.err);
    assert_eq!(aws.live("shop").unwrap(), "2");
}

#[test]
fn failure_after_the_switch_moves_the_alias_back() {
    let Some(aws) = Aws::start("eu-west-2") else {
        return;
    };
    let project = Project::new(SHOP);
    project.deploy(&aws, &[]).succeeded();
    project.package(X86_64, b"<?php echo 2;");
    project.deploy(&aws, &[]).succeeded();
    aws.divide("shop", &json!({"1": 0.1}));
    project.package(X86_64, b"<?php echo 3;");
    let missing = "arn:aws:sqs:eu-west-2:123456789012:missing";
    project.deploy(&aws, &["--queue", missing]).failed_with(&[
        "cannot take messages of",
        "rolled back: version 2 is live again (alias live)",
        "ResourceNotFoundException",
    ]);
    let alias = aws.lambda("functions/shop/aliases/live").unwrap();
    assert_eq!(alias["FunctionVersion"], "2");
    let weights = json!({"AdditionalVersionWeights": {"1": 0.1}});
    assert_eq!(alias["RoutingConfig"], weights);
    project.deploy(&aws, &[]).succeeded();
    let alias = aws.lambda("functions/shop/aliases/live").unwrap();
    assert_eq!(alias["FunctionVersion"], "3");
    let weights = json!({"AdditionalVersionWeights": {}});
    assert_eq!(alias["RoutingConfig"], weights);
}

#[test]
fn interruption_moves_the_alias_back() {
    let Some(aws) = Aws::start("ap-south-1") else {
        return;
    };
    let project = Project::new(SHOP);
    project.deploy(&aws, &["--no-url"]).succeeded();
    project.package(X86_64, b"<?php echo 2;");
    let creation = "POST /2021-10-31/functions/shop/url";
    let proxy = Proxy::start(aws.url(), creation, Fault::Held);
    let surus = aws
        .command(&project.words(&[]))
        .env("AWS_ENDPOINT_URL", &proxy.url)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    proxy.arrived.recv().unwrap();
    assert_eq!(aws.live("shop").unwrap(), "2");
    let pid = surus.id().to_string();
    let sent = Command::new("kill").args(["-s", "INT", &pid]).status();
    assert!(sent.unwrap().success());
    aws::Said::new(surus.wait_with_output().unwrap()).failed_with(&[
        "cannot create a public function URL",
        "rolled back: version 1 is live again (alias live)",
        "interrupted",
    ]);
    assert_eq!(aws.live("shop").unwrap(), "1");
}

#[test]
fn alias_whose_move_was_not_confirmed_is_moved_back() {
    let Some(aws) = Aws::start("ap-south-2") else {
        return;
    };
    let project = Project::new(SHOP);
    project.deploy(&aws, &[]).succeeded();
    project.package(X86_64, b"<?php echo 2;");
    let update = "PUT /2015-03-31/functions/shop/aliases/live";
    let proxy = Proxy::start(aws.url(), update, Fault::ResponseLost);
    let mut surus = aws.command(&project.words(&[]));
    surus.env("AWS_ENDPOINT_URL", &proxy.url);
    surus.env("AWS_MAX_ATTEMPTS", "1");
    let said = aws::Said::new(surus.output().unwrap());
    // The proxy loses the responses of both moves. AWS got the second one, too.
    said.failed_with(&["cannot move the alias live", "cannot reach AWS"]);
    assert_eq!(proxy.arrived.try_iter().count(), 2);
    assert_eq!(aws.live("shop").unwrap(), "1");
}

#[test]
fn url_of_the_old_version_gets_its_mode_back() {
    let Some(aws) = Aws::start("ap-east-1") else {
        return;
    };
    let project = Project::new(SHOP);
    project.deploy(&aws, &[]).succeeded();
    let streaming = format!("[lambda]\nmode = 'stream'\nhandler = 'jobs.php'\n{SHOP}");
    let streaming = streaming.replace("[deploy]\n", "[deploy]\nurl = true\n");
    std::fs::write(project.path().join("surus.toml"), streaming).unwrap();
    let update = "PUT /2021-10-31/functions/shop/url";
    let proxy = Proxy::start(aws.url(), update, Fault::None);
    let missing = "arn:aws:sqs:ap-east-1:123456789012:missing";
    let mut surus = aws.command(&project.words(&["--queue", missing]));
    surus.env("AWS_ENDPOINT_URL", &proxy.url);
    aws::Said::new(surus.output().unwrap())
        .failed_with(&["cannot take messages of", "version 1 is live again"]);
    let modes: Vec<Value> = proxy
        .arrived
        .try_iter()
        .map(|body| body.parse().unwrap())
        .collect();
    assert_eq!(modes.len(), 2, "{modes:?}");
    assert_eq!(modes[0]["InvokeMode"], "RESPONSE_STREAM");
    assert_eq!(modes[1]["InvokeMode"], "BUFFERED");
}

#[test]
fn queue_has_one_mapping_to_the_alias() {
    let Some(aws) = Aws::start("eu-west-3") else {
        return;
    };
    aws.query(
        "sqs",
        "Action=CreateQueue&QueueName=jobs&Version=2012-11-05",
    );
    let queue = "arn:aws:sqs:eu-west-3:123456789012:jobs";
    let project = Project::new(&format!("{SHOP}\n[lambda]\nhandler = 'jobs.php'\n"));
    for _ in 0..2 {
        let said = project.deploy(&aws, &["--queue", queue]).succeeded();
        // The queue replaces the URL.
        assert_eq!(said.out, "");
        let found = aws.lambda("event-source-mappings/").unwrap();
        let mappings = found["EventSourceMappings"].as_array().unwrap().clone();
        assert_eq!(mappings.len(), 1);
        assert_eq!(mappings[0]["EventSourceArn"], queue);
        let types = json!(["ReportBatchItemFailures"]);
        assert_eq!(mappings[0]["FunctionResponseTypes"], types);
    }
    let function = aws.lambda("functions/shop/configuration").unwrap();
    assert_eq!(function["Handler"], "jobs.php");
}

#[test]
fn large_zip_passes_through_the_bucket() {
    let Some(aws) = Aws::start("eu-north-1") else {
        return;
    };
    let project = Project::new(SHOP);
    project.package(ARM64, &vec![b' '; 51 << 20]);
    project
        .deploy(&aws, &[])
        .failed_with(&["50 MiB", "--bucket", "aws s3 mb"]);
    project
        .deploy(&aws, &["--bucket", "no-such-bucket"])
        .failed_with(&["cannot upload the zip", "NoSuchBucket", "aws s3 mb"]);
    aws.create_bucket("packages");
    let said = project.deploy(&aws, &["--bucket", "packages"]).succeeded();
    let uploaded = "upload the zip to s3://packages/surus/shop/";
    assert!(said.err.contains(uploaded), "{}", said.err);
    let function = aws.lambda("functions/shop/configuration").unwrap();
    assert_eq!(function["Architectures"], json!(["arm64"]));
    assert!(function["CodeSize"].as_u64().unwrap() > 50 << 20);
}

#[test]
fn errors_name_the_remedy() {
    let Some(aws) = Aws::start("us-east-2") else {
        return;
    };
    let project = Project::new("[deploy]\nname = 'new'\n");
    project.deploy(&aws, &[]).failed_with(&[
        "needs an execution role",
        "--role",
        "aws iam create-role --role-name new",
    ]);
    project
        .deploy(&aws, &["--role", "shop"])
        .failed_with(&["--role shop: expected the ARN of a role"]);
    let unknown = "arn:aws:iam::123456789012:role/unknown";
    project
        .deploy(&aws, &["--role", unknown])
        .failed_with(&["cannot be assumed by Lambda", "trust policy must allow"]);
    let zip = project.path().join("other.zip");
    project
        .deploy(&aws, &["--zip", zip.to_str().unwrap()])
        .failed_with(&["other.zip does not exist", "surus lambda package"]);
    project.package(RISCV, b"");
    project
        .deploy(&aws, &["--role", ROLE])
        .failed_with(&["for neither of Lambda's architectures", "make musl"]);
    project.package(ARM64, b"");

    let words = project.words(&[]);
    let without = |variable: &str| {
        let mut command = aws.command(&words);
        command.env_remove(variable);
        aws::Said::new(command.output().unwrap())
    };
    without("AWS_REGION").failed_with(&["no AWS region", "--region", "AWS_REGION"]);
    let said = without("AWS_SECRET_ACCESS_KEY");
    said.failed_with(&["no AWS credentials", "aws sso login"]);
    let gone = bare(&words)
        .env("AWS_REGION", aws.region)
        .env("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        .env("AWS_ACCESS_KEY_ID", "AKIATESTS")
        .env("AWS_SECRET_ACCESS_KEY", aws::SECRET)
        .env("AWS_SESSION_TOKEN", aws::TOKEN)
        .env("AWS_MAX_ATTEMPTS", "1")
        .output()
        .unwrap();
    aws::Said::new(gone).failed_with(&["cannot read the function new", "cannot reach AWS"]);
}

#[test]
fn credentials_of_a_profile_are_used_and_never_printed() {
    let Some(aws) = Aws::start("ca-central-1") else {
        return;
    };
    let project = Project::new(SHOP);
    let secret = aws::SECRET;
    let file = project.path().join("aws.ini");
    let profiles = format!(
        "[profile good]\nregion = ca-central-1\naws_access_key_id = AKIATESTS\n\
         aws_secret_access_key = {secret}\n\
         [profile cut]\nregion = ca-central-1\n\
         credential_process = echo '{{\"Version\": 1, \"SecretAccessKey\": \"{secret}\",'\n"
    );
    std::fs::write(&file, profiles).unwrap();
    let deploy = |profile: &str| {
        let mut command = bare(&project.words(&["--dry-run", "--profile", profile]));
        command.env("AWS_ENDPOINT_URL", aws.url());
        command.env("AWS_CONFIG_FILE", &file);
        aws::Said::new(command.output().unwrap())
    };
    let said = deploy("good").succeeded();
    assert!(said.out.contains("would create the function shop"));
    deploy("cut").failed_with(&["no AWS credentials", "--profile"]);
    deploy("none").failed_with(&["no AWS region", "profile that has one (--profile)"]);
}

#[test]
fn logs_are_printed_once_while_they_are_followed() {
    let Some(aws) = Aws::start("us-west-1") else {
        return;
    };
    let project = Project::new(SHOP);
    let directory = project.path().to_str().unwrap();
    aws.surus(&["lambda", "logs", directory])
        .failed_with(&["there is no function shop in us-west-1", "--name"]);
    project.deploy(&aws, &[]).succeeded();
    create_log(&aws);
    let put = |messages: &[&str]| put(&aws, messages);
    put(&["one\n", "two"]);
    let said = aws.surus(&["lambda", "logs", directory]).succeeded();
    let texts: Vec<_> = said.out.lines().map(text).collect();
    assert_eq!(texts, ["one", "two"]);

    let (mut child, mut output) = follow(&mut aws.command(&["lambda", "logs", directory, "-f"]));
    let mut texts = Vec::new();
    for line in output.by_ref().lines() {
        texts.push(text(&line.unwrap()).to_string());
        match &*texts[texts.len() - 1] {
            "two" => put(&["three"]),
            "three" => put(&["four"]),
            "four" => break,
            _ => {}
        }
    }
    assert_eq!(texts, ["one", "two", "three", "four"]);
    // Like other programs, it ends when the reader of its output has closed the pipe.
    drop(output);
    put(&["five"]);
    assert!(child.wait().unwrap().success());
}

#[test]
fn followed_log_goes_on_after_an_outage_without_a_gap_or_a_repetition() {
    let Some(aws) = Aws::start("ap-northeast-1") else {
        return;
    };
    let project = Project::new(SHOP);
    project.deploy(&aws, &[]).succeeded();
    create_log(&aws);
    put(&aws, &["one"]);
    let network = Network::start(aws.url());
    let directory = project.path().to_str().unwrap();
    let mut command = aws.command(&["lambda", "logs", directory, "-f"]);
    command.env("AWS_ENDPOINT_URL", &network.url);
    let (mut child, output) = follow(command.stderr(Stdio::piped()));
    let mut lines = output.lines().map(|line| text(&line.unwrap()).to_owned());
    assert_eq!(lines.next().as_deref(), Some("one"));

    network.set_down(true);
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (tries_again, told) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut said = String::new();
        for line in stderr.lines() {
            said += &(line.unwrap() + "\n");
            if said.contains("trying again") {
                let _ = tries_again.send(());
            }
        }
        said
    });
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    put(&aws, &["two"]);
    // Further attempts say nothing.
    let (refused, began) = (network.refused(), Instant::now());
    while network.refused() < refused + 4 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    network.set_down(false);
    assert_eq!(lines.next().as_deref(), Some("two"));
    put(&aws, &["three"]);
    assert_eq!(lines.next().as_deref(), Some("three"));
    aws.logs("DeleteLogGroup", &json!({"logGroupName": GROUP}));
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(lines.next(), None);
    let said = reader.join().unwrap();
    let message = "cannot read the log: cannot reach AWS";
    assert_eq!(said.matches(message).count(), 1, "{said}");
    assert!(said.contains("/aws/lambda/shop was deleted"), "{said}");
}

const GROUP: &str = "/aws/lambda/shop";

/// Creates the log of the function, with one stream.
fn create_log(aws: &Aws) {
    aws.logs("CreateLogGroup", &json!({"logGroupName": GROUP}));
    let stream = json!({"logGroupName": GROUP, "logStreamName": "a"});
    aws.logs("CreateLogStream", &stream);
}

fn put(aws: &Aws, messages: &[&str]) {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let event = |message: &&str| json!({"timestamp": now.as_millis() as u64, "message": message});
    let events: Vec<_> = messages.iter().map(event).collect();
    let put = json!({"logGroupName": GROUP, "logStreamName": "a", "logEvents": events});
    aws.logs("PutLogEvents", &put);
}

/// A line without its time.
fn text(line: &str) -> &str {
    let (time, text) = line.split_once(' ').unwrap();
    assert!(time.ends_with('Z') && time.contains('T'), "{line}");
    text
}

#[test]
fn console_prints_the_output_and_exits_with_the_status() {
    let Some(aws) = Aws::start("us-west-2") else {
        return;
    };
    let project = Project::new(SHOP);
    let directory = project.path().to_str().unwrap();
    let console = [
        "lambda",
        "console",
        directory,
        "--",
        "app:report",
        "--daily",
    ];
    project.deploy(&aws, &[]).succeeded();
    for (answer, status, output) in [
        (json!({"exitCode": 0, "output": "done\n"}), 0, "done\n"),
        (
            json!({"errorType": "CommandFailed", "errorMessage": "", "exitCode": 4,
                   "output": "no such order\n"}),
            4,
            "no such order\n",
        ),
        (
            json!({"errorType": "TypeError", "errorMessage": "no row", "exitCode": 255,
                   "output": "row 1\n"}),
            255,
            "row 1\n",
        ),
    ] {
        aws.answer(&answer);
        let said = aws.surus(&console);
        assert_eq!(
            (said.status, &*said.out),
            (Some(status), output),
            "{}",
            said.err
        );
        // The output of a failed command says why.
        assert_eq!(
            said.err.contains("TypeError: no row"),
            status == 255,
            "{}",
            said.err
        );
    }
    aws.answer(&json!({"statusCode": 200}));
    aws.surus(&console)
        .failed_with(&["shop does not run commands", "bin/console"]);
}
