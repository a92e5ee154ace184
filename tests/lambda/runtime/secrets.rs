//! Tests of secrets from Parameter Store and Secrets Manager, with a stand-in for AWS.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::api::Api;
use super::function::{Dir, Function};

/// Recorded requests: header lines in lower case, and the body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// Provides the parameters `/shop/key` and `/busy` and the secrets `db`, `flaky` and `cut`. The
/// last two fail once, `/busy` twice and `/throttled` always. `/credentials` has a container's.
fn stand_in() -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = Asked::default();
    let seen = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if line.trim().is_empty() {
                    break;
                }
                if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = text.trim().parse().unwrap();
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            // A request for credentials has none.
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let tries = {
                let seen = seen.lock().unwrap();
                seen.iter().filter(|(_, earlier)| *earlier == body).count()
            };
            let refusal = |kind: &str| (400, json!({"__type": kind, "message": "slow down"}));
            if body["SecretId"] == "cut" && tries == 0 {
                // Ends the connection without a response.
                seen.lock().unwrap().push((head, body));
                continue;
            }
            let (status, answer) = match (body["Name"].as_str(), body["SecretId"].as_str()) {
                _ if head.starts_with("GET /credentials ") => (
                    200,
                    json!({
                        "AccessKeyId": "ASIACONTAINER",
                        "SecretAccessKey": "wJalrXUtnFEMI",
                        "Token": "container-token",
                    }),
                ),
                (Some("/shop/key"), _) => (200, json!({"Parameter": {"Value": "the key"}})),
                (Some("/busy"), _) if tries < 2 => refusal("ThrottlingException"),
                (Some("/busy"), _) => (200, json!({"Parameter": {"Value": "late"}})),
                (Some("/throttled"), _) => refusal("a#TooManyRequestsException"),
                (_, Some("flaky")) if tries == 0 => (503, json!({})),
                (_, Some("flaky" | "cut")) => (200, json!({"SecretString": "whole"})),
                (_, Some("db")) => (
                    200,
                    json!({"SecretString": r#"{"user":"u","password":"p w"}"#}),
                ),
                _ => (
                    400,
                    json!({
                        "__type": "com.amazonaws.ssm#AccessDeniedException",
                        "Message": "not authorized",
                    }),
                ),
            };
            seen.lock().unwrap().push((head, body));
            let answer = answer.to_string();
            let length = answer.len();
            let text = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{answer}");
            stream.get_mut().write_all(text.as_bytes()).unwrap();
        }
    });
    (address, asked)
}

const CODE: &str = "<?php
    echo json_encode([
        getenv('KEY'),
        $_SERVER['PASSWORD'],
        getenv('ALL'),
        getenv('OWN'),
        getenv('PLAIN'),
    ]);";

const CREDENTIALS: [(&str, &str); 4] = [
    ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
    ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI"),
    ("AWS_SESSION_TOKEN", "the-token"),
    ("AWS_REGION", "eu-central-1"),
];

#[test]
fn secret_reference_is_replaced_by_its_value() {
    let (address, asked) = stand_in();
    let files = [
        ("index.php", CODE),
        (
            "surus.toml",
            "[env]\nOWN = 'ssm:/shop/key'\nPLAIN = 'ssm is no prefix'\n",
        ),
    ];
    for endpoint in [
        &[("AWS_ENDPOINT_URL", address.as_str())][..],
        &[
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
            ("AWS_ENDPOINT_URL_SSM", &address),
            ("AWS_ENDPOINT_URL_SECRETS_MANAGER", &address),
        ],
    ] {
        let env = [
            &CREDENTIALS[..],
            endpoint,
            &[
                ("KEY", "ssm:/shop/key"),
                ("PASSWORD", "secretsmanager:db#password"),
                ("ALL", "secretsmanager:db"),
                // `[env]` wins, so this one is not requested.
                ("PLAIN", "ssm:/gone"),
            ],
        ]
        .concat();
        let function = Function::start(&files, &env);
        let all = r#"{"user":"u","password":"p w"}"#;
        let expected = json!(["the key", "p w", all, "the key", "ssm is no prefix"]);
        assert_eq!(function.get("s", "/").text(), expected.to_string());
        // The log contains none of them.
        assert!(!function.log().contains("the key") && !function.log().contains("p w"));
    }
    let asked = asked.lock().unwrap();
    assert_eq!(
        asked.len(),
        4,
        "each source is read once, for all of its variables"
    );
    for (head, body) in asked.iter() {
        let (service, target) = match body.get("Name") {
            Some(_) => ("ssm", "AmazonSSM.GetParameter"),
            None => ("secretsmanager", "secretsmanager.GetSecretValue"),
        };
        let lower = head.to_ascii_lowercase();
        assert!(head.starts_with("POST / HTTP/1.1"), "{head}");
        assert!(head.contains(target), "{head}");
        assert!(lower.contains("x-amz-security-token: the-token"), "{head}");
        let scope = format!("/eu-central-1/{service}/aws4_request");
        assert!(
            head.contains("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"),
            "{head}"
        );
        assert!(
            head.contains(&scope) && head.contains("Signature="),
            "{head}"
        );
        assert!(
            lower.contains("host;x-amz-date;x-amz-security-token;x-amz-target"),
            "{head}"
        );
        assert!(body.get("Name").is_none() || body["WithDecryption"] == true);
    }
}

