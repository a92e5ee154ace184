//! Messages of a FIFO queue, in batches of ten, each in a group of its own: how many in a second,
//! with the CPU share that a function's memory brings, and how long ten take that each wait for 20
//! ms.

use std::time::{Duration, Instant};

use surus::emulator::{Emulator, Resources};

use super::Effort;
use super::apps::Apps;
use super::numbers::{Goal, millis, row};

const BATCH: usize = 10;
const WARM_UPS: usize = 20;

/// Messages a second of a function that says hello world, as an article about Laravel, RoadRunner
/// and AWS Lambda has measured them: memory in MB, PHP processes, messages.
const PUBLISHED: [(u64, usize, f64); 3] = [(512, 1, 10.0), (512, 2, 60.0), (1024, 3, 100.0)];

pub async fn measure(apps: &Apps, effort: &Effort) -> Vec<Goal> {
    println!("\n## Messages of a queue\n");
    println!(
        "Batches of {BATCH} messages, one batch after the other for {} s. Memory brings a share of \
            a CPU: 1769 MB one whole CPU (AWS's \
         documentation, \"Configure Lambda function memory\"). What is published had the same \
         memory, on AWS Lambda.\n",
        effort.queue.as_secs()
    );
    println!(
        "| | memory | workers | messages/s | published | {BATCH} that wait 20 ms each \
            |\n|---|---:|---:|---:|---:|---:|"
    );
    let mut goals = Vec::new();
    for (memory, resources) in [
        (512, Resources::Limited),
        (1024, Resources::Limited),
        (1769, Resources::Unlimited),
    ] {
        for engine in ["worker", "rewind"] {
            let mut alone = None;
            for workers in [1, 2, 3, BATCH] {
                let share = match resources {
                    Resources::Limited => format!("{memory} MB"),
                    Resources::Unlimited => "the whole machine".into(),
                };
                eprintln!("queue: {engine}, {share}, {workers} workers");
                let what = format!("`{engine}`, {share}, {workers} workers");
                let setting = Setting {
                    engine,
                    memory,
                    resources,
                    workers,
                };
                let hello = said(setting.run(apps, effort, "hello.php").await);
                let waits = said(setting.run(apps, effort, "wait.php").await);
                let rate = hello.map(|taken| BATCH as f64 / taken.as_secs_f64());
                let published = PUBLISHED.iter().find(|(mb, processes, _)| {
                    resources == Resources::Limited && (*mb, *processes) == (memory, workers)
                });
                row([
                    format!("`{engine}`"),
                    share,
                    workers.to_string(),
                    rate.map_or_else(|| "not measured".into(), |rate| format!("{rate:.0}")),
                    published.map_or_else(String::new, |(.., rate)| format!("{rate:.0}")),
                    waits.map_or_else(
                        || "not measured".into(),
                        |taken| format!("{} ms", millis(taken)),
                    ),
                ]);
                if let (Some(rate), Some((.., published))) = (rate, published) {
                    goals.push(Goal {
                        what: format!("{what}, messages"),
                        is: format!("{rate:.0} a second"),
                        goal: format!(
                            "at least {:.0}, ten times what is published",
                            10.0 * published
                        ),
                        is_met: rate >= 10.0 * published,
                    });
                }
                if workers == 1 {
                    alone = waits;
                }
                // Where the whole machine is there, so that nothing but the waiting counts.
                if let (Resources::Unlimited, BATCH, Some(alone), Some(taken)) =
                    (resources, workers, alone, waits)
                {
                    let most = alone.mul_f64(1.1 / BATCH as f64);
                    goals.push(Goal {
                        what: format!("{what}, {BATCH} that wait"),
                        is: format!("{} ms", millis(taken)),
                        goal: format!(
                            "at most {} ms, a tenth of what 1 worker takes and 10 % of that",
                            millis(most)
                        ),
                        is_met: taken <= most,
                    });
                }
            }
        }
    }
    goals
}

/// What could not be measured is said, and leaves its place in the table.
fn said(taken: anyhow::Result<Duration>) -> Option<Duration> {
    taken
        .inspect_err(|error| eprintln!("not measured: {error:#}"))
        .ok()
}

struct Setting {
    engine: &'static str,
    memory: u64,
    resources: Resources,
    workers: usize,
}

impl Setting {
    /// How long a batch takes, from its event to the function's asking for the next.
    async fn run(&self, apps: &Apps, effort: &Effort, handler: &str) -> anyhow::Result<Duration> {
        let mut function = apps.surus("queue");
        function.memory = self.memory;
        function.resources = self.resources;
        for (name, value) in [
            ("SURUS_ENGINE_NAME", self.engine),
            ("SURUS_ENGINE_WORKERS", &self.workers.to_string()),
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
        // The first meet caches that are empty.
        for number in 0..WARM_UPS {
            invoke(&emulator, number).await?;
        }
        let (began, mut batches) = (Instant::now(), 0);
        // A control group gives its share in portions, so that only the mean over many says what it
        // is.
        while began.elapsed() < effort.queue {
            invoke(&emulator, WARM_UPS + batches).await?;
            batches += 1;
        }
        let taken = began.elapsed();
        emulator.stop().await;
        Ok(taken / batches as u32)
    }
}

async fn invoke(emulator: &Emulator, number: usize) -> anyhow::Result<()> {
    let invocation = emulator.invoke(batch(number)).await;
    anyhow::ensure!(invocation.result.is_ok(), "{invocation:?}");
    Ok(())
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
