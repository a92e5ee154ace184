//! An SQS client for a poller: a few unsigned calls in the JSON protocol over plain HTTP, for local
//! queues.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// Longer than the longest long poll of SQS.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A client for one queue over one connection.
pub struct SqsClient {
    queue: String,
    authority: String,
    path: String,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl SqsClient {
    /// `http://127.0.0.1:9324/000000000000/queue`.
    pub fn new(queue: &str) -> anyhow::Result<SqsClient> {
        let uri: Uri = queue
            .parse()
            .with_context(|| format!("invalid queue URL `{queue}`"))?;
        if uri.scheme_str() != Some("http") {
            bail!(
                "`{queue}`: write the URL of a local queue, such as \
                 http://127.0.0.1:9324/000000000000/queue; those of AWS need signed \
                 requests, which the emulator does not make"
            );
        }
        let authority = uri.authority().context("the URL has no host")?;
        let authority = match authority.port() {
            Some(_) => authority.to_string(),
            None => format!("{authority}:80"),
        };
        Ok(SqsClient {
            queue: queue.to_string(),
            authority,
            path: "/".into(),
            connection: None,
        })
    }

    /// Makes one call. Connects again if a kept connection turns out to be closed.
    pub async fn call(&mut self, action: &str, mut arguments: Value) -> anyhow::Result<Value> {
        arguments["QueueUrl"] = json!(self.queue);
        let body = Bytes::from(arguments.to_string());
        let was_kept = self.connection.is_some();
        let result = self.attempt(action, body.clone()).await;
        match result {
            Err(AttemptError::Connection(_)) if was_kept => {
                self.connection = None;
                self.attempt(action, body)
                    .await
                    .map_err(AttemptError::into_error)
            }
            result => result.map_err(AttemptError::into_error),
        }
        .with_context(|| format!("{action} of {}", self.queue))
    }

    async fn attempt(&mut self, action: &str, body: Bytes) -> Result<Value, AttemptError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await.map_err(AttemptError::Connection)?,
        };
        let request = Request::post(&self.path)
            .header(header::HOST, &self.authority)
            .header(header::CONTENT_TYPE, "application/x-amz-json-1.0")
            .header("x-amz-target", format!("AmazonSQS.{action}"))
            .header(
                header::AUTHORIZATION,
                "AWS4-HMAC-SHA256 Credential=emulator/20260101/us-east-1/sqs/aws4_request, \
                 SignedHeaders=host, Signature=0",
            )
            .body(Full::new(body))
            .map_err(|error| AttemptError::Answer(error.into()))?;
        let answered = async {
            connection.ready().await?;
            let response = connection.send_request(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            Ok::<_, hyper::Error>((status, body))
        };
        let (status, body) = match tokio::time::timeout(TIMEOUT, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(AttemptError::Connection(error.into())),
            Err(_) => {
                let error = anyhow::anyhow!("no response within {TIMEOUT:?}");
                return Err(AttemptError::Answer(error));
            }
        };
        self.connection = Some(connection);
        if !status.is_success() {
            let message = String::from_utf8_lossy(&body).into_owned();
            return Err(AttemptError::Answer(anyhow::anyhow!("{status}: {message}")));
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body)
            .context("the response is not JSON; does the queue support SQS's JSON protocol?")
            .map_err(AttemptError::Answer)
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(&self.authority)
            .await
            .with_context(|| format!("cannot connect to {}", self.authority))?;
        stream.set_nodelay(true)?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// The error of an attempt.
enum AttemptError {
    /// Failed before a response arrived; a new connection may help.
    Connection(anyhow::Error),
    Answer(anyhow::Error),
}

impl AttemptError {
    fn into_error(self) -> anyhow::Error {
        match self {
            AttemptError::Connection(error) | AttemptError::Answer(error) => error,
        }
    }
}
