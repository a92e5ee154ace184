//! Reads the pipelines of `.rr.yaml` as queues of the format `roadrunner`.

use toml::{Table, Value};

use super::yaml::Yaml;

/// The server of a pipeline whose file names none, as in RoadRunner.
const AMQP: &str = "amqp://guest:guest@127.0.0.1:5672/";

/// What `jobs` and the sections of its drivers say.
#[derive(Default)]
pub struct Pipelines {
    /// `amqp.addr`.
    pub amqp: Option<String>,
    /// `jobs.consume`: the names of the pipelines that workers serve.
    pub consumed: Option<Vec<String>>,
    /// `jobs.pool.supervisor.exec_ttl`.
    pub timeout: Option<String>,
    found: Vec<Pipeline>,
    ignored: Vec<String>,
}

struct Pipeline {
    name: String,
    queue: String,
}

impl Pipelines {
    /// Adds an entry of `jobs.pipelines`. `scalar` reads a value with its environment variables.
    pub fn add(&mut self, name: &str, value: &Yaml, scalar: impl Fn(&Yaml) -> Option<String>) {
        let path = format!("jobs.pipelines.{name}");
        let Yaml::Map(entries) = value else {
            return self.ignored.push(path);
        };
        let (mut driver, mut queue) = (None, None);
        let mut ignored = Vec::new();
        for (key, value) in entries {
            match (key.as_str(), value) {
                ("driver", value) => driver = scalar(value),
                ("config", Yaml::Map(entries)) => {
                    for (key, value) in entries {
                        match key.as_str() {
                            "queue" => queue = scalar(value),
                            // Surus chooses it.
                            "prefetch" => {}
                            key => ignored.push(format!("{path}.config.{key}")),
                        }
                    }
                }
                (key, _) => ignored.push(format!("{path}.{key}")),
            }
        }
        match driver.as_deref() {
            Some("amqp") => {
                self.ignored.extend(ignored);
                self.found.push(Pipeline {
                    name: name.into(),
                    queue: queue.unwrap_or_else(|| "default".into()),
                });
            }
            Some(other) => self.ignored.push(format!("{path} (driver {other})")),
            None => self.ignored.push(path),
        }
    }

    /// The tables `[[queue]]`, and what is ignored.
    pub fn queues(self) -> (Vec<Value>, Vec<String>) {
        let mut ignored = self.ignored;
        let mut queues = Vec::new();
        let consumed = self.consumed.unwrap_or_default();
        let server = self.amqp.unwrap_or_else(|| AMQP.into());
        // An empty path is the virtual host `/` for RoadRunner.
        let server = server.strip_suffix('/').unwrap_or(&server);
        for pipeline in self.found {
            if !consumed.contains(&pipeline.name) {
                ignored.push(format!(
                    "jobs.pipelines.{} (not in jobs.consume)",
                    pipeline.name
                ));
                continue;
            }
            let mut queue = Table::new();
            queue.insert("format".into(), "roadrunner".into());
            queue.insert("source".into(), server.into());
            queue.insert("name".into(), pipeline.queue.into());
            queue.insert("pipeline".into(), pipeline.name.into());
            if let Some(timeout) = &self.timeout {
                queue.insert("timeout".into(), timeout.clone().into());
            }
            queues.push(Value::Table(queue));
        }
        (queues, ignored)
    }
}