/// Under SnapStart, Lambda sets no keys, but names the place that has them.
#[test]
fn secret_before_a_snapshot_is_read_with_the_credentials_of_a_container() {
    let (address, asked) = stand_in();
    let uri = format!("{address}/credentials");
    let env = [
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start"),
        ("AWS_ACCESS_KEY_ID", ""),
        ("HOME", ""),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "the-authorization"),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ENDPOINT_URL", address.as_str()),
        ("KEY", "ssm:/shop/key"),
        ("PASSWORD", "secretsmanager:db#password"),
    ];
    let function = Function::begin(Api::start(), Dir::new(&[("index.php", CODE)]), &env);
    function.api.take("/runtime/restore/next");
    function.api.restore();
    let expected = json!(["the key", "p w", false, false, false]);
    assert_eq!(function.get("s", "/").text(), expected.to_string());
    let asked = asked.lock().unwrap();
    let (found, signed): (Vec<_>, Vec<_>) =
        asked.iter().partition(|(head, _)| head.starts_with("GET "));
    assert_eq!((found.len(), signed.len()), (1, 2), "{asked:?}");
    assert!(found[0].0.contains("the-authorization"), "{asked:?}");
    for (head, _) in signed {
        assert!(head.contains("Credential=ASIACONTAINER/"), "{head}");
        assert!(head.contains("container-token"), "{head}");
    }
}

#[test]
fn temporary_failure_of_aws_is_tried_again() {
    let (address, asked) = stand_in();
    let env = [
        &CREDENTIALS[..],
        &[
            ("AWS_ENDPOINT_URL", address.as_str()),
            ("KEY", "ssm:/busy"),
            ("PASSWORD", "secretsmanager:flaky"),
            ("ALL", "secretsmanager:cut"),
        ],
    ]
    .concat();
    let function = Function::start(&[("index.php", CODE)], &env);
    let expected = json!(["late", "whole", "whole", false, false]);
    assert_eq!(function.get("s", "/").text(), expected.to_string());
    assert_eq!(asked.lock().unwrap().len(), 3 + 2 + 2);
}

#[test]
fn secret_that_aws_throttles_is_asked_for_at_most_three_times() {
    let (address, asked) = stand_in();
    let env = [
        &CREDENTIALS[..],
        &[
            ("AWS_ENDPOINT_URL", address.as_str()),
            ("ALL", "ssm:/throttled"),
            ("KEY", "ssm:/throttled"),
        ],
    ]
    .concat();
    let dir = Dir::new(&[("index.php", CODE)]);
    let mut function = Function::begin(Api::start(), dir, &env);
    assert!(!function.end().success());
    let said = function.api.calls();
    let said = said.iter().find(|call| call.path.ends_with("/init/error"));
    let message = said.unwrap().json()["errorMessage"].to_string();
    for part in ["environment variable ALL, KEY", "TooManyRequestsException"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    // A slow machine leaves no time for the third.
    let asked = asked.lock().unwrap().len();
    assert!((2..=3).contains(&asked), "{asked}");
}

#[test]
fn unreadable_secret_stops_the_start_and_names_variable_and_remedy() {
    let (address, _) = stand_in();
    let endpoint = [("AWS_ENDPOINT_URL", address.as_str())];
    let gone = [("AWS_ENDPOINT_URL", "http://127.0.0.1:1")];
    let (parameter, secret) = ("ssm:GetParameter", "secretsmanager:GetSecretValue");
    for (env, expected) in [
        (
            [&CREDENTIALS[..], &endpoint, &[("KEY", "ssm:/gone")]].concat(),
            [
                "environment variable KEY",
                parameter,
                "AccessDeniedException not authorized",
            ],
        ),
        (
            [
                &CREDENTIALS[..],
                &endpoint,
                &[("DB", "secretsmanager:db#gone")],
            ]
            .concat(),
            [
                "environment variable DB",
                secret,
                "the secret has no key gone",
            ],
        ),
        (
            [&CREDENTIALS[..], &gone, &[("KEY", "ssm:/shop/key")]].concat(),
            [
                "environment variable KEY",
                "cannot reach http://127.0.0.1:1",
                "refused",
            ],
        ),
        (
            [
                &endpoint[..],
                &[
                    ("KEY", "ssm:/shop/key"),
                    ("AWS_REGION", ""),
                    ("AWS_DEFAULT_REGION", ""),
                    ("HOME", ""),
                ],
            ]
            .concat(),
            ["AWS_REGION", "is not set", "secrets"],
        ),
        (
            [
                &endpoint[..],
                &[
                    ("KEY", "ssm:/shop/key"),
                    ("AWS_REGION", "eu-central-1"),
                    ("AWS_ACCESS_KEY_ID", ""),
                    ("AWS_EC2_METADATA_DISABLED", "true"),
                    ("HOME", ""),
                ],
            ]
            .concat(),
            [
                "environment variable KEY",
                "no AWS credentials",
                "AWS_ACCESS_KEY_ID",
            ],
        ),
    ] {
        let dir = Dir::new(&[("index.php", CODE)]);
        let mut function = Function::begin(Api::start(), dir, &env);
        let status = function.end();
        assert!(!status.success());
        let said = function.api.calls();
        let said = said.iter().find(|call| call.path.ends_with("/init/error"));
        let message = said.unwrap().json()["errorMessage"].to_string();
        for part in expected {
            assert!(message.contains(part), "{part} is not in {message}");
        }
        assert!(!message.contains("p w"), "{message}");
    }
}
