//! Starts ElasticMQ, an independent queue with SQS's protocol.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::time::Duration;

use serde_json::{Value, json};

/// The log line with its address.
const LISTENS: &str = "Started SQS rest server, bind address 127.0.0.1:";

const CONFIGURATION: &str = r#"
node-address { protocol = http, host = "127.0.0.1", port = 0, context-path = "" }
rest-sqs { enabled = true, bind-port = 0, bind-hostname = "127.0.0.1", sqs-limits = strict }
rest-stats { enabled = false }
"#;

/// Dropping the last reference ends it.
pub struct Server {
    /// A shell that ends ElasticMQ when its standard input closes, even if this process is killed.
    shell: Child,
    url: String,
    _dir: tempfile::TempDir,
}

impl Server {
    /// The server that all running tests share. None if it is not available.
    pub fn get() -> Option<Arc<Server>> {
        static RUNNING: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut running = RUNNING.lock().unwrap();
        if let Some(server) = running.upgrade() {
            return Some(server);
        }
        let missing = match (jars(), has_java()) {
            (Some(jars), true) => {
                let server = Arc::new(Server::start(&jars));
                *running = Arc::downgrade(&server);
                return Some(server);
            }
            (None, _) => "ElasticMQ is missing: run scripts/elasticmq",
            (_, false) => "Java is missing: apt-get install default-jre-headless",
        };
        let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!is_ci, "{missing}");
        println!("skipped: {missing}");
        None
    }

    fn start(jars: &Path) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let configuration = dir.path().join("elasticmq.conf");
        std::fs::write(&configuration, CONFIGURATION).unwrap();
        let mut shell = Command::new("sh")
            .args([
                "-c",
                r#""$@" </dev/null & cat >/dev/null; kill -KILL $!; wait"#,
            ])
            .args(["elasticmq", "java", "-Xmx256m", "-XX:+UseSerialGC"])
            .arg(format!("-Dconfig.file={}", configuration.display()))
            .arg("-cp")
            .arg(jars.join("*"))
            .arg("org.elasticmq.server.Main")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, port) = mpsc::channel();
        let lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            let mut said = Vec::new();
            for line in lines.map_while(Result::ok) {
                if let Some((_, after)) = line.split_once(LISTENS) {
                    let digits = after.split(',').next().unwrap().to_string();
                    let _ = sender.send(Ok(digits));
                }
                said.push(line);
            }
            let _ = sender.send(Err(said.join("\n")));
        });
        let port = match port.recv_timeout(Duration::from_secs(120)) {
            Ok(Ok(port)) => port,
            Ok(Err(said)) => panic!("ElasticMQ has ended:\n{said}"),
            Err(_) => panic!("ElasticMQ has not started within 2 minutes"),
        };
        Server {
            shell,
            url: format!("http://127.0.0.1:{port}"),
            _dir: dir,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// The directory of `scripts/elasticmq`.
fn jars() -> Option<PathBuf> {
    // target/debug/surus
    let target = Path::new(env!("CARGO_BIN_EXE_surus")).ancestors().nth(2)?;
    let jars = target.join("elasticmq");
    jars.join("complete").exists().then_some(jars)
}

fn has_java() -> bool {
    let java = Command::new("java")
        .arg("-version")
        .stderr(Stdio::null())
        .status();
    java.is_ok_and(|status| status.success())
}

/// A queue with a dead-letter queue.
#[derive(Clone)]
pub struct Queue {
    server: Arc<Server>,
    agent: ureq::Agent,
    name: String,
    is_fifo: bool,
}

impl Queue {
    pub fn create(
        server: &Arc<Server>,
        name: &str,
        is_fifo: bool,
        visibility: Duration,
        max_receives: u32,
    ) -> Queue {
        let queue = Queue {
            server: server.clone(),
            agent: ureq::Agent::new_with_defaults(),
            name: name.into(),
            is_fifo,
        };
        let mut attributes = json!({"VisibilityTimeout": visibility.as_secs().to_string()});
        if is_fifo {
            attributes["FifoQueue"] = json!("true");
        }
        let arguments = json!({"QueueName": queue.full_name("-dead"), "Attributes": attributes});
        queue.call("CreateQueue", arguments);
        queue.create_with_dead_letters(&queue.dead_url(), attributes, max_receives);
        queue
    }

    /// Another queue whose dead letters go where this queue's go.
    pub fn create_sharing_dead_letters(&self, name: &str, max_receives: u32) -> Queue {
        let queue = Queue {
            name: name.into(),
            ..self.clone()
        };
        queue.create_with_dead_letters(&self.dead_url(), json!({}), max_receives);
        queue
    }

    fn create_with_dead_letters(&self, dead_url: &str, mut attributes: Value, max_receives: u32) {
        let dead = self.call(
            "GetQueueAttributes",
            json!({"QueueUrl": dead_url, "AttributeNames": ["QueueArn"]}),
        );
        let policy = json!({
            "deadLetterTargetArn": dead["Attributes"]["QueueArn"],
            "maxReceiveCount": max_receives,
        });
        attributes["RedrivePolicy"] = json!(policy.to_string());
        let arguments = json!({"QueueName": self.full_name(""), "Attributes": attributes});
        self.call("CreateQueue", arguments);
    }

    fn full_name(&self, suffix: &str) -> String {
        let kind = if self.is_fifo { ".fifo" } else { "" };
        format!("{}{suffix}{kind}", self.name)
    }

    pub fn url(&self) -> String {
        format!("{}/{}", self.server.url, self.path())
    }

    /// The URL through a proxy at this address.
    pub fn url_through(&self, address: SocketAddr) -> String {
        format!("http://{address}/{}", self.path())
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        self.server.url.trim_start_matches("http://")
    }

    fn path(&self) -> String {
        format!("000000000000/{}", self.full_name(""))
    }

    /// Sets when failed messages are delivered again.
    pub fn set_visibility(&self, visibility: Duration) {
        let attributes = json!({"VisibilityTimeout": visibility.as_secs().to_string()});
        let arguments = json!({"QueueUrl": self.url(), "Attributes": attributes});
        self.call("SetQueueAttributes", arguments);
    }

    pub fn dead_url(&self) -> String {
        let name = self.full_name("-dead");
        format!("{}/000000000000/{name}", self.server.url)
    }

    /// Sends messages with their groups, in this order.
    pub fn send(&self, messages: &[(String, usize)]) {
        for (number, messages) in messages.chunks(10).enumerate() {
            let entries: Vec<Value> = messages
                .iter()
                .enumerate()
                .map(|(at, (body, group))| {
                    let mut entry = json!({"Id": at.to_string(), "MessageBody": body});
                    if self.is_fifo {
                        entry["MessageGroupId"] = json!(format!("group-{group}"));
                        entry["MessageDeduplicationId"] = json!(format!("{group}-{number}-{at}"));
                    }
                    entry
                })
                .collect();
            let arguments = json!({"QueueUrl": self.url(), "Entries": entries});
            let sent = self.call("SendMessageBatch", arguments);
            let sent = sent["Successful"].as_array().map_or(0, Vec::len);
            assert_eq!(sent, messages.len());
        }
    }

    /// The number of messages, visible or not.
    pub fn len(&self) -> usize {
        let arguments = json!({"QueueUrl": self.url(), "AttributeNames": ["All"]});
        let attributes = self.call("GetQueueAttributes", arguments);
        ["", "NotVisible", "Delayed"]
            .iter()
            .map(|kind| {
                let name = format!("ApproximateNumberOfMessages{kind}");
                let count = attributes["Attributes"][&name].as_str().unwrap();
                count.parse::<usize>().unwrap()
            })
            .sum()
    }

    /// Takes all dead letters and returns their bodies.
    pub fn take_dead(&self) -> Vec<String> {
        let mut bodies = Vec::new();
        let url = self.dead_url();
        loop {
            let arguments = json!({"QueueUrl": url, "MaxNumberOfMessages": 10});
            let received = self.call("ReceiveMessage", arguments);
            let Some(messages) = received["Messages"]
                .as_array()
                .filter(|all| !all.is_empty())
            else {
                return bodies;
            };
            for message in messages {
                bodies.push(message["Body"].as_str().unwrap().to_string());
                let receipt = &message["ReceiptHandle"];
                let arguments = json!({"QueueUrl": url, "ReceiptHandle": receipt});
                self.call("DeleteMessage", arguments);
            }
        }
    }

    pub fn call(&self, action: &str, arguments: Value) -> Value {
        let mut answer = self
            .agent
            .post(&self.server.url)
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-target", format!("AmazonSQS.{action}"))
            .send(arguments.to_string())
            .unwrap_or_else(|error| panic!("{action} {arguments}: {error}"));
        let text = answer.body_mut().read_to_string().unwrap();
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }
}
