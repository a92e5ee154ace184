//! Tests of the event fields against AWS's values.

use super::*;
use crate::emulator::function::Runtime;

fn received(target: &str, headers: &[(&str, &str)], body: &'static [u8]) -> ReceivedRequest {
    let mut request = http::Request::builder().method("POST").uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    ReceivedRequest {
        parts: request.body(()).unwrap().into_parts().0,
        body: Bytes::from_static(body),
        peer: "203.0.113.7:40000".parse().unwrap(),
        port: 8080,
        id: "the-id".into(),
        trace: "Root=1".into(),
    }
}

fn event(service: HttpService, received: &ReceivedRequest) -> (String, Value) {
    let types = BinaryMediaTypes::default();
    let text = from_request(
        service,
        &EmulatedFunction::new(Runtime::Attached),
        &types,
        received,
    );
    let value = serde_json::from_str(&text).unwrap();
    (text, value)
}

#[test]
fn url_keeps_the_raw_path_and_http_api_decodes_it() {
    let received = received("/a%2Fb%20c/%C3%A9%3Fd", &[], b"");
    let (_, url) = event(HttpService::Url, &received);
    assert_eq!(url["rawPath"], "/a%2Fb%20c/%C3%A9%3Fd");
    assert_eq!(
        url["requestContext"]["domainName"],
        "emulated.lambda-url.us-east-1.on.aws"
    );
    let (_, http) = event(HttpService::Http, &received);
    assert_eq!(http["rawPath"], "/a/b c/é");
    assert_eq!(http["requestContext"]["http"]["path"], "/a/b c/é");
    let (_, rest) = event(HttpService::Rest, &received);
    assert_eq!(rest["path"], "/a%2Fb%20c/%C3%A9%3Fd");
    assert_eq!(rest["requestContext"]["path"], "/Prod/a%2Fb%20c/%C3%A9%3Fd");
    assert_eq!(rest["requestContext"]["stage"], "Prod");
    let (_, alb) = event(HttpService::Alb, &received);
    assert_eq!(alb["path"], "/a%2Fb%20c/%C3%A9%3Fd");
}

#[test]
fn query_is_raw_joined_or_decoded_per_front_end() {
    let received = received("/?z=1%20x&a=b+c&z=2&flag", &[], b"");
    let (text, url) = event(HttpService::Url, &received);
    assert_eq!(url["rawQueryString"], "z=1%20x&a=b+c&z=2&flag");
    assert!(
        text.contains(r#""queryStringParameters":{"z":"1 x,2","a":"b c","flag":""}"#),
        "{text}"
    );
    let (text, rest) = event(HttpService::Rest, &received);
    assert_eq!(rest["queryStringParameters"]["z"], "2");
    assert!(
        text.contains(
            r#""multiValueQueryStringParameters":{"z":["1 x","2"],"a":["b c"],"flag":[""]}"#
        ),
        "{text}"
    );
    let (_, alb) = event(HttpService::Alb, &received);
    assert_eq!(alb["queryStringParameters"]["a"], "b+c");
    assert_eq!(alb["queryStringParameters"]["z"], "2");
    let (_, alb) = event(HttpService::AlbMulti, &received);
    assert_eq!(
        alb["multiValueQueryStringParameters"]["z"],
        json!(["1%20x", "2"])
    );
    assert!(alb.get("queryStringParameters").is_none());
}

#[test]
fn headers_and_cookies_use_the_fields_of_each_front_end() {
    let sent = [
        ("cookie", "a=1; b=2"),
        ("x-twice", "one"),
        ("x-twice", "two"),
        ("x-forwarded-for", "198.51.100.1"),
        ("connection", "keep-alive"),
    ];
    let received = received("/", &sent, b"");
    let (_, url) = event(HttpService::Url, &received);
    assert_eq!(url["cookies"], json!(["a=1", "b=2"]));
    assert!(url["headers"].get("cookie").is_none());
    assert!(url["headers"].get("connection").is_none());
    assert_eq!(url["headers"]["x-twice"], "one,two");
    assert_eq!(
        url["headers"]["x-forwarded-for"],
        "198.51.100.1, 203.0.113.7"
    );
    assert_eq!(url["headers"]["x-forwarded-port"], "8080");
    assert_eq!(url["requestContext"]["http"]["sourceIp"], "203.0.113.7");
    let (_, rest) = event(HttpService::Rest, &received);
    assert_eq!(rest["headers"]["X-Twice"], "two");
    assert_eq!(rest["multiValueHeaders"]["X-Twice"], json!(["one", "two"]));
    assert_eq!(rest["headers"]["Cookie"], "a=1; b=2");
    let (_, alb) = event(HttpService::Alb, &received);
    assert_eq!(alb["headers"]["x-twice"], "two");
    assert!(alb.get("multiValueHeaders").is_none());
    let (_, alb) = event(HttpService::AlbMulti, &received);
    assert_eq!(alb["multiValueHeaders"]["x-twice"], json!(["one", "two"]));
    assert!(alb.get("headers").is_none());
}

#[test]
fn binary_body_is_base64() {
    let json_body = received("/", &[("content-type", "application/json")], b"{}");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let form = received("/", &form, b"a=b");
    let invalid = received("/", &[("content-type", "text/plain")], b"\xff");
    let empty = received("/", &[], b"");
    for service in [HttpService::Url, HttpService::Http, HttpService::Alb] {
        let (_, event_of) = event(service, &json_body);
        assert_eq!(
            (&event_of["body"], &event_of["isBase64Encoded"]),
            (&json!("{}"), &json!(false))
        );
        let (_, event_of) = event(service, &form);
        assert_eq!(
            (&event_of["body"], &event_of["isBase64Encoded"]),
            (&json!("YT1i"), &json!(true))
        );
        let (_, event_of) = event(service, &invalid);
        assert_eq!(
            (&event_of["body"], &event_of["isBase64Encoded"]),
            (&json!("/w=="), &json!(true))
        );
    }
    assert!(event(HttpService::Url, &empty).1.get("body").is_none());
    assert_eq!(event(HttpService::Rest, &empty).1["body"], Value::Null);
    assert_eq!(event(HttpService::Alb, &empty).1["body"], "");
}
