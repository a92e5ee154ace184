//! A proxy between the poller and the queue that records which messages are delivered and deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// The record.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// Messages by receipt; each delivery has its own receipt.
    received: BTreeMap<String, String>,
    /// The number of deliveries of each message.
    times: BTreeMap<String, usize>,
    /// Receipts whose deletion was requested.
    pub deleted: BTreeSet<String>,
    /// Deletions that the queue has rejected, with its reason.
    refused: Vec<(String, String)>,
}

impl Seen {
    /// Rejections other than those of messages that were delivered again since.
    pub fn refused_without_reason(&self) -> Vec<String> {
        let is_newest = |receipt: &String| {
            let message = self.received.get(receipt);
            message.is_none_or(|message| self.times[message] == 1)
        };
        let wrong = self
            .refused
            .iter()
            .filter(|(receipt, _)| is_newest(receipt));
        wrong
            .map(|(receipt, why)| format!("{receipt} was not deleted: {why}"))
            .collect()
    }

    fn note(&mut self, action: &str, asked: &Value, answered: &Value) {
        let list = |of: &Value, name: &str| of[name].as_array().cloned().unwrap_or_default();
        let text = |of: &Value| of.as_str().unwrap_or_default().to_string();
        match action {
            "AmazonSQS.ReceiveMessage" => {
                for message in list(answered, "Messages") {
                    let id = text(&message["MessageId"]);
                    *self.times.entry(id.clone()).or_default() += 1;
                    self.received.insert(text(&message["ReceiptHandle"]), id);
                }
            }
            "AmazonSQS.DeleteMessageBatch" => {
                let entries = list(asked, "Entries");
                let receipts = entries.iter().map(|entry| text(&entry["ReceiptHandle"]));
                self.deleted.extend(receipts);
                for failed in list(answered, "Failed") {
                    let entry = entries.iter().find(|entry| entry["Id"] == failed["Id"]);
                    let receipt = entry.map(|entry| text(&entry["ReceiptHandle"]));
                    self.refused
                        .push((receipt.unwrap_or_default(), failed.to_string()));
                }
            }
            _ => {}
        }
    }
}

/// Passes calls on until it is dropped.
pub struct Witness {
    pub address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    accepting: AbortHandle,
}

impl Witness {
    /// `queue` is the queue's address.
    pub async fn start(queue: String) -> Witness {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let heard = seen.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(pass_on(stream, queue.clone(), heard.clone()));
            }
        });
        Witness {
            address,
            seen,
            accepting: accepting.abort_handle(),
        }
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Passes on the calls of one connection, each on a new connection.
async fn pass_on(stream: TcpStream, queue: String, seen: Arc<Mutex<Seen>>) {
    let call = service_fn(|request: Request<hyper::body::Incoming>| {
        let (queue, seen) = (queue.clone(), seen.clone());
        async move {
            let (head, body) = request.into_parts();
            let asked = body.collect().await.unwrap().to_bytes();
            let action = head.headers["x-amz-target"].to_str().unwrap().to_string();
            let stream = TcpStream::connect(&queue).await.unwrap();
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream))
                    .await
                    .unwrap();
            tokio::spawn(connection);
            let request = Request::from_parts(head, Full::new(asked.clone()));
            let answer = sender.send_request(request).await.unwrap();
            let (head, body) = answer.into_parts();
            let answered: Bytes = body.collect().await.unwrap().to_bytes();
            let json = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or(Value::Null);
            seen.lock()
                .unwrap()
                .note(&action, &json(&asked), &json(&answered));
            Ok::<_, Infallible>(Response::from_parts(head, Full::new(answered)))
        }
    });
    // A poller that stops closes its connection in the middle of a call.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), call)
        .await;
}
