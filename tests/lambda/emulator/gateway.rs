//! HTTP services: requests become events, and answers become responses.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use surus::emulator::Emulator;
use surus::emulator::http::{Gateway, HttpService};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::fake::{Fake, LONG, Said, attached};
use super::streams::{answering, chunk};

async fn before(emulator: &Emulator, service: HttpService, is_streamed: bool) -> SocketAddr {
    serve(Gateway::new(emulator.clone(), service, is_streamed)).await
}

async fn serve(gateway: Gateway) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(gateway.serve(listener));
    address
}

async fn call(address: SocketAddr, method: Method, target: &str, body: &'static str) -> Said {
    let mut client = Fake::connect(address).await;
    let headers = [("content-type", "text/plain"), ("cookie", "a=1; b=2")];
    client
        .try_call(method, target, &headers, body)
        .await
        .unwrap()
}

#[tokio::test]
async fn function_url_converts_request_and_answer() {
    let (emulator, runtime) = attached(|f| f.timeout = LONG).await;
    // A payload without a status becomes the body: here the event itself.
    runtime.echo();
    let address = before(&emulator, HttpService::Url, false).await;
    let said = call(address, Method::PUT, "/a%2Fb?x=1&x=2", "text").await;
    assert_eq!(said.status, 200);
    assert_eq!(said.header("content-type"), "application/json");
    let event = said.json();
    assert_eq!(event["version"], "2.0");
    assert_eq!(event["rawPath"], "/a%2Fb");
    assert_eq!(event["rawQueryString"], "x=1&x=2");
    assert_eq!(event["requestContext"]["http"]["method"], "PUT");
    assert_eq!(event["requestContext"]["http"]["sourceIp"], "127.0.0.1");
    assert_eq!(event["cookies"], serde_json::json!(["a=1", "b=2"]));
    assert_eq!(event["body"], "text");
    assert_eq!(
        event["headers"]["x-forwarded-port"],
        address.port().to_string()
    );
    assert_eq!(
        said.header("x-amzn-requestid"),
        event["requestContext"]["requestId"]
    );
}

#[tokio::test]
async fn each_front_end_sends_its_event_format() {
    let (emulator, runtime) = attached(|f| f.timeout = LONG).await;
    runtime.serve(|event| {
        let text = String::from_utf8(event.to_vec()).unwrap();
        let answer = serde_json::json!({"statusCode": 203, "body": text});
        Bytes::from(answer.to_string())
    });
    for (service, method, mark) in [
        (
            HttpService::Url,
            "/requestContext/http/method",
            "/requestContext/http",
        ),
        (
            HttpService::Http,
            "/requestContext/http/method",
            "/routeKey",
        ),
        (HttpService::Rest, "/httpMethod", "/requestContext/identity"),
        (HttpService::Alb, "/httpMethod", "/requestContext/elb"),
        (
            HttpService::AlbMulti,
            "/httpMethod",
            "/multiValueHeaders/host",
        ),
    ] {
        let address = before(&emulator, service, false).await;
        let said = call(address, Method::DELETE, "/x", "").await;
        assert_eq!(said.status, 203);
        let event = said.json();
        assert_eq!(event.pointer(method).unwrap(), "DELETE", "{service:?}");
        assert!(event.pointer(mark).is_some(), "{service:?}: {event}");
    }
}

#[tokio::test]
async fn failed_function_gets_the_front_ends_error() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    tokio::spawn(async move {
        loop {
            let event = runtime.next().await;
            runtime.fail(event.id(), &[], "{}").await;
        }
    });
    for (service, status, text) in [
        (HttpService::Url, 502, "Internal Server Error"),
        (
            HttpService::Http,
            500,
            r#"{"message":"Internal Server Error"}"#,
        ),
        (
            HttpService::Rest,
            502,
            r#"{"message":"Internal server error"}"#,
        ),
        (HttpService::Alb, 502, "502 Bad Gateway"),
    ] {
        let address = before(&emulator, service, false).await;
        let said = call(address, Method::GET, "/", "").await;
        assert_eq!((said.status, &said.body[..]), (status, text.as_bytes()));
    }
}

