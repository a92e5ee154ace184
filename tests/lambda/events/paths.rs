//! Tests of the path that the application sees, behind stages, mappings and services that decode.

use surus::fronts::lambda::Settings;

use super::subject::{malformed, read, read_with, server, settings, target};

#[test]
fn http_api_stage_is_removed_from_the_path() {
    let stripped = [
        ("/prod/users", "prod", "/users"),
        ("/prod", "prod", "/"),
        ("/prod/", "prod", "/"),
        ("/prod//users", "prod", "//users"),
        ("/production", "prod", "/production"),
        ("/users/prod", "prod", "/users/prod"),
        ("/$default/users", "$default", "/$default/users"),
        ("/users", "prod", "/users"),
    ];
    for (path, stage, expected) in stripped {
        let v1 = api_v1(r#""version":"1.0","#, path, stage, path);
        for event in [v2(path, stage), v1] {
            assert_eq!(target(&read(&event)), expected, "{path} of {stage}");
        }
    }
}

#[test]
fn rest_api_path_has_no_stage() {
    // Here the application's own route has the stage's name.
    let event = api_v1("", "/prod/users", "prod", "/prod/prod/users");
    assert_eq!(target(&read(&event)), "/prod/users");
    let always = settings("strip_stage = 'always'");
    assert_eq!(target(&read_with(&event, &always)), "/users");
}

#[test]
fn path_with_stage_is_kept_if_configured() {
    let never = settings("strip_stage = 'never'");
    let rest = api_v1("", "/users", "prod", "/prod/users");
    assert_eq!(target(&read_with(&rest, &never)), "/prod/users");
    // Behind a custom domain, the path has no stage.
    let mapped = api_v1("", "/v1/users", "prod", "/v1/users");
    assert_eq!(target(&read_with(&mapped, &never)), "/v1/users");
    assert_eq!(
        target(&read_with(&v2("/prod/users", "prod"), &never)),
        "/prod/users"
    );
}

#[test]
fn base_path_is_removed_after_the_stage() {
    let api = settings("base_path = '/api'");
    let removed = [
        ("/api/users", "/users"),
        ("/api", "/"),
        ("/api/", "/"),
        ("/apiary", "/apiary"),
        ("/prod/api/users", "/users"),
        ("/users/api", "/users/api"),
    ];
    for (path, expected) in removed {
        assert_eq!(
            target(&read_with(&v2(path, "prod"), &api)),
            expected,
            "{path}"
        );
    }
    let alb = r#"{"requestContext":{"elb":{}},"httpMethod":"GET","path":"/api/users"}"#;
    assert_eq!(target(&read_with(alb, &api)), "/users");
}

#[test]
fn invalid_path_setting_is_an_error() {
    for wrong in ["api", "/api/", "/", "", "/a?b", "/a#b"] {
        let error = toml::from_str::<Settings>(&format!("base_path = '{wrong}'")).unwrap_err();
        let message = error.message();
        assert!(message.contains("such as `/api`"), "{message}");
    }
    assert!(toml::from_str::<Settings>("strip_stage = 'yes'").is_err());
}

#[test]
fn http_api_path_is_encoded_again() {
    let encoded = [
        ("/a b", "/a%20b"),
        ("/gr\u{fc}n", "/gr%C3%BCn"),
        ("/100%", "/100%25"),
        ("/50%off", "/50%25off"),
        ("/what?", "/what%3F"),
        ("/c#", "/c%23"),
        ("/<\\\"`>", "/%3C%22%60%3E"),
        ("/tab\\there\\u0000", "/tab%09here%00"),
        // Either an encoded path that the service has not changed, or the client's `%252F`. The
        // first is assumed.
        ("/a%2Fb", "/a%2Fb"),
        ("/a|b^c{d}[e]~", "/a|b^c{d}[e]~"),
    ];
    for (path, expected) in encoded {
        assert_eq!(target(&read(&v2(path, "$default"))), expected);
    }
}

#[test]
fn raw_query_is_unchanged() {
    for query in [
        "a.b=1&a.b=2",
        "a&b",
        "=",
        "&&",
        "x=%zz&y=100%",
        "q=a+b%20c",
        "f[]=1&f[]=2",
        "a=b=c?d",
    ] {
        let event = url(&format!(r#""rawPath":"/","rawQueryString":"{query}""#));
        let server = server(read(&event));
        assert_eq!(server["QUERY_STRING"], query);
        assert_eq!(server["REQUEST_URI"], format!("/?{query}"));
    }
    let event = url(r#""rawPath":"/","rawQueryString":"a b#c\"<\u00e9>""#);
    assert_eq!(target(&read(&event)), "/?a%20b%23c%22%3C%C3%A9%3E");
    let event = url(r#""rawPath":"/","rawQueryString":"""#);
    assert_eq!(target(&read(&event)), "/");
}

#[test]
fn every_byte_in_a_path_gives_a_valid_target() {
    for code in 0..0x250_u32 {
        let Some(c) = char::from_u32(code) else {
            continue;
        };
        let path = serde_json::to_string(&format!("/{c}")).unwrap();
        let query = serde_json::to_string(&format!("x={c}")).unwrap();
        let event = read(&url(&format!(
            r#""rawPath":{path},"rawQueryString":{query}"#
        )));
        let decode = |text| {
            percent_encoding::percent_decode_str(text)
                .decode_utf8()
                .unwrap()
        };
        let uri = event.request.uri();
        assert_eq!(decode(uri.path()), format!("/{c}"));
        assert_eq!(decode(uri.query().unwrap()), format!("x={c}"));
    }
}

#[test]
fn decoded_query_keeps_order_and_repetitions() {
    let event = r#"{
        "requestContext": {},
        "httpMethod": "GET",
        "path": "/",
        "queryStringParameters": {"z": "2", "a[]": "x y", "b.c": "1&2"},
        "multiValueQueryStringParameters": {
            "z": ["1", "2"],
            "a[]": ["x y"],
            "b.c": ["1&2"],
            "+": ["+=%é"]
        }
    }"#;
    let expected = "/?z=1&z=2&a%5B%5D=x%20y&b.c=1%262&%2B=%2B=%25%C3%A9";
    assert_eq!(target(&read(event)), expected);
}

#[test]
fn load_balancer_query_is_unchanged() {
    let event = r#"{"requestContext":{"elb":{}},"httpMethod":"GET","path":"/a%2Fb",
        "queryStringParameters":{"z":"%26+%C3%A9","a%5B%5D":"x y","":"\"%"}}"#;
    assert_eq!(
        target(&read(event)),
        "/a%2Fb?z=%26+%C3%A9&a%5B%5D=x%20y&=%22%"
    );
}

#[test]
fn lattice_path_with_a_query_is_split() {
    let event = r#"{"method":"GET","raw_path":"/a?b=1&b=2","query_string_parameters":{"b":"2"}}"#;
    assert_eq!(target(&read(event)), "/a?b=1&b=2");
    let v2 = r#"{
        "version": "2.0",
        "method": "GET",
        "path": "/a?b=1&b=2",
        "requestContext": {"serviceArn": "x"}
    }"#;
    assert_eq!(target(&read(v2)), "/a?b=1&b=2");
    let event = r#"{"method":"GET","raw_path":"/a","query_string_parameters":{"b":"2"}}"#;
    assert_eq!(target(&read(event)), "/a?b=2");
}

#[test]
fn event_without_a_raw_query_is_accepted() {
    let event = url(r#""rawPath":"/","queryStringParameters":{"a b":"1&2"}"#);
    assert_eq!(target(&read(&event)), "/?a%20b=1%262");
}

#[test]
fn websocket_route_has_a_path() {
    for (route, expected) in [
        ("$connect", "/websocket/$connect"),
        ("$default", "/websocket/$default"),
        ("send message", "/websocket/send%20message"),
        ("a/b%2F", "/websocket/a%2Fb%252F"),
    ] {
        let event = format!(
            r#"{{
                "requestContext": {{
                    "routeKey": "{route}",
                    "eventType": "MESSAGE",
                    "connectionId": "x",
                    "stage": "websocket"
                }},
                "body": "hi"
            }}"#
        );
        let always = settings("strip_stage = 'always'");
        let event = read_with(&event, &always);
        assert_eq!(target(&event), expected);
        assert_eq!(event.request.method(), "POST");
    }
}

#[test]
fn path_without_a_slash_is_an_error() {
    assert_eq!(target(&read(&v2("", "$default"))), "/");
    let why = malformed(&v2("users", "$default"));
    assert_eq!(why, r#"rawPath: "users" does not start with a slash"#);
    let why = malformed(&v2(&format!("/{}", "a".repeat(70_000)), "$default"));
    assert!(
        why.starts_with("rawPath: not a valid request target: "),
        "{why}"
    );
}

fn v2(path: &str, stage: &str) -> String {
    format!(
        r#"{{
            "version": "2.0",
            "rawPath": "{path}",
            "rawQueryString": "",
            "requestContext": {{
                "stage": "{stage}",
                "http": {{"method": "GET", "path": "{path}"}}
            }}
        }}"#
    )
}

fn url(fields: &str) -> String {
    format!(
        r#"{{
            {fields},
            "requestContext": {{"domainName": "x.lambda-url.y", "http": {{"method": "GET"}}}}
        }}"#
    )
}

fn api_v1(version: &str, path: &str, stage: &str, asked: &str) -> String {
    format!(
        r#"{{
            {version}
            "path": "{path}",
            "httpMethod": "GET",
            "requestContext": {{"stage": "{stage}", "path": "{asked}"}}
        }}"#
    )
}
