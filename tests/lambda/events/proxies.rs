//! Tests of the client's address if a proxy stands in front of the service.

use std::collections::BTreeMap;

use serde_json::json;

use super::subject::{read_with, server, settings};

/// What PHP sees of a request to the function's URL from this address.
fn seen(
    trusted: &str,
    from: &str,
    forwarded_for: &str,
    host: Option<&str>,
) -> BTreeMap<String, String> {
    let mut event = json!({
        "version": "2.0",
        "rawPath": "/",
        "rawQueryString": "",
        "headers": {
            "host": "abc.lambda-url.eu-west-1.on.aws",
            "x-forwarded-for": forwarded_for,
            "x-forwarded-proto": "https",
        },
        "requestContext": {
            "domainName": "abc.lambda-url.eu-west-1.on.aws",
            "http": {"method": "GET", "path": "/", "protocol": "HTTP/1.1", "sourceIp": from},
            "stage": "$default",
        },
        "isBase64Encoded": false,
    });
    if let Some(host) = host {
        event["headers"]["x-forwarded-host"] = host.into();
    }
    let settings = settings(&format!("trusted_proxies = {trusted}"));
    server(read_with(&event.to_string(), &settings))
}

const CDN: &str = r#"["130.176.0.0/16"]"#;

#[test]
fn trusted_proxy_provides_the_client_address() {
    // Whether or not the service appends its caller's address.
    for forwarded_for in ["198.51.100.7", "198.51.100.7, 130.176.1.2"] {
        let seen = seen(CDN, "130.176.1.2", forwarded_for, Some("www.example.org"));
        assert_eq!(seen["REMOTE_ADDR"], "198.51.100.7");
        assert_eq!(seen["HTTP_HOST"], "www.example.org");
        assert_eq!(seen["SERVER_NAME"], "www.example.org");
        assert_eq!(seen["HTTPS"], "on");
    }
    // The client may have written what stands left of its address.
    let seen = seen(CDN, "130.176.1.2", "10.0.0.1, 198.51.100.7", None);
    assert_eq!(seen["REMOTE_ADDR"], "198.51.100.7");
    assert_eq!(seen["HTTP_HOST"], "abc.lambda-url.eu-west-1.on.aws");
}

#[test]
fn untrusted_proxy_does_not_provide_the_client_address() {
    for (trusted, from) in [("[]", "130.176.1.2"), (CDN, "203.0.113.9")] {
        let seen = seen(trusted, from, "198.51.100.7", Some("www.example.org"));
        assert_eq!(seen["REMOTE_ADDR"], from);
        assert_eq!(seen["HTTP_HOST"], "abc.lambda-url.eu-west-1.on.aws");
    }
    // The placeholder of API Gateway's console.
    let seen = seen(CDN, "test-invoke-source-ip", "198.51.100.7", None);
    assert_eq!(seen["REMOTE_ADDR"], "");
}

#[test]
fn load_balancer_behind_a_proxy_keeps_the_client_address() {
    let target_group = "arn:aws:elasticloadbalancing:eu-west-1:1:targetgroup/a/b";
    let event = json!({
        "requestContext": {"elb": {"targetGroupArn": target_group}},
        "httpMethod": "GET",
        "path": "/",
        "queryStringParameters": {},
        "headers": {
            "host": "example.org",
            "x-forwarded-for": "198.51.100.7, 130.176.1.2",
            "x-forwarded-proto": "http",
        },
        "body": "",
        "isBase64Encoded": false,
    })
    .to_string();
    let client = |trusted: &str| {
        let settings = settings(&format!("trusted_proxies = {trusted}"));
        server(read_with(&event, &settings))["REMOTE_ADDR"].clone()
    };
    assert_eq!(client(CDN), "198.51.100.7");
    assert_eq!(client("[]"), "130.176.1.2");
}
