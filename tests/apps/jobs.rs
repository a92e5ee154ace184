//! Laravel jobs and Symfony Messenger messages as SQS delivers them, encoded by the libraries
//! themselves.

mod laravel;
mod messenger;

use serde_json::{Value, json};

use crate::common::Surus;
use crate::events::invoke;

/// An SQS message as Lambda delivers it, received `received` times.
fn message(id: &str, body: &str, received: u32) -> Value {
    json!({
        "messageId": id,
        "body": body,
        "attributes": { "ApproximateReceiveCount": received.to_string() },
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-west-1:1:jobs",
    })
}

fn event(messages: &[Value]) -> Value {
    json!({ "Records": messages })
}

/// Reads the lines that the application has noted since the last call.
struct Notes(std::path::PathBuf);

impl Notes {
    #[track_caller]
    fn are(&self, expected: &[&str]) {
        let noted = std::fs::read_to_string(&self.0).unwrap_or_default();
        // Laravel 8 says more than newer versions.
        let longer = " or run too long. The job may have previously timed out.";
        let noted = noted.replace(longer, ".");
        let _ = std::fs::remove_file(&self.0);
        assert_eq!(noted.lines().collect::<Vec<_>>(), expected);
    }
}

/// Sends one message. An error means that Lambda does not delete it.
#[track_caller]
fn alone(surus: &Surus, message: &Value) -> Result<(), String> {
    let answer = invoke(surus, &event(std::slice::from_ref(message)));
    match answer.status {
        200 => {
            assert_eq!(answer.json(), Value::Null);
            Ok(())
        }
        _ => Err(answer.status(500).json()["errorMessage"]
            .as_str()
            .unwrap()
            .to_string()),
    }
}

const NOTES: &str = r#"<?php
namespace App;
final class Notes
{
    public static function note(string $line): void
    {
        file_put_contents(getenv('NOTES'), "$line\n", FILE_APPEND);
    }
    // Called like Laravel's recorder of failed jobs.
    public function log($connection, $queue, $payload, $exception): void
    {
        $name = json_decode($payload)->displayName;
        self::note("recorded: $connection $queue $name {$exception->getMessage()}");
    }
}
"#;
