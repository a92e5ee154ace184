//! An application of the AWS CDK, in TypeScript.

use std::fmt::Write as _;

use super::{BATCH, Function, Http, Queue, RECEIVES, quoted};

pub fn template(function: &Function) -> String {
    let api = function.http == Http::Api;
    let queue = function.queue;
    let mut text = String::from(
        "// Made by `surus lambda template cdk`. To deploy: surus lambda package, then cdk deploy\n\
         import * as cdk from 'aws-cdk-lib';\n\
         import * as lambda from 'aws-cdk-lib/aws-lambda';\n",
    );
    if api {
        text.push_str(
            "import * as apigateway from 'aws-cdk-lib/aws-apigatewayv2';\n\
             import { HttpLambdaIntegration } from 'aws-cdk-lib/aws-apigatewayv2-integrations';\n",
        );
    }
    if queue.is_some() {
        text.push_str(
            "import { SqsEventSource } from 'aws-cdk-lib/aws-lambda-event-sources';\n\
             import * as sqs from 'aws-cdk-lib/aws-sqs';\n",
        );
    }
    let _ = write!(
        text,
        "\nconst app = new cdk.App();\n\
         const stack = new cdk.Stack(app, {name});\n\
         \n\
         const main = new lambda.Function(stack, 'Function', {{\n  \
           runtime: lambda.Runtime.PROVIDED_AL2023,\n  \
           architecture: lambda.Architecture.{architecture},\n  \
           code: lambda.Code.fromAsset({zip}),\n  \
           handler: {handler},\n  \
           memorySize: {memory},\n  \
           timeout: cdk.Duration.seconds({timeout}),\n",
        name = quoted(&function.name),
        architecture = if function.architecture == "arm64" {
            "ARM_64"
        } else {
            "X86_64"
        },
        zip = quoted(&function.zip),
        handler = quoted(&function.handler),
        memory = function.memory,
        timeout = function.timeout,
    );
    if !function.environment.is_empty() {
        text.push_str("  environment: {\n");
        for (name, value) in &function.environment {
            let _ = writeln!(text, "    {name}: {},", quoted(value));
        }
        text.push_str("  },\n");
    }
    text.push_str("});\n");
    match function.http {
        Http::Url => {
            let _ = write!(
                text,
                "\nconst url = main.addFunctionUrl({{\n  \
                   authType: lambda.FunctionUrlAuthType.NONE,\n  \
                   invokeMode: lambda.InvokeMode.{},\n\
                 }});\n\
                 new cdk.CfnOutput(stack, 'Url', {{ value: url.url }});\n",
                function.invoke_mode()
            );
        }
        Http::Api => text.push_str(
            "\nconst api = new apigateway.HttpApi(stack, 'Api', {\n  \
               defaultIntegration: new HttpLambdaIntegration('Main', main),\n\
             });\n\
             new cdk.CfnOutput(stack, 'Url', { value: api.apiEndpoint });\n",
        ),
        Http::None => {}
    }
    if let Some(queue) = queue {
        let fifo = match queue {
            Queue::Standard => "",
            Queue::Fifo => "  fifo: true,\n",
        };
        let _ = write!(
            text,
            "\nconst failed = new sqs.Queue(stack, 'FailedQueue', {{\n{fifo}  \
               retentionPeriod: cdk.Duration.days(14),\n\
             }});\n\
             const queue = new sqs.Queue(stack, 'Queue', {{\n{fifo}  \
               // Six times the function's timeout: a message that is still being worked on must not come again.\n  \
               visibilityTimeout: cdk.Duration.seconds({}),\n  \
               deadLetterQueue: {{ queue: failed, maxReceiveCount: {RECEIVES} }},\n\
             }});\n\
             // Without reportBatchItemFailures, Lambda deletes what has failed.\n\
             main.addEventSource(new SqsEventSource(queue, {{ batchSize: {BATCH}, reportBatchItemFailures: true }}));\n\
             new cdk.CfnOutput(stack, 'QueueUrl', {{ value: queue.queueUrl }});\n",
            function.visibility(),
        );
    }
    text
}