#[tokio::test]
async fn api_gateway_gives_up_after_its_timeout() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    assert_eq!(HttpService::Rest.timeout(), Some(Duration::from_secs(29)));
    assert_eq!(HttpService::Url.timeout(), None);
    let mut gateway = Gateway::new(emulator.clone(), HttpService::Rest, false);
    gateway.timeout = Some(Duration::from_millis(100));
    let address = serve(gateway).await;
    let said = call(address, Method::GET, "/", "").await;
    assert_eq!(said.status, 504);
    assert_eq!(said.json()["message"], "Endpoint request timed out");
    // The function does not know that the service gave up.
    let event = runtime.next().await;
    assert_eq!(runtime.respond(event.id(), "late").await.status, 202);
}

#[tokio::test]
async fn rest_api_without_binary_media_types_passes_bytes_on_as_text() {
    let (emulator, runtime) = attached(|f| f.timeout = LONG).await;
    // Answers with the event's body, and the same bytes in base64.
    runtime.serve(|event| {
        let event: serde_json::Value = serde_json::from_slice(&event).unwrap();
        let said = serde_json::json!([event["body"], event["isBase64Encoded"]]).to_string();
        let is_base64 = event["path"] == "/base64";
        let body = if is_base64 {
            "iVBORw==".to_string()
        } else {
            said
        };
        let answer =
            serde_json::json!({"statusCode": 200, "body": body, "isBase64Encoded": is_base64});
        Bytes::from(answer.to_string())
    });
    let png = &b"\x89PNG"[..];
    for (types, kind, accept, event, answer) in [
        (
            "",
            "image/png",
            "image/png",
            r#"["�PNG",false]"#,
            &b"iVBORw=="[..],
        ),
        (
            "",
            "application/x-www-form-urlencoded",
            "",
            r#"["�PNG",false]"#,
            b"iVBORw==",
        ),
        (
            "*/*",
            "text/plain",
            "text/html",
            r#"["iVBORw==",true]"#,
            png,
        ),
        ("*/*", "image/png", "", r#"["iVBORw==",true]"#, png),
        (
            "image/png",
            "Image/PNG; a=b",
            "image/png,*/*;q=0.8",
            r#"["iVBORw==",true]"#,
            png,
        ),
        (
            "image/png",
            "image/gif",
            "text/html,image/png",
            r#"["�PNG",false]"#,
            b"iVBORw==",
        ),
    ] {
        let what = format!("{types:?} {kind} {accept}");
        let mut gateway = Gateway::new(emulator.clone(), HttpService::Rest, false);
        if !types.is_empty() {
            gateway.binary_media_types = types.parse().unwrap();
        }
        let mut client = Fake::connect(serve(gateway).await).await;
        let headers = [("content-type", kind), ("accept", accept)];
        let headers = if accept.is_empty() {
            &headers[..1]
        } else {
            &headers
        };
        let said = client
            .try_call(Method::POST, "/", headers, png)
            .await
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&said.body), event, "{what}");
        let said = client
            .try_call(Method::POST, "/base64", headers, png)
            .await
            .unwrap();
        assert_eq!(&said.body[..], answer, "{what}");
    }
}

