//! Tests that requests and responses pass through each service as far as its events carry them.

use std::collections::BTreeMap;
use std::path::Path;

use percent_encoding::percent_decode_str;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use surus::emulator::http::HttpService;

use super::behind::Behind;
use crate::common::Surus;
use crate::common::engines::TestDir;
use crate::oracle::answer::Answer;
use crate::oracle::http;
use crate::oracle::request::Request;

/// Notes the request in a file that it names, and responds as it says.
const SCRIPT: &str = r#"<?php
$read = static fn ($name) => json_decode(base64_decode($_SERVER[$name]), true);
$coded = static function ($value) use (&$coded) {
    if (!is_array($value)) {
        return base64_encode((string) $value);
    }
    $pairs = [];
    foreach ($value as $key => $one) {
        $pairs[] = [base64_encode((string) $key), $coded($one)];
    }
    return $pairs;
};
$files = array_map(static fn ($file) => [
    'name' => $file['name'],
    'type' => $file['type'],
    'error' => $file['error'],
    'content' => (string) file_get_contents($file['tmp_name']),
    'uploaded' => is_uploaded_file($file['tmp_name']),
], $_FILES);
$answer = $read('HTTP_X_ANSWER');
file_put_contents($answer['notes'], json_encode([
    'server' => array_map('base64_encode', array_map('strval', $_SERVER)),
    'get' => $coded($_GET),
    'post' => $coded($_POST),
    'cookie' => $coded($_COOKIE),
    'files' => $coded($files),
    'input' => base64_encode(file_get_contents('php://input')),
]));
http_response_code($answer['status']);
header('Content-Type: application/x-answer');
foreach ($answer['headers'] as [$name, $value]) {
    header("$name: $value", false);
}
echo base64_decode($answer['body']);
"#;

#[derive(Debug, Clone)]
struct Asked {
    method: String,
    path: String,
    /// As the client sends it.
    query: Vec<(String, String)>,
    cookies: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: Sent,
}

#[derive(Debug, Clone)]
enum Sent {
    Nothing,
    Bytes(String, Vec<u8>),
    Form(Vec<(String, String)>),
    /// Fields and files: name, file name and content.
    Parts(Vec<(String, String)>, Vec<(String, String, Vec<u8>)>),
}

#[derive(Debug, Clone)]
struct Answered {
    status: u16,
    headers: Vec<(String, String)>,
    cookies: Vec<String>,
    body: Vec<u8>,
}

/// Every byte that a path may have, plain or encoded, except those by which file systems and
/// scripts are found.
const PATH: &str = "(/([a-zA-Z0-9_~!$&'()*+,;=:@-]|%[2-9A-F][0-9A-F]|%C3%A9){1,8}){0,3}";
const QUERY: &str = r"([a-zA-Z0-9._~!$'()*,;:@/?-]|\+|%[2-7][0-9A-F]|%C3%A9){0,8}";
const VALUE: &str = "[!-+./-~]([ -+./-~]{0,12}[!-+./-~])?";

fn asked() -> impl Strategy<Value = Asked> {
    let pairs = || vec((r"[a-c](\[[a-z]?\])?", "[ -~é]{0,8}"), 0..4);
    let body = prop_oneof![
        Just(Sent::Nothing),
        (
            prop::sample::select(std::vec!["text/plain", "application/json", "image/png"]),
            vec(any::<u8>(), 0..300),
        )
            .prop_map(|(kind, bytes)| Sent::Bytes(kind.into(), bytes)),
        pairs().prop_map(Sent::Form),
        (
            pairs(),
            vec(
                (
                    "[f-h]",
                    "[a-zA-Z0-9 é._-]{0,8}[a-z]",
                    vec(any::<u8>(), 0..200)
                ),
                0..3
            ),
        )
            .prop_map(|(fields, files)| Sent::Parts(fields, files)),
    ];
    (
        prop::sample::select(std::vec!["GET", "POST", "PUT", "PATCH", "DELETE", "QUERY"]),
        PATH,
        vec((r"[a-c](%5B[a-z]?%5D|\[[a-z]?\])?", QUERY), 0..5),
        vec(("[a-e]", r"([!#-+./-:<-\[\]-~]|%20){0,8}"), 0..4),
        vec(("x-(one|two|three)", VALUE), 0..5),
        body,
    )
        .prop_map(|(method, path, query, cookies, headers, body)| Asked {
            method: method.into(),
            path,
            query,
            cookies,
            headers,
            body,
        })
}

fn answered() -> impl Strategy<Value = Answered> {
    (
        prop::sample::select(std::vec![
            200u16, 201, 207, 301, 302, 400, 404, 418, 422, 500, 503
        ]),
        vec(("x-(four|five)", VALUE), 0..4),
        vec("[a-z]{1,4}=[a-zA-Z0-9%]{0,8}(; path=/)?", 0..4),
        vec(any::<u8>(), 0..300),
    )
        .prop_map(|(status, headers, cookies, body)| Answered {
            status,
            headers,
            cookies,
            body,
        })
}

