//! The template of AWS SAM.

use std::fmt::Write as _;

use super::{BATCH, Function, Http, Queue, RECEIVES, quoted};

pub fn template(function: &Function) -> String {
    let mut text = format!(
        "# Made by `surus lambda template sam`. To deploy: surus lambda package, then sam deploy --guided\n\
         AWSTemplateFormatVersion: \"2010-09-09\"\n\
         Transform: AWS::Serverless-2016-10-31\n\
         Description: {}\n\
         \n\
         Resources:\n  \
           Function:\n    \
             Type: AWS::Serverless::Function\n    \
             Properties:\n      \
               CodeUri: {}\n      \
               Runtime: provided.al2023\n      \
               Handler: {}\n      \
               Architectures: [{}]\n      \
               MemorySize: {}\n      \
               Timeout: {}\n",
        quoted(&format!("{}, a PHP application on Surus", function.name)),
        quoted(&function.zip),
        quoted(&function.handler),
        function.architecture,
        function.memory,
        function.timeout,
    );
    if !function.environment.is_empty() {
        text.push_str("      Environment:\n        Variables:\n");
        for (name, value) in &function.environment {
            let _ = writeln!(text, "          {name}: {}", quoted(value));
        }
    }
    if function.http == Http::Url {
        let _ = write!(
            text,
            "      FunctionUrlConfig:\n        AuthType: NONE\n        InvokeMode: {}\n",
            function.invoke_mode()
        );
    }
    if function.http == Http::Api || function.queue.is_some() {
        text.push_str("      Events:\n");
    }
    if function.http == Http::Api {
        text.push_str("        Http:\n          Type: HttpApi\n");
    }
    if let Some(queue) = function.queue {
        let _ = write!(
            text,
            "        Queue:\n          \
               Type: SQS\n          \
               Properties:\n            \
                 Queue: !GetAtt Queue.Arn\n            \
                 BatchSize: {BATCH}\n            \
                 # Without this, Lambda deletes what has failed.\n            \
                 FunctionResponseTypes: [ReportBatchItemFailures]\n\n"
        );
        text.push_str(&queues(function, queue));
    }
    text.push_str("\nOutputs:\n  Function:\n    Value: !Ref Function\n");
    match function.http {
        // SAM names the URL's resource after the function's.
        Http::Url => text.push_str("  Url:\n    Value: !GetAtt FunctionUrl.FunctionUrl\n"),
        Http::Api => text.push_str(
            "  Url:\n    Value: !Sub https://${ServerlessHttpApi}.execute-api.${AWS::Region}.${AWS::URLSuffix}/\n",
        ),
        Http::None => {}
    }
    if function.queue.is_some() {
        text.push_str("  QueueUrl:\n    Value: !Ref Queue\n");
    }
    text
}

/// The queue, and the one for messages that have failed too often. Both end the same way when they are deleted.
fn queues(function: &Function, queue: Queue) -> String {
    let fifo = match queue {
        Queue::Standard => "",
        Queue::Fifo => "      FifoQueue: true\n",
    };
    format!(
        "  Queue:\n    \
           Type: AWS::SQS::Queue\n    \
           DeletionPolicy: Delete\n    \
           UpdateReplacePolicy: Delete\n    \
           Properties:\n\
         {fifo}      \
             # Six times the function's timeout: a message that is still being worked on must not come again.\n      \
             VisibilityTimeout: {}\n      \
             RedrivePolicy:\n        \
               deadLetterTargetArn: !GetAtt FailedQueue.Arn\n        \
               maxReceiveCount: {RECEIVES}\n\n  \
         FailedQueue:\n    \
           Type: AWS::SQS::Queue\n    \
           DeletionPolicy: Delete\n    \
           UpdateReplacePolicy: Delete\n    \
           Properties:\n\
         {fifo}      \
             MessageRetentionPeriod: 1209600\n",
        function.visibility(),
    )
}
