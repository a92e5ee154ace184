//! A small SQS queue with the JSON protocol: visibility timeouts, FIFO groups, a dead-letter queue.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[derive(Clone)]
pub struct Queue(Arc<Mutex<Inner>>, SocketAddr);

struct Inner {
    is_fifo: bool,
    visibility: Duration,
    max_receives: u32,
    messages: Vec<Stored>,
    pub dead: Vec<String>,
    pub calls: Vec<String>,
}

struct Stored {
    id: String,
    body: String,
    group: Option<String>,
    hidden_until: Option<Instant>,
    receives: u32,
}

impl Queue {
    pub async fn start(is_fifo: bool, visibility: Duration) -> Queue {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let inner = Inner {
            is_fifo,
            visibility,
            max_receives: 2,
            messages: Vec::new(),
            dead: Vec::new(),
            calls: Vec::new(),
        };
        let queue = Queue(Arc::new(Mutex::new(inner)), listener.local_addr().unwrap());
        let serving = queue.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let queue = serving.clone();
                let service = service_fn(move |request| queue.clone().answer(request));
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        queue
    }

    pub fn url(&self) -> String {
        format!("http://{}/000000000000/{}", self.1, self.name())
    }

    fn name(&self) -> &'static str {
        if self.0.lock().unwrap().is_fifo {
            "jobs.fifo"
        } else {
            "jobs"
        }
    }

    pub fn send(&self, body: &str, group: Option<&str>) {
        let mut inner = self.0.lock().unwrap();
        let number = inner.messages.len() + inner.dead.len();
        inner.messages.push(Stored {
            id: format!("id-{number}-{body}"),
            body: body.into(),
            group: group.map(String::from),
            hidden_until: None,
            receives: 0,
        });
    }

    /// Ends the visibility timeouts of all messages.
    pub fn show(&self) {
        for message in &mut self.0.lock().unwrap().messages {
            message.hidden_until = None;
        }
    }

    /// The bodies of the remaining messages.
    pub fn left(&self) -> Vec<String> {
        let inner = self.0.lock().unwrap();
        inner.messages.iter().map(|m| m.body.clone()).collect()
    }

    pub fn dead(&self) -> Vec<String> {
        self.0.lock().unwrap().dead.clone()
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let target = request.headers()["x-amz-target"].to_str().unwrap();
        let action = target.strip_prefix("AmazonSQS.").unwrap().to_string();
        let kind = &request.headers()["content-type"];
        assert_eq!(kind, "application/x-amz-json-1.0");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let arguments: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(arguments["QueueUrl"], self.url());
        self.0.lock().unwrap().calls.push(action.clone());
        let answer = match action.as_str() {
            "GetQueueAttributes" => json!({"Attributes": {
                "QueueArn": format!("arn:aws:sqs:eu-west-1:000000000000:{}", self.name()),
                "VisibilityTimeout": self.0.lock().unwrap().visibility.as_secs().to_string(),
            }}),
            "ReceiveMessage" => {
                let wait = arguments["WaitTimeSeconds"].as_u64().unwrap();
                let end = Instant::now() + Duration::from_secs(wait);
                loop {
                    let received = self.receive(arguments["MaxNumberOfMessages"].as_u64().unwrap());
                    if !received.is_empty() || Instant::now() >= end {
                        break json!({"Messages": received});
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            "DeleteMessageBatch" => {
                let mut inner = self.0.lock().unwrap();
                for entry in arguments["Entries"].as_array().unwrap() {
                    let receipt = entry["ReceiptHandle"].as_str().unwrap();
                    let id = receipt.strip_prefix("receipt-").unwrap();
                    inner.messages.retain(|message| message.id != id);
                }
                json!({"Successful": [], "Failed": []})
            }
            other => panic!("unexpected call {other}"),
        };
        Ok(Response::new(Full::new(answer.to_string().into())))
    }

    fn receive(&self, max: u64) -> Vec<Value> {
        let inner = &mut *self.0.lock().unwrap();
        let now = Instant::now();
        let is_hidden = |m: &Stored| m.hidden_until.is_some_and(|until| until > now);
        let (dead, living): (Vec<Stored>, Vec<Stored>) = inner
            .messages
            .drain(..)
            .partition(|m| !is_hidden(m) && m.receives >= inner.max_receives);
        inner.messages = living;
        inner.dead.extend(dead.into_iter().map(|m| m.body));
        // A group with messages in flight gives no other message.
        let mut blocked: Vec<String> = Vec::new();
        let hidden = inner.messages.iter().filter(|m| is_hidden(m));
        blocked.extend(hidden.filter_map(|m| m.group.clone()));
        let mut received = Vec::new();
        for message in &mut inner.messages {
            let is_blocked = message.group.as_ref().is_some_and(|g| blocked.contains(g));
            if received.len() as u64 == max || is_hidden(message) || is_blocked {
                continue;
            }
            message.hidden_until = Some(now + inner.visibility);
            message.receives += 1;
            let mut attributes = json!({"ApproximateReceiveCount": message.receives.to_string()});
            if let Some(group) = &message.group {
                attributes["MessageGroupId"] = json!(group);
            }
            received.push(json!({
                "MessageId": message.id,
                "ReceiptHandle": format!("receipt-{}", message.id),
                "Body": message.body,
                "MD5OfBody": "not-checked",
                "Attributes": attributes,
            }));
        }
        received
    }
}
