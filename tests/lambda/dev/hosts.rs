//! Tests that an invalid `Host` does not reach PHP behind any service.

use surus::emulator::http::HttpService;

use super::behind::Behind;
use crate::common::Surus;
use crate::common::engines::TestDir;
use crate::oracle::http::ask;

const SERVICES: [HttpService; 5] = [
    HttpService::Url,
    HttpService::Http,
    HttpService::Rest,
    HttpService::Alb,
    HttpService::AlbMulti,
];

fn home() -> TestDir {
    let home = TestDir::empty();
    let script = "<?php echo 'PHP for ', $_SERVER['HTTP_HOST'] ?? 'nobody';";
    std::fs::write(home.root.join("index.php"), script).unwrap();
    home
}

#[test]
fn invalid_host_does_not_reach_php() {
    let home = home();
    let serve = Surus::serve(&home.root, &[]);
    let function = Behind::start(&home.root, &[]);
    let answer = |address: &str, host: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = ask(address, request.as_bytes(), "GET", None).unwrap();
        (answer.status, String::from_utf8(answer.body).unwrap())
    };
    let hosts = [
        ("a b", 400),
        ("user@a", 400),
        ("a/b", 400),
        ("a:99999", 400),
        ("a<script>", 400),
        ("a.test:8443", 200),
        ("[::1]", 200),
    ];
    let services = SERVICES.map(|service| (service, function.service(service)));
    for (host, status) in hosts {
        let expected = answer(&serve.address, host);
        assert_eq!(expected.0, status, "{host}");
        for (service, address) in &services {
            assert_eq!(answer(address, host), expected, "{service:?}: {host}");
        }
    }
}

#[test]
fn duplicate_host_does_not_reach_php() {
    let home = home();
    let function = Behind::start(&home.root, &[]);
    let event = r#"{
        "requestContext": {"elb": {"targetGroupArn": "arn:x"}},
        "httpMethod": "GET",
        "path": "/",
        "multiValueHeaders": {"host": ["a.test", "b.test"]},
        "body": "",
        "isBase64Encoded": false
    }"#;
    assert_eq!(function.invoke(event)["statusCode"], 400);
    let event = event.replace(", \"b.test\"", "");
    let answer = function.invoke(&event);
    assert_eq!(
        (&answer["statusCode"], &answer["body"]),
        (&200.into(), &"PHP for a.test".into())
    );
}

#[test]
fn health_check_without_host_reaches_php() {
    let home = home();
    let function = Behind::start(&home.root, &[]);
    let event = include_str!("../events/samples/alb_health_check.json");
    let answer = function.invoke(event);
    assert_eq!(
        (&answer["statusCode"], &answer["body"]),
        (&200.into(), &"PHP for nobody".into())
    );
}
