//! Tests of rules about what invokes a function: schedules, load balancers and REST APIs.

use super::{findings, function};

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
    let warmer = ", Input: '{\"warmer\": true}'";
    let several = ", Input: '{\"warmer\": true, \"concurrency\": 3}'";
    let plugin = ", Input: '{\"source\": \"serverless-plugin-warmup\"}'";
    for (handler, input, expected) in [
        (
            "bootstrap",
            "",
            "! :12: a schedule invokes Shop, which has an HTTP application but no handler",
        ),
        ("bootstrap", command, "its events go to POST /events"),
        ("bootstrap", warmer, "no problems found"),
        ("bootstrap", plugin, "no problems found"),
        ("bootstrap", several, "no problems found"),
        (
            "bootstrap",
            ", Input: '{\"warmer\": false}'",
            "its events go to POST /events",
        ),
        ("bin/console", warmer, "no problems found"),
        ("events.php", warmer, "no problems found"),
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
    let check = |handler: &str, rule: &str| {
        let properties = format!("      CodeUri: function.zip\n      Handler: {handler}");
        findings(&function(&properties, rule), "", |_| {})
    };
    let said = check("events.php", rule);
    assert!(
        said.contains("! :11: a schedule of Shop has no Input"),
        "{said}"
    );
    assert_eq!(said.matches("schedule").count(), 1, "{said}");
    let said = check("bootstrap", rule);
    assert_eq!(said.matches("a schedule invokes Shop").count(), 2, "{said}");
    let said = check("bootstrap", &rule.replace("'{}'", "'{\"warmer\": true}'"));
    assert_eq!(said.matches("a schedule invokes Shop").count(), 1, "{said}");
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
    Properties:
      FunctionName: !Ref Shop
      Action: lambda:InvokeFunction
      Principal: elasticloadbalancing.amazonaws.com\n";
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
