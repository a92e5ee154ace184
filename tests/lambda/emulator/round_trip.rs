//! Property test: a request and its response survive every service unchanged, except for what the
//! service itself loses.

use std::sync::mpsc;

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use percent_encoding::{percent_decode, percent_decode_str};
use proptest::collection::vec;
use proptest::prelude::*;
use surus::emulator::http::{Gateway, HttpService};
use surus::event::Body;
use surus::fronts::lambda::Settings;
use surus::fronts::lambda::http_event::{self, HttpEvent};
use tokio::net::TcpListener;

use super::fake::{Fake, LONG, attached};

#[derive(Debug, Clone)]
struct Asked {
    method: Method,
    path: String,
    /// As sent, each name once.
    query: Vec<(String, String)>,
    cookies: Vec<String>,
    kind: Option<String>,
    header: String,
    body: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Answered {
    status: u16,
    header: String,
    cookies: Vec<String>,
    body: Vec<u8>,
}

fn asked() -> impl Strategy<Value = Asked> {
    let method = prop::sample::select(vec![Method::GET, Method::POST, Method::PUT, Method::PATCH]);
    let kinds = vec![
        None,
        Some("text/plain; charset=utf-8"),
        Some("application/json"),
        Some("application/x-www-form-urlencoded"),
        Some("application/octet-stream"),
    ];
    (
        method,
        "(/([a-zA-Z0-9._~!$&'()*+,;=:@-]|%[2-7][0-9A-F]|%C3%A9){0,8}){1,4}",
        vec("([a-zA-Z0-9._~-]|\\+|%2[0-9A-F]|%C3%A9){0,6}", 0..5),
        vec("[a-z]{1,4}=[a-zA-Z0-9]{0,8}", 0..3),
        prop::sample::select(kinds),
        "[!-~]([ -~]{0,20}[!-~])?",
        vec(any::<u8>(), 0..200),
    )
        .prop_map(
            |(method, path, values, cookies, kind, header, body)| Asked {
                body: if method == Method::GET {
                    Vec::new()
                } else {
                    body
                },
                method,
                path,
                query: values
                    .into_iter()
                    .enumerate()
                    .map(|(at, value)| (format!("n{at}"), value))
                    .collect(),
                cookies,
                kind: kind.map(String::from),
                header,
            },
        )
}

fn answered() -> impl Strategy<Value = Answered> {
    (
        prop::sample::select(vec![200u16, 201, 302, 404, 500, 503]),
        "[!-~]([ -~]{0,20}[!-~])?",
        vec("[a-z]{1,4}=[a-zA-Z0-9]{0,8}", 0..3),
        vec(any::<u8>(), 0..200),
    )
        .prop_map(|(status, header, cookies, body)| Answered {
            status,
            header,
            cookies,
            body,
        })
}

const SERVICES: [HttpService; 5] = [
    HttpService::Url,
    HttpService::Http,
    HttpService::Rest,
    HttpService::Alb,
    HttpService::AlbMulti,
];

/// The request that the function saw, and the response that the client got.
async fn pass(
    service: HttpService,
    asked: &Asked,
    answer: &Answered,
) -> (HttpEvent, u16, HeaderMap, Bytes) {
    let (emulator, runtime) = attached(|f| f.timeout = LONG).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = Fake::connect(listener.local_addr().unwrap()).await;
    let mut gateway = Gateway::new(emulator, service, false);
    gateway.binary_media_types = "*/*".parse().unwrap();
    tokio::spawn(gateway.serve(listener));
    let (sender, seen) = mpsc::channel();
    let said = answer.clone();
    runtime.serve(move |event| {
        let event = http_event::read(&event, &Settings::default())
            .unwrap()
            .unwrap();
        let mut response = Response::builder()
            .status(said.status)
            .header("content-type", "text/plain")
            .header("x-answer", &said.header);
        for cookie in &said.cookies {
            response = response.header("set-cookie", cookie);
        }
        let head = response.body(()).unwrap().into_parts().0;
        let answer = http_event::write(&event.format, &head, &said.body).json;
        sender.send(event).unwrap();
        answer.into()
    });
    let mut target = asked.path.clone();
    let query: Vec<String> = asked
        .query
        .iter()
        .map(|(n, v)| format!("{n}={v}"))
        .collect();
    if !query.is_empty() {
        target = format!("{target}?{}", query.join("&"));
    }
    let cookies = asked.cookies.join("; ");
    let mut headers = vec![("x-asked", asked.header.as_str())];
    if !cookies.is_empty() {
        headers.push(("cookie", &cookies));
    }
    if let Some(kind) = &asked.kind {
        headers.push(("content-type", kind));
    }
    let got = client.try_call(asked.method.clone(), &target, &headers, asked.body.clone());
    let got = got.await.unwrap();
    let event = seen.recv().unwrap();
    (event, got.status, got.headers, got.body)
}

fn decoded(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}

fn decoded_pairs(query: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decoded(name), decoded(&value.replace('+', " "))))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn request_and_response_survive_the_round_trip(asked in asked(), answer in answered()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for service in SERVICES {
            let (event, status, headers, body) = runtime.block_on(pass(service, &asked, &answer));
            let request = &event.request;
            prop_assert_eq!(request.method(), &asked.method);
            let sent = match request.body() {
                Body::Empty => Bytes::new(),
                Body::Memory(bytes) => bytes.clone(),
                Body::Spooled { .. } | Body::Streamed { .. } => panic!("not in memory"),
            };
            prop_assert_eq!(&sent[..], &asked.body[..], "{:?}", service);
            prop_assert_eq!(request.headers()["x-asked"].to_str().unwrap(), &asked.header);
            let kind = request.headers().get("content-type").map(|kind| kind.to_str().unwrap());
            prop_assert_eq!(kind, asked.kind.as_deref());
            let cookies = request.headers().get("cookie").map(|line| line.to_str().unwrap());
            prop_assert_eq!(cookies.unwrap_or_default(), asked.cookies.join("; "));
            prop_assert_eq!(event.origin.client.as_ref().unwrap().ip_text(), "127.0.0.1");

            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            let sent: Vec<String> = asked.query.iter().map(|(n, v)| format!("{n}={v}")).collect();
            match service {
                HttpService::Http => {
                    // The service decodes the path and ends it at a decoded question mark.
                    let whole = decoded(&asked.path);
                    let end = whole.iter().position(|byte| *byte == b'?').unwrap_or(whole.len());
                    // An escape of an escape, such as `%00` of `%2500`, stays one.
                    let whole: Vec<u8> = percent_decode(&whole[..end]).collect();
                    prop_assert_eq!(decoded(path), whole);
                }
                _ => prop_assert_eq!(path, &asked.path, "{:?}", service),
            }
            match service {
                HttpService::Rest => {
                    prop_assert_eq!(decoded_pairs(query), decoded_pairs(&sent.join("&")));
                }
                _ => prop_assert_eq!(query, sent.join("&"), "{:?}", service),
            }

            prop_assert_eq!(status, answer.status, "{:?}", service);
            prop_assert_eq!(headers["x-answer"].to_str().unwrap(), &answer.header);
            prop_assert_eq!(&body[..], &answer.body[..], "{:?}", service);
            let cookies: Vec<&str> = headers
                .get_all("set-cookie")
                .iter()
                .map(|cookie| cookie.to_str().unwrap())
                .collect();
            // A load balancer without multi-value headers keeps one header per name; all others
            // keep all.
            let is_lossy = service == HttpService::Alb && answer.cookies.len() > 1;
            if !is_lossy {
                prop_assert_eq!(cookies, answer.cookies.clone(), "{:?}", service);
            }
        }
    }
}
