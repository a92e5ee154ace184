//! The configuration of Terraform, and of OpenTofu.

use std::fmt::Write as _;

use super::{BATCH, Function, Http, Queue, RECEIVES};

pub fn template(function: &Function) -> String {
    let name = &function.name;
    let zip = text(&function.zip);
    let mut file = format!(
        r#"# Made by `surus lambda template terraform`. To deploy: surus lambda package, then terraform init and terraform apply

terraform {{
  required_version = ">= 1.5"
  required_providers {{
    aws = {{
      source  = "hashicorp/aws"
      version = ">= 6.29"
    }}
  }}
}}

resource "aws_iam_role" "function" {{
  name = "{name}"
  assume_role_policy = jsonencode({{
    Version = "2012-10-17"
    Statement = [{{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = {{ Service = "lambda.amazonaws.com" }}
    }}]
  }})
}}

resource "aws_iam_role_policy_attachment" "logs" {{
  role       = aws_iam_role.function.name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
}}

resource "aws_lambda_function" "function" {{
  function_name    = "{name}"
  role             = aws_iam_role.function.arn
  filename         = {zip}
  source_code_hash = filebase64sha256({zip})
  runtime          = "provided.al2023"
  handler          = {handler}
  architectures    = ["{architecture}"]
  memory_size      = {memory}
  timeout          = {timeout}
"#,
        handler = text(&function.handler),
        architecture = function.architecture,
        memory = function.memory,
        timeout = function.timeout,
    );
    if !function.environment.is_empty() {
        file.push_str("\n  environment {\n    variables = {\n");
        for (name, value) in &function.environment {
            let _ = writeln!(file, "      {name} = {}", text(value));
        }
        file.push_str("    }\n  }\n");
    }
    file.push_str("}\n");
    match function.http {
        Http::Url => file.push_str(&url(function)),
        Http::Api => file.push_str(&api(function)),
        Http::None => {}
    }
    if let Some(queue) = function.queue {
        file.push_str(&queues(function, queue));
    }
    file
}

fn url(function: &Function) -> String {
    format!(
        r#"
resource "aws_lambda_function_url" "url" {{
  function_name      = aws_lambda_function.function.function_name
  authorization_type = "NONE"
  invoke_mode        = "{}"
}}

# The URL alone lets anybody ask it; since October 2025 the function must let those through as well.
resource "aws_lambda_permission" "url" {{
  action                   = "lambda:InvokeFunction"
  function_name            = aws_lambda_function.function.function_name
  principal                = "*"
  invoked_via_function_url = true
}}

output "url" {{
  value = aws_lambda_function_url.url.function_url
}}
"#,
        function.invoke_mode()
    )
}

fn api(function: &Function) -> String {
    format!(
        r#"
resource "aws_apigatewayv2_api" "api" {{
  name          = "{name}"
  protocol_type = "HTTP"
}}

resource "aws_apigatewayv2_integration" "function" {{
  api_id                 = aws_apigatewayv2_api.api.id
  integration_type       = "AWS_PROXY"
  integration_uri        = aws_lambda_function.function.invoke_arn
  payload_format_version = "2.0"
}}

resource "aws_apigatewayv2_route" "all" {{
  api_id    = aws_apigatewayv2_api.api.id
  route_key = "$default"
  target    = "integrations/${{aws_apigatewayv2_integration.function.id}}"
}}

resource "aws_apigatewayv2_stage" "all" {{
  api_id      = aws_apigatewayv2_api.api.id
  name        = "$default"
  auto_deploy = true
}}

resource "aws_lambda_permission" "api" {{
  statement_id  = "api"
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.function.function_name
  principal     = "apigateway.amazonaws.com"
  source_arn    = "${{aws_apigatewayv2_api.api.execution_arn}}/*/*"
}}

output "url" {{
  value = aws_apigatewayv2_stage.all.invoke_url
}}
"#,
        name = function.name
    )
}

fn queues(function: &Function, queue: Queue) -> String {
    let (suffix, fifo) = match queue {
        Queue::Standard => ("", ""),
        Queue::Fifo => (".fifo", "fifo_queue = true"),
    };
    // As `terraform fmt` would: names that follow each other have their signs in one column.
    let failed = aligned(&[
        format!("name = \"{}-failed{suffix}\"", function.name),
        fifo.into(),
        "message_retention_seconds = 1209600".into(),
    ]);
    let queue = aligned(&[format!("name = \"{}{suffix}\"", function.name), fifo.into()]);
    format!(
        r#"
resource "aws_sqs_queue" "failed" {{
{failed}}}

resource "aws_sqs_queue" "queue" {{
{queue}  # Six times the function's timeout: a message that is still being worked on must not come again.
  visibility_timeout_seconds = {visibility}
  redrive_policy = jsonencode({{
    deadLetterTargetArn = aws_sqs_queue.failed.arn
    maxReceiveCount     = {RECEIVES}
  }})
}}

resource "aws_iam_role_policy_attachment" "queue" {{
  role       = aws_iam_role.function.name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AWSLambdaSQSQueueExecutionRole"
}}

resource "aws_lambda_event_source_mapping" "queue" {{
  event_source_arn = aws_sqs_queue.queue.arn
  function_name    = aws_lambda_function.function.arn
  batch_size       = {BATCH}
  # Without this, Lambda deletes what has failed.
  function_response_types = ["ReportBatchItemFailures"]
  depends_on              = [aws_iam_role_policy_attachment.queue]
}}

output "queue_url" {{
  value = aws_sqs_queue.queue.url
}}
"#,
        visibility = function.visibility(),
    )
}

fn aligned(lines: &[String]) -> String {
    let pairs: Vec<_> = lines
        .iter()
        .filter_map(|line| line.split_once(" = "))
        .collect();
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, &str)| format!("  {name:<width$} = {value}\n");
    pairs.iter().map(line).collect()
}

/// A text of HCL, in which `${` and `%{` would begin something.
fn text(value: &str) -> String {
    super::quoted(value)
        .replace("${", "$${")
        .replace("%{", "%%{")
}
