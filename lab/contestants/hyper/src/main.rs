//! Spdy's route on hyper, one thread: the floor, what HTTP and JSON cost without a framework.

use std::convert::Infallible;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;

fn answer(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let body = match (request.method(), request.uri().path()) {
        (&Method::GET, "/") => json!({"message": "Hello World!"}).to_string(),
        _ => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        }
    };
    let mut response = Response::new(Full::new(body.into()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).unwrap_or_default();
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let answer = |request| async move { Ok::<_, Infallible>(answer(&request)) };
    loop {
        let (connection, _) = listener.accept().await?;
        tokio::spawn(async move {
            let connection = TokioIo::new(connection);
            let serving = http1::Builder::new().serve_connection(connection, service_fn(answer));
            // A client that closes early is no error of the server.
            let _ = serving.await;
        });
    }
}
