//! Messages of a FIFO queue, in batches of ten, each in a group of its own: how many in a second, with the CPU share that a function's
//! memory brings, and how long ten take that each wait for 20 ms.

use std::time::Instant;

use surus::emulator::{Emulator, Resources};

use super::Effort;
use super::apps::Apps;
use super::numbers::{self, millis, row};

const BATCH: usize = 10;

pub async fn measure(apps: &Apps, effort: &Effort) {
    println!("\n## Messages of a queue\n");
    println!(
        "| | memory | workers | messages/s | ten that wait 20 ms each |\n|---|---:|---:|---:|---:|"
    );
    for (memory, resources) in [
        (512, Resources::Limited),
        (1024, Resources::Limited),
        (1769, Resources::Unlimited),
    ] {
        for engine in ["worker", "rewind"] {
            for workers in [1, 2, 3, 10] {
                eprintln!("queue: {engine}, {memory} MB, {workers} workers");
                let mut cells = vec![
                    format!("`{engine}`"),
                    match resources {
                        Resources::Limited => format!("{memory} MB"),
                        Resources::Unlimited => "the whole machine".into(),
                    },
                    workers.to_string(),
                ];
                for handler in ["hello.php", "wait.php"] {
                    match run(apps, effort, engine, memory, resources, workers, handler).await {
                        Ok(taken) if handler == "hello.php" => {
                            cells.push(format!("{:.0}", BATCH as f64 / taken.as_secs_f64()));
                        }
                        Ok(taken) => cells.push(format!("{} ms", millis(taken))),
                        Err(error) => {
                            eprintln!("not measured: {error:#}");
                            cells.push("not measured".into());
                        }
                    }
                }
                row(cells);
            }
        }
    }
}

/// How long a batch takes, from its event to the function's asking for the next.
async fn run(
    apps: &Apps,
    effort: &Effort,
    engine: &str,
    memory: u64,
    resources: Resources,
    workers: usize,
    handler: &str,
) -> anyhow::Result<std::time::Duration> {
    let mut function = apps.surus("queue");
    function.memory = memory;
    function.resources = resources;
    for (name, value) in [
        ("SURUS_ENGINE_NAME", engine),
        ("SURUS_ENGINE_WORKERS", &workers.to_string()),
        ("SURUS_LAMBDA_HANDLER", handler),
        ("SURUS_LAMBDA_BATCH", "record"),
        (
            "SURUS_LAMBDA_SCRIPT",
            concat!(env!("CARGO_MANIFEST_DIR"), "/php/lambda/events.php"),
        ),
    ] {
        function.variables.insert(name.into(), value.into());
    }
    let emulator = Emulator::start(function).await?;
    let mut taken = Vec::new();
    for number in 0..effort.batches + 2 {
        let began = Instant::now();
        let invocation = emulator.invoke(batch(number)).await;
        anyhow::ensure!(invocation.result.is_ok(), "{invocation:?}");
        // The first two meet caches that are empty.
        if number >= 2 {
            taken.push(began.elapsed());
        }
    }
    emulator.stop().await;
    // A control group gives its share in portions, so that only the mean over many says what it is.
    Ok(match resources {
        Resources::Limited => taken.iter().sum::<std::time::Duration>() / taken.len() as u32,
        Resources::Unlimited => numbers::of(taken).median,
    })
}

fn batch(number: usize) -> String {
    let record = |index: usize| {
        serde_json::json!({
            "messageId": format!("00000000-0000-4000-8000-{number:06}{index:06}"),
            "receiptHandle": "handle",
            "body": "{\"message\":\"Hello World!\"}",
            "attributes": {
                "ApproximateReceiveCount": "1",
                "SentTimestamp": "1573251510774",
                "SequenceNumber": format!("{:020}", number * BATCH + index),
                "MessageGroupId": format!("group {index}"),
                "SenderId": "AIDAIO23YVJENQZJOL4VO",
                "MessageDeduplicationId": format!("{number}-{index}"),
                "ApproximateFirstReceiveTimestamp": "1573251510774",
            },
            "messageAttributes": {},
            "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:hello.fifo",
            "awsRegion": "eu-west-1",
        })
    };
    serde_json::json!({ "Records": (0..BATCH).map(record).collect::<Vec<_>>() }).to_string()
}
