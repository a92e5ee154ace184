//! Streamed answers: pieces, errors in trailers, and callers that want a buffered answer.

use std::time::Duration;

use base64::Engine as _;
use surus::emulator::{AnswerBody, AnswerPiece, Emulator, InvokeOutcome, InvokeRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fake::{LONG, attached};

fn streamed(payload: &'static str) -> InvokeRequest {
    InvokeRequest {
        is_streamed: true,
        ..InvokeRequest::from(payload)
    }
}

/// Sends the head of a streamed answer on a connection of its own.
pub async fn answering(emulator: &Emulator, id: &str) -> TcpStream {
    let mut stream = TcpStream::connect(emulator.address().unwrap())
        .await
        .unwrap();
    let head = format!(
        "POST /2018-06-01/runtime/invocation/{id}/response HTTP/1.1\r\n\
         Host: x\r\n\
         Transfer-Encoding: chunked\r\n\
         Content-Type: application/vnd.awslambda.http-integration-response\r\n\
         Lambda-Runtime-Function-Response-Mode: streaming\r\n\
         Trailer: Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

pub async fn chunk(stream: &mut TcpStream, data: &[u8]) {
    let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
    chunk.extend_from_slice(data);
    chunk.extend_from_slice(b"\r\n");
    stream.write_all(&chunk).await.unwrap();
}

async fn status(stream: &mut TcpStream) -> String {
    let mut answer = vec![0; 12];
    let read = stream.read_exact(&mut answer);
    tokio::time::timeout(LONG, read).await.unwrap().unwrap();
    String::from_utf8(answer).unwrap()
}

async fn piece(body: &mut AnswerBody) -> Option<AnswerPiece> {
    let AnswerBody::Stream(pieces) = body else {
        panic!("not a stream: {body:?}");
    };
    tokio::time::timeout(LONG, pieces.recv()).await.unwrap()
}

async fn data(body: &mut AnswerBody) -> String {
    match piece(body).await {
        Some(AnswerPiece::Data(data)) => String::from_utf8(data.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn pieces_arrive_while_the_function_writes() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    let begun = tokio::spawn({
        let emulator = emulator.clone();
        async move { emulator.begin(streamed("1")).await }
    });
    let event = runtime.next().await;
    let mut stream = answering(&emulator, event.id()).await;
    chunk(&mut stream, b"{\"statusCode\":200}\0\0\0\0\0\0\0\0").await;
    let mut running = begun.await.unwrap();
    let InvokeOutcome::Answer(mut answer) = running.outcome().await else {
        panic!();
    };
    assert!(answer.is_streamed);
    assert_eq!(
        answer.content_type.as_deref(),
        Some("application/vnd.awslambda.http-integration-response")
    );
    assert_eq!(
        data(&mut answer.body).await,
        "{\"statusCode\":200}\0\0\0\0\0\0\0\0"
    );
    chunk(&mut stream, b"later").await;
    assert_eq!(data(&mut answer.body).await, "later");
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    assert!(matches!(
        piece(&mut answer.body).await,
        Some(AnswerPiece::End)
    ));
    assert_eq!(status(&mut stream).await, "HTTP/1.1 202");
}

#[tokio::test]
async fn trailer_error_fails_the_stream() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    for is_streamed in [true, false] {
        let begun = tokio::spawn({
            let emulator = emulator.clone();
            let request = InvokeRequest {
                is_streamed,
                ..InvokeRequest::from("1")
            };
            async move { emulator.begin(request).await }
        });
        let event = runtime.next().await;
        let mut stream = answering(&emulator, event.id()).await;
        chunk(&mut stream, b"half of it").await;
        let said = r#"{"errorMessage":"broke","errorType":"Function.Broken"}"#;
        let body = base64::engine::general_purpose::STANDARD.encode(said);
        let trailers = format!(
            "0\r\n\
             Lambda-Runtime-Function-Error-Type: Function.Broken\r\n\
             Lambda-Runtime-Function-Error-Body: {body}\r\n\r\n"
        );
        stream.write_all(trailers.as_bytes()).await.unwrap();
        let mut running = begun.await.unwrap();
        let failed = running.outcome().await.collect().await.unwrap_err();
        assert_eq!(failed.kind, "Function.Broken");
        assert_eq!(failed.body, said);
        assert_eq!(status(&mut stream).await, "HTTP/1.1 202");
    }
}

#[tokio::test]
async fn buffered_caller_gets_prelude_and_body() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    let begun = tokio::spawn({
        let emulator = emulator.clone();
        async move { emulator.begin("1").await }
    });
    let event = runtime.next().await;
    let mut stream = answering(&emulator, event.id()).await;
    chunk(&mut stream, b"{}\0\0\0\0\0\0\0\0").await;
    chunk(&mut stream, b"body").await;
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let mut running = begun.await.unwrap();
    let whole = running.outcome().await.collect().await.unwrap();
    assert_eq!(&whole[..], b"{}\0\0\0\0\0\0\0\0body");
}

#[tokio::test]
async fn interrupted_answer_is_truncated_for_the_caller() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    for is_streamed in [true, false] {
        let begun = tokio::spawn({
            let emulator = emulator.clone();
            let request = InvokeRequest {
                is_streamed,
                ..InvokeRequest::from("1")
            };
            async move { emulator.begin(request).await }
        });
        let event = runtime.next().await;
        let mut stream = answering(&emulator, event.id()).await;
        chunk(&mut stream, b"half of it").await;
        drop(stream);
        let mut running = begun.await.unwrap();
        let failed = running.outcome().await.collect().await.unwrap_err();
        assert_eq!(failed.kind, "Runtime.TruncatedResponse", "{is_streamed}");
    }
}

#[tokio::test]
async fn stream_ends_at_the_deadline() {
    let (emulator, mut runtime) = attached(|f| f.timeout = Duration::from_secs(5)).await;
    let begun = tokio::spawn({
        let emulator = emulator.clone();
        async move { emulator.begin(streamed("1")).await }
    });
    let event = runtime.next().await;
    let mut stream = answering(&emulator, event.id()).await;
    chunk(&mut stream, b"never to be ended").await;
    let mut running = begun.await.unwrap();
    let outcome = running.outcome().await;
    assert!(matches!(outcome, InvokeOutcome::Answer(_)));
    let failed = outcome.collect().await.unwrap_err();
    assert_eq!(failed.kind, "Runtime.TruncatedResponse");
    let (report, _) = running.report().await.unwrap();
    assert_eq!(report.status, surus::emulator::EventStatus::Timeout);
}

#[tokio::test]
async fn streamed_answer_may_exceed_the_buffered_limit() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    let begun = tokio::spawn({
        let emulator = emulator.clone();
        async move { emulator.begin(streamed("1")).await }
    });
    let event = runtime.next().await;
    let mut stream = answering(&emulator, event.id()).await;
    let writing = tokio::spawn(async move {
        for _ in 0..8 {
            chunk(&mut stream, &vec![b'x'; 1 << 20]).await;
        }
        stream.write_all(b"0\r\n\r\n").await.unwrap();
        status(&mut stream).await
    });
    let mut running = begun.await.unwrap();
    let whole = running.outcome().await.collect().await.unwrap();
    assert_eq!(whole.len(), 8 << 20);
    assert_eq!(writing.await.unwrap(), "HTTP/1.1 202");
}