fn coded(bytes: impl AsRef<[u8]>) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn decoded(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap()
}

impl Asked {
    fn request(&self, answer: &Answered, notes: &Path) -> Request {
        let query: Vec<String> = self.query.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let mut target = format!("/index.php{}", self.path);
        if !query.is_empty() {
            target = format!("{target}?{}", query.join("&"));
        }
        let mut lines = vec![format!("{} {target} HTTP/1.1", self.method)];
        let headers = answer.headers.iter().cloned();
        let cookies = answer.cookies.iter();
        let cookies = cookies.map(|cookie| ("Set-Cookie".to_string(), cookie.clone()));
        let answer = json!({
            "notes": notes,
            "status": answer.status,
            "headers": headers.chain(cookies).collect::<Vec<_>>(),
            "body": coded(&answer.body),
        });
        lines.push(format!("X-Answer: {}", coded(answer.to_string())));
        let cookies: Vec<String> = self
            .cookies
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        if !cookies.is_empty() {
            lines.push(format!("Cookie: {}", cookies.join("; ")));
        }
        let headers = self.headers.iter();
        lines.extend(headers.map(|(name, value)| format!("{name}: {value}")));
        let (kind, body) = self.body.bytes();
        lines.extend(kind.map(|kind| format!("Content-Type: {kind}")));
        Request::new(&lines, body)
    }
}

impl Sent {
    fn bytes(&self) -> (Option<String>, Option<Vec<u8>>) {
        match self {
            Sent::Nothing => (None, None),
            Sent::Bytes(kind, bytes) => (Some(kind.clone()), Some(bytes.clone())),
            Sent::Form(pairs) => {
                let fields: Vec<_> = pairs.iter().map(|(n, v)| (&n[..], &v[..])).collect();
                let text = crate::apps::client::urlencoded(&fields);
                let kind = "application/x-www-form-urlencoded";
                (Some(kind.into()), Some(text.into()))
            }
            Sent::Parts(fields, files) => {
                const BOUNDARY: &str = "--b0undary--";
                let mut body = Vec::new();
                let mut part = |head: String, content: &[u8]| {
                    let head =
                        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; {head}\r\n\r\n");
                    body.extend([head.as_bytes(), content, b"\r\n"].concat());
                };
                for (name, value) in fields {
                    part(format!("name=\"{name}\""), value.as_bytes());
                }
                for (name, file, content) in files {
                    let head = format!("name=\"{name}\"; filename=\"{file}\"\r\nContent-Type: x/y");
                    part(head, content);
                }
                body.extend(format!("--{BOUNDARY}--\r\n").bytes());
                let kind = format!("multipart/form-data; boundary=\"{BOUNDARY}\"");
                (Some(kind), Some(body))
            }
        }
    }
}

/// PHP's note of one request.
struct Noted(Value);

impl Noted {
    fn server(&self, name: &str) -> Option<String> {
        let text = self.0["server"].get(name)?.as_str().unwrap();
        Some(String::from_utf8_lossy(&decoded(text)).into_owned())
    }
}

struct Subjects {
    home: TestDir,
    serve: Surus,
    services: Vec<(HttpService, String)>,
    _function: Behind,
}

impl Subjects {
    fn start() -> Subjects {
        let home = TestDir::empty();
        std::fs::write(home.root.join("index.php"), SCRIPT).unwrap();
        let env = [
            ("SURUS_COMPRESS_ENABLED", "false"),
            ("SURUS_ENGINE_WORKERS", "1"),
        ];
        let serve = Surus::spawn(&home.root, &[], &env)
            .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
        let function = Behind::start(&home.root, &env);
        let services = [
            HttpService::Url,
            HttpService::Http,
            HttpService::Rest,
            HttpService::Alb,
            HttpService::AlbMulti,
        ];
        let services = services.map(|service| (service, function.service(service)));
        Subjects {
            home,
            serve,
            services: services.into(),
            _function: function,
        }
    }

    fn ask(&self, address: &str, asked: &Asked, answered: &Answered) -> (Noted, Answer) {
        let notes = self.home.state.join("notes");
        let _ = std::fs::remove_file(&notes);
        let request = asked.request(answered, &notes);
        let answer = http::ask(address, &request.wire(), &request.method, None).unwrap();
        let noted = std::fs::read(&notes).unwrap_or_else(|_| {
            let body = String::from_utf8_lossy(&answer.body);
            panic!(
                "the request did not reach PHP: {} {body}\n{}",
                answer.status,
                request.shown()
            )
        });
        (Noted(serde_json::from_slice(&noted).unwrap()), answer)
    }
}

/// The values of each header, joined.
fn joined<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in pairs {
        let there = all.entry(name.to_ascii_lowercase()).or_default();
        if !there.is_empty() {
            there.push_str(", ");
        }
        there.push_str(value);
    }
    all
}