#[tokio::test]
async fn event_above_lambdas_limit_is_rejected() {
    let (emulator, runtime) = attached(|f| f.timeout = LONG).await;
    runtime.serve(|_| Bytes::from_static(br#"{"statusCode":204}"#));
    let address = before(&emulator, HttpService::Url, false).await;
    let mut client = Fake::connect(address).await;
    let kind = [("content-type", "text/plain")];
    for (size, status) in [(6 << 20, 413), ((6 << 20) - 10_000, 204)] {
        let body = vec![b'x'; size];
        let said = client.try_call(Method::POST, "/", &kind, body).await;
        assert_eq!(said.unwrap().status, status, "{size}");
    }
}

#[tokio::test]
async fn each_front_end_has_the_limits_of_aws() {
    const MAX: usize = 1 << 20;
    let (emulator, runtime) = attached(|f| f.timeout = LONG).await;
    // Answers with as many bytes of JSON and of a header as the path says.
    runtime.serve(|event| {
        let event: serde_json::Value = serde_json::from_slice(&event).unwrap();
        let path = event["rawPath"]
            .as_str()
            .or(event["path"].as_str())
            .unwrap();
        let (size, header) = path[1..].split_once('/').unwrap();
        let (size, header): (usize, usize) = (size.parse().unwrap(), header.parse().unwrap());
        let mut answer = serde_json::json!({"statusCode": 200, "headers": {}, "body": ""});
        if header > 0 {
            answer["headers"]["x-long"] = "x".repeat(header).into();
        }
        let left = size.saturating_sub(answer.to_string().len());
        answer["body"] = "x".repeat(left).into();
        Bytes::from(answer.to_string())
    });
    for (service, sent, header, asked, status) in [
        (HttpService::Alb, MAX, 0, "/0/0", 200),
        (HttpService::Alb, MAX + 1, 0, "/0/0", 413),
        (HttpService::Alb, 0, 0, "/1048576/0", 200),
        (HttpService::Alb, 0, 0, "/1048577/0", 502),
        (HttpService::Alb, 0, 20_000, "/0/20000", 200),
        (HttpService::Url, MAX + 1, 20_000, "/1048577/20000", 200),
        (HttpService::Http, MAX + 1, 10_000, "/1048577/10000", 200),
        (HttpService::Http, 0, 10_241, "/0/0", 431),
        (HttpService::Http, 0, 0, "/0/10241", 500),
        (HttpService::Rest, MAX + 1, 10_000, "/1048577/10000", 200),
        (HttpService::Rest, 0, 10_241, "/0/0", 431),
        (HttpService::Rest, 0, 0, "/0/10241", 502),
    ] {
        let address = before(&emulator, service, false).await;
        let mut client = Fake::connect(address).await;
        let long = "x".repeat(header);
        let headers = [("x-long", &long[..])];
        let said = client
            .try_call(Method::POST, asked, &headers, vec![b'x'; sent])
            .await;
        let what = format!("{service:?} {sent} {header} {asked}");
        assert_eq!(said.unwrap().status, status, "{what}");
    }
}

async fn read_until(stream: &mut TcpStream, seen: &mut String, end: &str) {
    let mut buffer = [0; 4096];
    while !seen.contains(end) {
        let read = tokio::time::timeout(LONG, stream.read(&mut buffer));
        let read = read.await.unwrap().unwrap();
        assert!(read > 0, "closed after {seen:?} without {end:?}");
        seen.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
}

#[tokio::test]
async fn streamed_answer_arrives_while_the_function_writes() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    for service in [HttpService::Url, HttpService::Rest] {
        let address = before(&emulator, service, true).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        client.write_all(request.as_bytes()).await.unwrap();
        let event = runtime.next().await;
        let mut function = answering(&emulator, event.id()).await;
        // The prelude in two pieces, the second with the start of the body.
        let prelude = r#"{"statusCode":206,"headers":{"x-mine":"yes"},"#;
        chunk(&mut function, prelude.as_bytes()).await;
        chunk(
            &mut function,
            b"\"cookies\":[\"c=1\"]}\0\0\0\0\0\0\0\0first",
        )
        .await;
        let mut seen = String::new();
        read_until(&mut client, &mut seen, "first").await;
        assert!(
            seen.starts_with("HTTP/1.1 206 Partial Content\r\n"),
            "{seen}"
        );
        assert!(seen.contains("x-mine: yes\r\n"), "{seen}");
        assert!(seen.contains("set-cookie: c=1\r\n"), "{seen}");
        chunk(&mut function, b"second").await;
        read_until(&mut client, &mut seen, "second").await;
        function.write_all(b"0\r\n\r\n").await.unwrap();
        read_until(&mut client, &mut seen, "\r\n0\r\n\r\n").await;
    }
}

#[tokio::test]
async fn failed_stream_aborts_the_response() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    let address = before(&emulator, HttpService::Url, true).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let event = runtime.next().await;
    let mut function = answering(&emulator, event.id()).await;
    chunk(&mut function, b"{}\0\0\0\0\0\0\0\0first").await;
    let trailers = "0\r\nLambda-Runtime-Function-Error-Type: Function.Broken\r\n\r\n";
    function.write_all(trailers.as_bytes()).await.unwrap();
    let mut seen = String::new();
    read_until(&mut client, &mut seen, "first").await;
    let mut rest = Vec::new();
    let read = tokio::time::timeout(LONG, client.read_to_end(&mut rest));
    let _ = read.await.unwrap();
    let rest = String::from_utf8(rest).unwrap();
    assert!(
        !rest.contains("0\r\n\r\n"),
        "the end must be missing: {rest:?}"
    );
}

#[tokio::test]
async fn stream_on_buffered_url_is_an_error() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    let address = before(&emulator, HttpService::Url, false).await;
    let calling = tokio::spawn(call(address, Method::GET, "/", ""));
    let event = runtime.next().await;
    let mut function = answering(&emulator, event.id()).await;
    chunk(&mut function, b"{\"statusCode\":200}\0\0\0\0\0\0\0\0body").await;
    function.write_all(b"0\r\n\r\n").await.unwrap();
    assert_eq!(calling.await.unwrap().status, 502);
}

