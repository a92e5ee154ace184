//! A fake runtime that a test controls call by call.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use surus::emulator::{EmulatedFunction, Emulator, Runtime};
use tokio::net::TcpStream;

/// Longer than anything in these tests takes.
pub const LONG: Duration = Duration::from_secs(30);

pub struct Fake {
    address: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
}

/// A response of the emulator.
#[derive(Debug)]
pub struct Said {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Said {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// `status errorType: errorMessage`.
    pub fn refusal(&self) -> String {
        let json = self.json();
        let of = |key: &str| json[key].as_str().unwrap().to_string();
        format!(
            "{} {}: {}",
            self.status,
            of("errorType"),
            of("errorMessage")
        )
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap().to_str().unwrap()
    }

    pub fn id(&self) -> &str {
        self.header("lambda-runtime-aws-request-id")
    }

    pub fn nonce(&self) -> &str {
        self.header("lambda-runtime-invocation-id")
    }
}

impl Fake {
    pub async fn connect(address: SocketAddr) -> Fake {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        Fake { address, sender }
    }

    /// Another connection of the same runtime.
    pub async fn another(&self) -> Fake {
        Fake::connect(self.address).await
    }

    /// Returns None if the emulator closes the connection.
    pub async fn try_call(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Option<Said> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "runtime");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let answered = async {
            self.sender.ready().await.ok()?;
            let response = self.sender.send_request(request).await.ok()?;
            let (head, body) = response.into_parts();
            Some(Said {
                status: head.status.as_u16(),
                headers: head.headers,
                body: body.collect().await.ok()?.to_bytes(),
            })
        };
        tokio::time::timeout(LONG, answered).await.unwrap()
    }

    pub async fn get(&mut self, path: &str) -> Said {
        self.try_call(Method::GET, path, &[], "").await.unwrap()
    }

    pub async fn post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Said {
        self.try_call(Method::POST, path, headers, body)
            .await
            .unwrap()
    }

    pub async fn next(&mut self) -> Said {
        let said = self.get("/2018-06-01/runtime/invocation/next").await;
        assert_eq!(said.status, 200, "{said:?}");
        said
    }

    pub async fn respond(&mut self, id: &str, body: impl Into<Bytes>) -> Said {
        let path = format!("/2018-06-01/runtime/invocation/{id}/response");
        self.post(&path, &[], body).await
    }

    pub async fn fail(
        &mut self,
        id: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Said {
        let path = format!("/2018-06-01/runtime/invocation/{id}/error");
        self.post(&path, headers, body).await
    }

    /// Echoes events in a task until the connection is closed.
    pub fn echo(self) {
        self.serve(|event| event);
    }

    /// Answers events with a function's result in a task.
    pub fn serve(mut self, mut answer: impl FnMut(Bytes) -> Bytes + Send + 'static) {
        tokio::spawn(async move {
            let next = "/2018-06-01/runtime/invocation/next";
            while let Some(event) = self.wait(next).await {
                let path = format!("/2018-06-01/runtime/invocation/{}/response", event.id());
                let body = answer(event.body);
                self.try_call(Method::POST, &path, &[], body).await;
            }
        });
    }

    /// Like [`get`](Fake::get), but never times out.
    async fn wait(&mut self, path: &str) -> Option<Said> {
        let request = Request::get(path).header("host", "runtime");
        let request = request.body(Full::default()).unwrap();
        self.sender.ready().await.ok()?;
        let response = self.sender.send_request(request).await.ok()?;
        let (head, body) = response.into_parts();
        Some(Said {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.collect().await.ok()?.to_bytes(),
        })
    }
}

/// A function with the test as its runtime, changed by `change`.
pub async fn attached(change: impl FnOnce(&mut EmulatedFunction)) -> (Emulator, Fake) {
    let mut function = EmulatedFunction::new(Runtime::Attached);
    change(&mut function);
    let emulator = Emulator::start(function).await.unwrap();
    let fake = Fake::connect(emulator.address().unwrap()).await;
    (emulator, fake)
}

/// Starts an invocation in a task.
pub fn invoke(
    emulator: &Emulator,
    payload: &'static str,
) -> tokio::task::JoinHandle<surus::emulator::Invocation> {
    let emulator = emulator.clone();
    tokio::spawn(async move {
        tokio::time::timeout(LONG, emulator.invoke(payload))
            .await
            .unwrap()
    })
}

/// `type: message` of the caller's error.
pub fn error(invocation: &surus::emulator::Invocation) -> String {
    let error = invocation.result.as_ref().unwrap_err();
    let json: serde_json::Value = serde_json::from_slice(&error.body).unwrap();
    assert_eq!(
        json["errorType"], *error.kind,
        "type in the header and in the body"
    );
    let message = json["errorMessage"].as_str().unwrap();
    let message = message.replace(&invocation.request_id, "ID");
    format!("{}: {message}", error.kind)
}