#[test]
fn requests_and_responses_survive_each_front_end() {
    let subjects = Subjects::start();
    let mut config = ProptestConfig::with_cases(96);
    config.failure_persistence = None;
    let all = (asked(), answered());
    let tried = TestRunner::new(config).run(&all, |(asked, answered)| {
        let (reference, _) = subjects.ask(&subjects.serve.address, &asked, &answered);
        for (service, address) in &subjects.services {
            let (noted, answer) = subjects.ask(address, &asked, &answered);
            arrived(*service, &asked, &reference, &noted)?;
            returned(*service, &answered, &answer)?;
        }
        Ok(())
    });
    tried.unwrap_or_else(|error| panic!("{error}"));
}

/// PHP's note matches the request, and the note behind `serve`.
fn arrived(
    service: HttpService,
    asked: &Asked,
    reference: &Noted,
    noted: &Noted,
) -> Result<(), TestCaseError> {
    for part in ["post", "cookie", "files", "input"] {
        prop_assert_eq!(
            &noted.0[part],
            &reference.0[part],
            "{:?}: {}",
            service,
            part
        );
    }
    if let Sent::Bytes(_, bytes) = &asked.body {
        prop_assert_eq!(
            &decoded(noted.0["input"].as_str().unwrap()),
            bytes,
            "{:?}",
            service
        );
    }
    // Services group by name, so repeated names may change places, and some services pass on one
    // value per name.
    let mut names: Vec<_> = asked
        .query
        .iter()
        .map(|(name, _)| percent_decode_str(name).collect::<Vec<u8>>())
        .collect();
    let begin = |name: &[u8]| name.first().copied();
    names.sort();
    let is_plain = names.windows(2).all(|two| begin(&two[0]) != begin(&two[1]));
    if is_plain || matches!(service, HttpService::Url | HttpService::Http) {
        prop_assert_eq!(&noted.0["get"], &reference.0["get"], "{:?}", service);
    }
    let mut same = vec![
        "REQUEST_METHOD",
        "CONTENT_TYPE",
        "CONTENT_LENGTH",
        "HTTP_HOST",
        "SERVER_NAME",
        "SCRIPT_NAME",
        "SCRIPT_FILENAME",
        "REMOTE_ADDR",
        "SERVER_PROTOCOL",
        "HTTP_COOKIE",
    ];
    if service != HttpService::Http {
        // This service decodes the path, so a question mark ends it.
        same.push("PATH_INFO");
    }
    if matches!(service, HttpService::Url)
        || is_plain && matches!(service, HttpService::Alb | HttpService::AlbMulti)
    {
        same.extend(["REQUEST_URI", "QUERY_STRING"]);
    }
    for name in same {
        prop_assert_eq!(
            noted.server(name),
            reference.server(name),
            "{:?}: {}",
            service,
            name
        );
    }
    let sent = joined(
        asked
            .headers
            .iter()
            .map(|(name, value)| (&name[..], &value[..])),
    );
    for (name, value) in sent {
        let got = noted.server(&format!(
            "HTTP_{}",
            name.to_ascii_uppercase().replace('-', "_")
        ));
        let last = asked
            .headers
            .iter()
            .rfind(|(there, _)| *there == name)
            .map(|(_, value)| value.clone());
        match service {
            // One value per name: the last.
            HttpService::Alb => prop_assert_eq!(got, last, "{:?}: {}", service, name),
            // Joined by a comma without a space.
            HttpService::Url | HttpService::Http => {
                prop_assert_eq!(
                    got,
                    Some(value.replace(", ", ",")),
                    "{:?}: {}",
                    service,
                    name
                )
            }
            _ => prop_assert_eq!(got, Some(value), "{:?}: {}", service, name),
        }
    }
    Ok(())
}

/// The client gets PHP's response.
fn returned(
    service: HttpService,
    answered: &Answered,
    answer: &Answer,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(answer.status, answered.status, "{:?}", service);
    prop_assert_eq!(&answer.body, &answered.body, "{:?}", service);
    prop_assert_eq!(
        answer.header("content-type"),
        Some(&b"application/x-answer"[..])
    );
    let lines: Vec<(&str, &str)> = answer
        .headers
        .iter()
        .map(|(name, value)| (&name[..], std::str::from_utf8(value).unwrap()))
        .collect();
    let of = |wanted: &str| -> Vec<&str> {
        let found = lines
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| *value).collect()
    };
    let mut cookies = of("set-cookie");
    let mut sent: Vec<&str> = answered.cookies.iter().map(|cookie| &cookie[..]).collect();
    if service == HttpService::Alb {
        // Members of a JSON object have no order.
        cookies.sort();
        sent.sort();
    }
    prop_assert_eq!(cookies, sent, "{:?}", service);
    let said = answered
        .headers
        .iter()
        .map(|(name, value)| (&name[..], &value[..]));
    for (name, value) in joined(said) {
        let got = of(&name);
        prop_assert_eq!(got.join(", "), value, "{:?}: {}", service, &name);
        if matches!(service, HttpService::Rest | HttpService::AlbMulti) {
            let each = answered.headers.iter().filter(|(there, _)| *there == name);
            prop_assert_eq!(got.len(), each.count(), "{:?}", service);
        }
    }
    Ok(())
}
