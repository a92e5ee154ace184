//! Queues in a real Redis server.

mod horizon;
mod laravel;
mod plain;
mod second_connection;
mod shutdowns_and_crashes;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::{Client, Commands, Connection, FromRedisValue};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::plain::Plain;
use super::site::installed;
use crate::common::ports::free_port;

/// A server on a free port, which keeps all that it has acknowledged. Dropping it kills it.
pub struct Redis {
    child: Child,
    pub port: u16,
    directory: TempDir,
}

impl Redis {
    pub fn start() -> Redis {
        // Another process may take the port before the server does.
        for _ in 0..10 {
            let port = free_port();
            let directory = TempDir::with_prefix("surus-redis-").unwrap();
            let mut child = spawn(port, &directory);
            if is_up(&mut child, port) {
                return Redis {
                    child,
                    port,
                    directory,
                };
            }
        }
        panic!("redis-server does not start");
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub fn connect(&self) -> Connection {
        let client = Client::open(self.url()).unwrap();
        client.get_connection().unwrap()
    }

    pub fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        let mut words = command.split(' ');
        let mut asked = redis::cmd(words.next().unwrap());
        for word in words {
            asked.arg(word);
        }
        asked.query(&mut self.connect()).unwrap()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again after [`kill`](Self::kill).
    pub fn revive(&mut self) {
        self.child = spawn(self.port, &self.directory);
        assert!(is_up(&mut self.child, self.port), "it does not start again");
    }

    /// Waiting, delayed and reserved jobs.
    pub fn jobs(&self, queue: &str) -> [Vec<String>; 3] {
        // At once, because jobs move.
        let mut all = redis::pipe();
        all.atomic().lrange(queue, 0, -1);
        all.zrange(format!("{queue}:delayed"), 0, -1);
        all.zrange(format!("{queue}:reserved"), 0, -1);
        all.query(&mut self.connect()).unwrap()
    }

    pub fn is_empty(&self, queue: &str) -> bool {
        self.jobs(queue).iter().all(Vec::is_empty)
    }

    /// The buried jobs by id.
    pub fn buried(&self, queue: &str) -> Vec<(String, Value)> {
        let all: Vec<(String, String)> = self.connect().hgetall(format!("{queue}:failed")).unwrap();
        let read = |json: String| serde_json::from_str(&json).unwrap();
        all.into_iter().map(|(id, json)| (id, read(json))).collect()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(port: u16, directory: &TempDir) -> Child {
    Command::new(installed("/usr/bin/redis-server", "redis-server"))
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .arg("--dir")
        .arg(directory.path())
        .args([
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn is_up(child: &mut Child, port: u16) -> bool {
    let client = Client::open(format!("redis://127.0.0.1:{port}/0")).unwrap();
    loop {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        let ping = |mut connection: Connection| redis::cmd("PING").exec(&mut connection);
        if client.get_connection().and_then(ping).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub const DEFAULT: &str = "queues:default";

/// A handler whose jobs are in Redis.
pub struct Site {
    pub plain: Plain,
    pub redis: Redis,
}

impl Site {
    pub fn new(settings: &str) -> Site {
        let redis = Redis::start();
        let plain = Plain::from(&redis.url(), settings);
        Site { plain, redis }
    }

    pub fn push(&self, number: usize, what: &str) {
        let job = json!({ "n": number, "do": what, "ms": 1500 });
        self.push_json(&job.to_string());
    }

    pub fn push_json(&self, job: &str) {
        let _: i64 = self.redis.connect().rpush(DEFAULT, job).unwrap();
    }

    pub fn is_empty(&self) -> bool {
        self.redis.is_empty(DEFAULT)
    }
}
