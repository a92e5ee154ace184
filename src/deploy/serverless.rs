//! The serverless.yml of the Serverless Framework, and of osls, which goes on with its version 3.

use std::fmt::Write as _;

use super::{BATCH, Function, Http, Queue, RECEIVES, quoted};

pub fn template(function: &Function) -> String {
    let mut text = format!(
        "# Made by `surus lambda template serverless`. To deploy: surus lambda package, then serverless deploy (or osls deploy)\n\
         service: {}\n\
         frameworkVersion: \">=3\"\n\
         \n\
         provider:\n  \
           name: aws\n  \
           runtime: provided.al2023\n  \
           architecture: {}\n  \
           memorySize: {}\n  \
           timeout: {}\n",
        function.name, function.architecture, function.memory, function.timeout,
    );
    if !function.environment.is_empty() {
        text.push_str("  environment:\n");
        for (name, value) in &function.environment {
            let _ = writeln!(text, "    {name}: {}", quoted(value));
        }
    }
    let _ = write!(
        text,
        "\npackage:\n  \
           artifact: {}\n\
         \nfunctions:\n  \
           main:\n    \
             handler: {}\n",
        quoted(&function.zip),
        quoted(&function.handler),
    );
    if function.http == Http::Url {
        let _ = write!(
            text,
            "    url:\n      invokeMode: {}\n",
            function.invoke_mode()
        );
    }
    if function.http == Http::Api || function.queue.is_some() {
        text.push_str("    events:\n");
    }
    if function.http == Http::Api {
        text.push_str("      - httpApi: \"*\"\n");
    }
    if function.queue.is_some() {
        let _ = write!(
            text,
            "      - sqs:\n          \
                 arn: !GetAtt Queue.Arn\n          \
                 batchSize: {BATCH}\n          \
                 # Without this, Lambda deletes what has failed.\n          \
                 functionResponseType: ReportBatchItemFailures\n"
        );
    }
    if function.http == Http::Url || function.queue.is_some() {
        text.push_str("\nresources:\n  Resources:\n");
    }
    if function.http == Http::Url {
        text.push_str(
            "    # Since October 2025 a URL needs this one too, which older versions of the framework do not give it.\n    \
               UrlPermission:\n      \
                 Type: AWS::Lambda::Permission\n      \
                 Properties:\n        \
                   FunctionName: !GetAtt MainLambdaFunction.Arn\n        \
                   Action: lambda:InvokeFunction\n        \
                   Principal: \"*\"\n        \
                   InvokedViaFunctionUrl: true\n",
        );
    }
    if let Some(queue) = function.queue {
        text.push_str(&queues(function, queue));
    }
    text
}

fn queues(function: &Function, queue: Queue) -> String {
    let fifo = match queue {
        Queue::Standard => "",
        Queue::Fifo => "        FifoQueue: true\n",
    };
    format!(
        "    \
             Queue:\n      \
               Type: AWS::SQS::Queue\n      \
               Properties:\n\
         {fifo}        \
                 # Six times the function's timeout: a message that is still being worked on must not come again.\n        \
                 VisibilityTimeout: {}\n        \
                 RedrivePolicy:\n          \
                   deadLetterTargetArn: !GetAtt FailedQueue.Arn\n          \
                   maxReceiveCount: {RECEIVES}\n    \
             FailedQueue:\n      \
               Type: AWS::SQS::Queue\n      \
               Properties:\n\
         {fifo}        \
                 MessageRetentionPeriod: 1209600\n",
        function.visibility(),
    )
}
