//! Tests that responses match each service's documentation.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use surus::fronts::lambda::http_event::{EventFormat, prelude, write};

use super::aws;
use super::subject::{FORMATS, head};

const ALB: EventFormat = EventFormat::Alb { multi_value: false };

fn answer(format: EventFormat, headers: &[(&str, &[u8])], body: &[u8]) -> Value {
    serde_json::from_slice(&write(&format, &head(200, headers), body).json).unwrap()
}

#[test]
fn utf8_body_is_sent_as_text() {
    let octets: &[(&str, &[u8])] = &[("content-type", b"application/octet-stream")];
    let text = "Gr\u{fc}\u{df}e \"\\/\u{1f418}\n\r\t\u{1}\u{1f}\u{7f}\u{2028}";
    for format in FORMATS {
        let answer = answer(format, octets, text.as_bytes());
        assert_eq!(answer["isBase64Encoded"], false);
        assert_eq!(answer["body"], text);
    }
}

#[test]
fn special_character_is_escaped_at_every_position() {
    for code in 1..0x300_u32 {
        let Some(c) = char::from_u32(code) else {
            continue;
        };
        for before in 0..9 {
            let text = format!("{}{c}{c}x", "a".repeat(before));
            let answer = answer(EventFormat::FunctionUrl, &[], text.as_bytes());
            assert_eq!(answer["body"], text);
        }
    }
}

#[test]
fn binary_body_is_sent_as_base64() {
    let plain: &[(&str, &[u8])] = &[("content-type", b"text/plain")];
    for (body, encoded) in [
        (&b"\xff"[..], "/w=="),
        (b"a\0b", "YQBi"),
        (b"\x1f\x8b\x08\0", "H4sIAA=="),
        ("gr\u{fc}n".as_bytes().split_at(3).0, "Z3LD"),
    ] {
        for format in FORMATS {
            let answer = answer(format, plain, body);
            assert_eq!(answer["isBase64Encoded"], true);
            assert_eq!(answer["body"], encoded);
        }
    }
}

#[test]
fn empty_body_is_an_empty_string() {
    for format in FORMATS {
        let answer = answer(format, &[], b"");
        assert_eq!(answer["isBase64Encoded"], false);
        assert_eq!(answer["body"], "");
    }
}

#[test]
fn load_balancer_gets_a_status_description() {
    let described = |status| {
        let json = write(&ALB, &head(status, &[]), b"").json;
        serde_json::from_slice::<Value>(&json).unwrap()["statusDescription"].clone()
    };
    assert_eq!(described(200), "200 OK");
    assert_eq!(described(404), "404 Not Found");
    assert_eq!(described(599), "599 Unknown");
}

/// AWS offers no other way. For the load balancer each spelling is a header of its own, for
/// browsers the same one.
#[test]
fn single_value_service_gets_cookies_in_different_spellings() {
    let cookies: Vec<String> = (0..600).map(|index| format!("c{index}=1")).collect();
    for format in [ALB, EventFormat::LatticeV1, EventFormat::LatticeV2] {
        let lines = |count: usize| -> Vec<(&str, &[u8])> {
            let cookies = cookies[..count].iter();
            cookies
                .map(|cookie| ("set-cookie", cookie.as_bytes()))
                .collect()
        };
        let three = answer(format, &lines(3), b"");
        let expected = json!({"set-cookie": "c0=1", "Set-cookie": "c1=1", "sEt-cookie": "c2=1"});
        assert_eq!(three["headers"], expected);

        let many = answer(format, &lines(600), b"");
        let headers = many["headers"].as_object().unwrap();
        assert_eq!(headers.len(), 512);
        assert!(
            headers
                .keys()
                .all(|name| name.eq_ignore_ascii_case("set-cookie"))
        );
        let got: BTreeSet<_> = headers
            .values()
            .map(|cookie| cookie.as_str().unwrap())
            .collect();
        let expected: BTreeSet<_> = cookies[..512].iter().map(String::as_str).collect();
        assert_eq!(got, expected);
    }
}

#[test]
fn connection_headers_are_removed() {
    let lines: &[(&str, &[u8])] = &[
        ("connection", b"close"),
        ("transfer-encoding", b"chunked"),
        ("keep-alive", b"timeout=5"),
        ("upgrade", b"h2c"),
        ("x-kept", b"1"),
    ];
    for format in FORMATS {
        let got = aws::response(&write(&format, &head(200, lines), b"").json);
        assert_eq!(got.headers, [("x-kept".to_string(), "1".to_string())]);
    }
}

#[test]
fn wrong_content_length_is_removed() {
    let length = |value: &'static [u8], body: &[u8]| {
        let answer = answer(EventFormat::FunctionUrl, &[("content-length", value)], body);
        answer["headers"]["content-length"]
            .as_str()
            .map(str::to_string)
    };
    assert_eq!(length(b"5", b"hello"), Some("5".into()));
    assert_eq!(length(b"4", b"hello"), None);
    // The response to HEAD.
    assert_eq!(length(b"5", b""), Some("5".into()));
}

#[test]
fn header_value_without_utf8_is_latin_1() {
    let lines: &[(&str, &[u8])] = &[("x-a", b"caf\xe9"), ("x-b", "caf\u{e9}".as_bytes())];
    let answer = answer(EventFormat::FunctionUrl, lines, b"");
    assert_eq!(
        answer["headers"],
        json!({"x-a": "caf\u{e9}", "x-b": "caf\u{e9}"})
    );
}

#[test]
fn prelude_ends_with_eight_nul_bytes() {
    let lines: &[(&str, &[u8])] = &[
        ("content-type", b"text/event-stream"),
        ("set-cookie", b"a=1"),
        ("set-cookie", b"b=2"),
        ("vary", b"a"),
        ("vary", b"b"),
    ];
    for format in [EventFormat::FunctionUrl, EventFormat::Rest] {
        let prelude = prelude(&format, &head(206, lines));
        let json = prelude.strip_suffix(&[0; 8]).unwrap();
        assert!(!json.contains(&0));
        assert_eq!(
            serde_json::from_slice::<Value>(json).unwrap(),
            json!({
                "statusCode": 206,
                "headers": {"content-type": "text/event-stream", "vary": "a, b"},
                "cookies": ["a=1", "b=2"],
            })
        );
    }
}

/// The examples of these services' documentation.
#[test]
fn documented_response_is_reproduced() {
    let lines: &[(&str, &[u8])] = &[
        ("content-type", b"application/json"),
        ("my-custom-header", b"Custom Value"),
        (
            "set-cookie",
            b"Cookie_1=Value1; Expires=21 Oct 2021 07:48 GMT",
        ),
        ("set-cookie", b"Cookie_2=Value2; Max-Age=78000"),
    ];
    let body = br#"{ "message": "Hello, world!" }"#;
    let url = serde_json::from_slice::<Value>(
        &write(&EventFormat::FunctionUrl, &head(201, lines), body).json,
    );
    assert_eq!(
        url.unwrap(),
        json!({
            "statusCode": 201,
            "headers": {"content-type": "application/json", "my-custom-header": "Custom Value"},
            "body": "{ \"message\": \"Hello, world!\" }",
            "cookies": [
                "Cookie_1=Value1; Expires=21 Oct 2021 07:48 GMT",
                "Cookie_2=Value2; Max-Age=78000"
            ],
            "isBase64Encoded": false,
        })
    );
}