#[tokio::test]
async fn sdk_invokes_the_function() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut sdk = Fake::connect(listener.local_addr().unwrap()).await;
    tokio::spawn(surus::emulator::http::invoke_api::serve(
        listener,
        emulator.clone(),
    ));
    let path = "/2015-03-31/functions/any-name/invocations";
    let serving = tokio::spawn(async move {
        let event = runtime.next().await;
        let context = event.header("lambda-runtime-client-context").to_string();
        assert_eq!(context, r#"{"custom":{}}"#);
        runtime.respond(event.id(), event.body.clone()).await;
        let event = runtime.next().await;
        let body = r#"{"errorMessage":"no","errorType":"Mine"}"#;
        runtime.fail(event.id(), &[], body).await;
        let event = runtime.next().await;
        runtime.respond(event.id(), "no client reads it").await;
        event.body
    });
    let context = STANDARD.encode(r#"{"custom":{}}"#);
    let headers = [
        ("x-amz-client-context", context.as_str()),
        ("x-amz-log-type", "Tail"),
    ];
    let said = sdk.post(path, &headers, r#"{"a":1}"#).await;
    assert_eq!((said.status, &said.body[..]), (200, &br#"{"a":1}"#[..]));
    assert_eq!(said.header("x-amz-executed-version"), "$LATEST");
    assert!(!said.headers.contains_key("x-amz-function-error"));
    let log = STANDARD.decode(said.header("x-amz-log-result")).unwrap();
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("REPORT RequestId: "), "{log}");

    let said = sdk.post(path, &[], "{}").await;
    assert_eq!(said.status, 200);
    assert_eq!(said.header("x-amz-function-error"), "Unhandled");
    assert_eq!(said.json()["errorMessage"], "no");

    let later = [("x-amz-invocation-type", "Event")];
    let said = sdk.post(path, &later, r#"{"later":1}"#).await;
    assert_eq!((said.status, said.body.len()), (202, 0));
    assert_eq!(serving.await.unwrap(), r#"{"later":1}"#);

    let said = sdk.post(path, &[], "no JSON").await;
    assert_eq!(said.status, 400);
    assert_eq!(
        said.header("x-amzn-errortype"),
        "InvalidRequestContentException"
    );
    let said = sdk.post(path, &[], vec![b' '; (6 << 20) + 1]).await;
    assert_eq!(said.header("x-amzn-errortype"), "RequestTooLargeException");
    let said = sdk.get("/2015-03-31/functions").await;
    assert_eq!(said.status, 404);
}
