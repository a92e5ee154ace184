//! Tests of malformed events: each gets an error that names the place, and does no harm.

use surus::fronts::lambda::Settings;
use surus::fronts::lambda::http_event::{self, EventFormat};

use super::subject::{malformed, read, server};

#[test]
fn malformed_event_error_names_the_field() {
    let wrong = [
        (
            r#"{"path":"#,
            "the event: invalid JSON: EOF while parsing a value at line 1 column 8",
        ),
        (
            "",
            "the event: invalid JSON: EOF while parsing a value at line 1 column 0",
        ),
        (
            "[1,",
            "the event: invalid JSON: EOF while parsing a value at line 1 column 3",
        ),
        (
            "{} {}",
            "the event: invalid JSON: trailing characters at line 1 column 4",
        ),
        (
            r#"{"requestContext":{"http":{"method":5}},"rawPath":"/"}"#,
            "requestContext.http.method: invalid type: integer `5`, expected a string",
        ),
        (
            r#"{"requestContext":{"http":{}},"rawPath":"/"}"#,
            "requestContext.http.method: missing, but every request has one",
        ),
        (
            r#"{"requestContext":{"http":{"method":"G T"}},"rawPath":"/"}"#,
            r#"the event: "G T" is not a method"#,
        ),
        (
            r#"{"requestContext":{"http":{"method":"GET"}},"rawPath":["/"]}"#,
            "rawPath: invalid type: sequence, expected a string",
        ),
        (
            r#"{"requestContext":{"http":{"method":"GET"}},"rawPath":"\ud800"}"#,
            "rawPath: unexpected end of hex escape",
        ),
        (
            &rest(r#""headers":"none""#),
            r#"headers: invalid type: string "none", expected an object"#,
        ),
        (
            &rest(r#""headers":{"accept":{"a":1}}"#),
            concat!(
                r#"headers: "accept": invalid type: map, "#,
                "expected a string, a number or a list of them"
            ),
        ),
        (
            &rest(r#""headers":{"a":[["b"]]}"#),
            r#"headers: "a": invalid type: sequence, expected a string or a number"#,
        ),
        (
            &rest(r#""multiValueHeaders":{"x":["a",null]}"#),
            r#"multiValueHeaders: "x": invalid type: null, expected a string or a number"#,
        ),
        (
            &rest(r#""headers":{"a\nb":"c"}"#),
            r#"headers: "a\nb" is not a valid header name"#,
        ),
        (
            &rest(r#""headers":{"":"c"}"#),
            r#"headers: "" is not a valid header name"#,
        ),
        (
            &rest(r#""headers":{"x":"a\r\nset-cookie: b"}"#),
            r#"headers: "a\r\nset-cookie: b" is not a valid value of `x`"#,
        ),
        (
            &rest(r#""headers":{"x":"a\u0000"}"#),
            r#"headers: "a\0" is not a valid value of `x`"#,
        ),
        (
            &rest(r#""queryStringParameters":{"a":1e999}"#),
            r#"queryStringParameters: "a": number out of range"#,
        ),
        (
            &rest(r#""queryStringParameters":[]"#),
            "queryStringParameters: invalid type: sequence, expected an object",
        ),
        (
            &rest(r#""isBase64Encoded":"true""#),
            "isBase64Encoded: not a boolean",
        ),
        (
            &rest(r#""isBase64Encoded":true,"body":"a$b=""#),
            "body: not base64: Invalid symbol 36, offset 1.",
        ),
        (
            &rest(r#""body":{}"#),
            "body: invalid type: map, expected a string",
        ),
        (
            &rest(r#""body":"\udead""#),
            "body: lone leading surrogate in hex escape",
        ),
    ];
    for (event, expected) in wrong {
        let said = malformed(event);
        assert!(said.starts_with(expected), "{event}\n{said}\n{expected}");
    }
    let not_text = http_event::read(b"{\"path\":\"\xff\"}", &Settings::default()).unwrap_err();
    assert_eq!(not_text.to_string(), "the event: not UTF-8 after 9 bytes");
}

#[test]
fn malformed_unused_field_is_ignored() {
    let event = rest(
        r#""stageVariables": [1e999, "\ud800", {"a": {}}],
        "headers": null,
        "multiValueHeaders": {"a": [], "b": null, "c": ["d"]},
        "resource": 7"#,
    );
    let server = server(read(&event));
    assert_eq!(server["HTTP_C"], "d");
    assert!(!server.contains_key("HTTP_A") && !server.contains_key("HTTP_B"));
}

#[test]
fn json_of_other_events_is_not_http() {
    for json in [
        "null",
        " 7 ",
        "1e999",
        "\"text\"",
        "[{\"httpMethod\":\"GET\"}]",
        "{}",
        r#"{"path":7,"headers":"x","body":{}}"#,
        r#"{"path":1e999}"#,
        r#"{"httpMethod":"GET","path":"/","apiPath":"/"}"#,
        r#"{"requestContext":null,"httpMethod":"GET","path":"/"}"#,
        r#"{"requestContext":[],"httpMethod":"GET","path":"/"}"#,
        r#"{"requestContext":"x","rawPath":"/"}"#,
        r#"{"requestContext":{"http":"x"},"rawPath":"/"}"#,
        // Lambda's message to the destination of an asynchronous event.
        r#"{
            "version": "1.0",
            "requestContext": {"condition": "Success"},
            "requestPayload": {"httpMethod": "GET", "path": "/"}
        }"#,
    ] {
        let read = http_event::read(json.as_bytes(), &Settings::default());
        assert!(matches!(read, Ok(None)), "{json}: {read:?}");
    }
}

#[test]
fn deep_nesting_is_harmless() {
    let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    for event in [
        deep.clone(),
        format!(r#"{{"a":{deep}}}"#),
        format!(r#"{{"requestContext":{deep},"path":{deep}}}"#),
    ] {
        let read = http_event::read(event.as_bytes(), &Settings::default());
        assert!(matches!(read, Ok(None)));
    }
    let said = malformed(&rest(&format!(r#""headers":{{"x":{deep}}}"#)));
    assert_eq!(
        said,
        r#"headers: "x": invalid type: sequence, expected a string or a number"#
    );
    malformed(&rest(&format!(r#""body":{deep}"#)));
}

#[test]
fn too_many_headers_are_an_error() {
    let headers: Vec<_> = (0..40_000)
        .map(|index| format!(r#""x{index}":"""#))
        .collect();
    let said = malformed(&rest(&format!(r#""headers":{{{}}}"#, headers.join(","))));
    assert_eq!(said, "headers: 40000 headers exceed what PHP accepts");
}

/// Each value repeats its name in the query, which could multiply the memory.
#[test]
fn long_name_with_many_values_does_not_multiply_memory() {
    let name = format!("\\u0022{}", "n".repeat(1 << 20));
    let values = vec!["\"\""; 1 << 20].join(",");
    for fields in [
        format!(r#""multiValueQueryStringParameters":{{"{name}":[{values}]}}"#),
        format!(r#""multiValueHeaders":{{"{}":[{values}]}}"#, &name[6..]),
    ] {
        malformed(&rest(&fields));
    }
    let name = "n".repeat(60_000);
    let event = rest(&format!(r#""multiValueHeaders":{{"{name}":[{values}]}}"#));
    let event = read(&event);
    assert_eq!(
        event.request.headers().get_all(&name).iter().count(),
        1 << 20
    );
}

#[test]
fn malformed_event_message_is_short() {
    let long = "\u{e9}".repeat(100_000);
    for fields in [
        format!(r#""headers":{{"{long}":""}}"#),
        format!(r#""headers":{{"x":"\n{long}"}}"#),
        format!(r#""headers":"{long}""#),
        format!(r#""headers":{{"{long}":7}}"#),
    ] {
        let said = malformed(&rest(&fields));
        assert!(said.len() < 400 && said.ends_with('\u{2026}'), "{said}");
    }
}

#[test]
fn last_of_two_fields_counts() {
    let event =
        r#"{"requestContext":{},"httpMethod":"GET","path":"/a","path":"/b","p\u0061th":"/c"}"#;
    assert_eq!(read(event).request.uri(), "/c");
}

#[test]
fn similar_event_of_another_service_is_recognized() {
    let format = |event: &str| read(event).format;
    let alb = r#"{
        "requestContext": {"elb": {}, "stage": "x"},
        "httpMethod": "GET",
        "path": "/",
        "version": "1.0"
    }"#;
    assert_eq!(format(alb), EventFormat::Alb { multi_value: false });
    let null = r#"{"requestContext":{"elb":null},"httpMethod":"GET","path":"/"}"#;
    assert_eq!(format(null), EventFormat::Rest);
    let domain = r#"{
        "requestContext": {"domainName": "lambda-url.example", "http": {"method": "GET"}},
        "rawPath": "/"
    }"#;
    assert_eq!(format(domain), EventFormat::HttpApiV2);
}

#[test]
fn client_address_cannot_be_forged() {
    let alb = |header: &str| {
        let event = format!(
            r#"{{
                "requestContext": {{"elb": {{}}}},
                "httpMethod": "GET",
                "path": "/",
                "headers": {{{header}}}
            }}"#
        );
        server(read(&event))
    };
    let forwarded =
        |list: &str| alb(&format!(r#""x-forwarded-for":"{list}""#))["REMOTE_ADDR"].clone();
    assert_eq!(forwarded("10.0.0.1, 192.0.2.7"), "192.0.2.7");
    assert_eq!(forwarded("192.0.2.7:4711"), "192.0.2.7");
    assert_eq!(forwarded("::1,[2001:db8::7]:4711"), "2001:db8::7");
    assert_eq!(forwarded("2001:db8::7"), "2001:db8::7");
    assert_eq!(forwarded("192.0.2.7, unknown"), "");
    assert_eq!(forwarded(""), "");
    assert!(!alb(r#""x-forwarded-proto":"https, http""#).contains_key("HTTPS"));
    assert_eq!(alb(r#""x-forwarded-proto":"http, HTTPS""#)["HTTPS"], "on");

    // API Gateway sends the address apart from the client's headers.
    let rest = r#"{
        "requestContext": {"identity": {"sourceIp": "192.0.2.7"}},
        "httpMethod": "GET",
        "path": "/",
        "headers": {"X-Forwarded-For": "10.0.0.1"}
    }"#;
    assert_eq!(server(read(rest))["REMOTE_ADDR"], "192.0.2.7");
    let mapped = rest.replace("192.0.2.7", "::ffff:192.0.2.7");
    assert_eq!(server(read(&mapped))["REMOTE_ADDR"], "192.0.2.7");
}

#[test]
fn function_url_cookies_are_not_duplicated() {
    let event = r#"{
        "requestContext": {"domainName": "x.lambda-url.y", "http": {"method": "GET"}},
        "rawPath": "/",
        "headers": {"cookie": "a=1; b=2"},
        "cookies": ["a=1", "b=2"]
    }"#;
    assert_eq!(server(read(event))["HTTP_COOKIE"], "a=1; b=2");
    let event = event.replace(r#"["a=1", "b=2"]"#, "[]");
    assert_eq!(server(read(&event))["HTTP_COOKIE"], "a=1; b=2");
}

#[test]
fn protocol_version_is_the_clients() {
    for (protocol, expected) in [
        ("HTTP/1.0", "HTTP/1.0"),
        ("HTTP/1.1", "HTTP/1.1"),
        ("HTTP/2.0", "HTTP/2.0"),
        ("HTTP/3", "HTTP/3.0"),
        ("other", "HTTP/1.1"),
    ] {
        let v1 = format!(
            r#"{{"requestContext":{{"protocol":"{protocol}"}},"httpMethod":"GET","path":"/"}}"#
        );
        let v2 = format!(
            r#"{{
                "requestContext": {{"http": {{"method": "GET", "protocol": "{protocol}"}}}},
                "rawPath": "/"
            }}"#
        );
        assert_eq!(server(read(&v1))["SERVER_PROTOCOL"], expected);
        assert_eq!(server(read(&v2))["SERVER_PROTOCOL"], expected);
    }
}

fn rest(fields: &str) -> String {
    format!(r#"{{"requestContext":{{}},"httpMethod":"POST","path":"/",{fields}}}"#)
}

/// Handwritten events contain numbers, and so do those of some tools.
#[test]
fn number_as_header_or_query_value_is_its_text() {
    let event = rest(
        r#""headers":{"x-number":7,"x-fraction":-1.5,"x-large":18446744073709551615,"x-flag":true},
        "queryStringParameters":{"page":2,"all":false}"#,
    );
    let read = read(&event);
    assert_eq!(super::subject::target(&read), "/?page=2&all=false");
    let headers = read.request.headers();
    assert_eq!(headers["x-number"], "7");
    assert_eq!(headers["x-fraction"], "-1.5");
    assert_eq!(headers["x-large"], "18446744073709551615");
    assert_eq!(headers["x-flag"], "true");
    let lists = super::subject::read(&rest(
        r#""multiValueHeaders":{"x":[1,"b",true]},"multiValueQueryStringParameters":{"a":[1,2]}"#,
    ));
    let values: Vec<_> = lists.request.headers().get_all("x").iter().collect();
    assert_eq!(values, ["1", "b", "true"]);
    assert_eq!(super::subject::target(&lists), "/?a=1&a=2");
}
