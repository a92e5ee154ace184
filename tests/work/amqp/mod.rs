//! Queues in a real RabbitMQ server.

mod broker;
mod laravel;
mod plain;
mod poison;
mod raw;
mod roadrunner;
mod shutdowns_and_crashes;

use std::sync::RwLockReadGuard;

use serde_json::json;

pub use self::broker::{Broker, Kind, Message, stays};
use super::plain::Plain;
use super::work::Work;

/// A handler whose jobs are in RabbitMQ.
pub struct Site {
    pub plain: Plain,
    pub broker: &'static Broker,
    /// The name of its queue, which no other test has.
    pub queue: String,
    /// Keeps other tests from restarting the server. None in those that do.
    _running: Option<RwLockReadGuard<'static, ()>>,
}

impl Site {
    /// With a classic queue.
    pub fn new(settings: &str) -> Site {
        Site::with(Kind::Classic, settings, Broker::port)
    }

    /// With a queue of this type, whose server is reached by this port.
    pub fn with(kind: Kind, settings: &str, port: impl FnOnce(&Broker) -> u16) -> Site {
        let running = broker::stays();
        let mut site = Site::unguarded(kind, settings, port);
        site._running = Some(running);
        site
    }

    /// For tests that restart the server.
    pub fn unguarded(kind: Kind, settings: &str, port: impl FnOnce(&Broker) -> u16) -> Site {
        let broker = Broker::get();
        let queue = broker.create(kind);
        let source = format!("amqp://guest:guest@127.0.0.1:{}", port(broker));
        let settings = format!("name = '{queue}'\n{settings}");
        Site {
            plain: Plain::from(&source, &settings),
            broker,
            queue,
            _running: None,
        }
    }

    pub fn start(&self) -> Work {
        self.plain.start(&["--workers", "1"])
    }

    pub fn push(&self, number: usize, what: &str) {
        let job = json!({ "n": number, "do": what, "ms": 1500 });
        self.broker.push(&self.queue, &job.to_string());
    }

    /// How many messages wait that no consumer has.
    pub fn ready(&self) -> usize {
        self.broker.count(&self.queue).unwrap()
    }

    pub fn count(&self, note: &str) -> usize {
        self.plain.count(note)
    }

    /// The messages of its queue, once no process consumes it. They are removed.
    pub fn left(&self) -> Vec<Message> {
        self.broker.take(&self.queue)
    }

    /// The buried messages, which are removed.
    pub fn buried(&self) -> Vec<Message> {
        self.broker.take(&format!("{}.failed", self.queue))
    }
}
