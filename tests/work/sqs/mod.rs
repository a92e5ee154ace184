//! Queues in ElasticMQ, which speaks SQS's protocol. Without it the tests print why they test
//! nothing.

mod laravel;
mod plain;
mod shared;
mod shutdowns_and_crashes;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::elasticmq::{Queue, Server};
use super::plain::Plain;
use super::work::Work;

/// How many receives the broker allows before it moves a message itself.
const MANY: u32 = 1000;

/// A queue with a name of its own, and a dead-letter queue.
pub fn queue(suffix: &str, is_fifo: bool) -> Option<(String, Queue)> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let server = Server::get()?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("work{number}{suffix}");
    let queue = Queue::create(&server, &name, is_fifo, Duration::from_secs(30), MANY);
    let kind = if is_fifo { ".fifo" } else { "" };
    Some((format!("{name}{kind}"), queue))
}

/// What a queue's URL has in front of its name.
pub fn base(queue: &Queue) -> String {
    let url = queue.url();
    url.rsplit_once('/').unwrap().0.to_string()
}

/// A handler whose jobs are in SQS.
pub struct Site {
    pub plain: Plain,
    pub queue: Queue,
    pub name: String,
}

impl Site {
    pub fn new(settings: &str) -> Option<Site> {
        Site::of(settings, false, base)
    }

    pub fn fifo(settings: &str) -> Option<Site> {
        Site::of(settings, true, base)
    }

    /// `source` says how the queue is reached.
    pub fn of(settings: &str, is_fifo: bool, source: impl Fn(&Queue) -> String) -> Option<Site> {
        let (name, queue) = queue("", is_fifo)?;
        let source = source(&queue);
        // One that has no dead-letter queue is that of another.
        let name = match source.strip_prefix(&format!("{}/", base(&queue))) {
            Some(whole) => whole.to_string(),
            None => name,
        };
        let settings = format!("name = '{name}'\n{settings}");
        let plain = Plain::from(&source, &settings);
        Some(Site { plain, queue, name })
    }

    pub fn start(&self, args: &[&str]) -> Work {
        self.start_with(
            args,
            &[
                ("AWS_ACCESS_KEY_ID", "key"),
                ("AWS_SECRET_ACCESS_KEY", "hidden"),
            ],
        )
    }

    pub fn start_with(&self, args: &[&str], env: &[(&str, &str)]) -> Work {
        let notes = ("SURUS_ENV_NOTES", self.plain.notes.to_str().unwrap());
        Work::start(&self.plain.site, args, &[&[notes], env].concat())
    }

    pub fn push(&self, number: usize, what: &str) {
        let job = json!({ "n": number, "do": what, "ms": 1500 });
        self.push_json(&job.to_string(), 0);
    }

    /// Sends a message, in a FIFO queue with its group.
    pub fn push_json(&self, job: &str, group: usize) {
        self.queue.send(&[(job.to_string(), group)]);
    }

    pub fn is_empty(&self) -> bool {
        self.queue.len() == 0
    }

    pub fn count(&self, note: &str) -> usize {
        self.plain.count(note)
    }
}

/// The messages of a dead-letter queue, which stay there.
pub fn dead(queue: &Queue) -> Vec<Value> {
    let asked = json!({
        "QueueUrl": queue.dead_url(),
        "MaxNumberOfMessages": 10,
        "VisibilityTimeout": 0,
        "MessageAttributeNames": ["All"],
    });
    let answer = queue.call("ReceiveMessage", asked);
    answer["Messages"].as_array().cloned().unwrap_or_default()
}

/// Visible and reserved messages.
pub fn counts(queue: &Queue) -> [usize; 2] {
    counts_at(queue, &queue.url())
}

pub fn counts_at(queue: &Queue, url: &str) -> [usize; 2] {
    let asked = json!({ "QueueUrl": url, "AttributeNames": ["All"] });
    let answer = queue.call("GetQueueAttributes", asked);
    ["", "NotVisible"].map(|kind| {
        let name = format!("ApproximateNumberOfMessages{kind}");
        let count = answer["Attributes"][name].as_str().unwrap();
        count.parse().unwrap()
    })
}
