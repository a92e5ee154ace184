//! Tests the access log's formats of nginx and Apache.

use crate::common::Surus;
use crate::wire::{Wire, text};

fn start(format: &str) -> Result<(Surus, tempfile::TempDir), String> {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let index = "<?php header('X-Kind: a\"b'); echo 'hello';";
    std::fs::write(dir.path().join("index.php"), index).unwrap();
    std::fs::write(dir.path().join("file.txt"), "file").unwrap();
    let stream = "<?php echo 'begin'; flush(); usleep(100000); echo str_repeat('x', 30000);";
    std::fs::write(dir.path().join("stream.php"), stream).unwrap();
    let env = [
        ("SURUS_ACCESS_LOG_FORMAT", format),
        ("SURUS_ENGINE_WORKERS", "1"),
    ];
    Surus::spawn(dir.path(), &[], &env).map(|surus| (surus, dir))
}

#[test]
fn format_of_nginx_makes_one_line_per_request_whatever_the_client_sends() {
    let format = "<$remote_addr $remote_user \"$request\" $status $body_bytes_sent $host \
                  \"$http_x_evil\" $sent_http_x_kind $engine>";
    let (surus, _dir) = start(format).unwrap();
    let head = "Host: A.example\r\nX-Evil: a\" 200\tx\\\u{e9}\r\n\
                Authorization: Basic YWxpY2U6c2VjcmV0\r\n\r\n";
    let mut wire = Wire::connect(&surus);
    wire.ask(&format!("GET /?a=1 HTTP/1.1\r\n{head}")).unwrap();
    surus.wait_for_log(|log| {
        log.contains(
            "<127.0.0.1 alice \"GET /?a=1 HTTP/1.1\" 200 5 a.example \
             \"a\\x22 200\\x09x\\x5C\\xC3\\xA9\" a\\x22b classic>\n",
        )
    });
    wire.ask("GET /file.txt HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    surus.wait_for_log(|log| {
        log.contains("<127.0.0.1 - \"GET /file.txt HTTP/1.1\" 200 4 a \"-\" - static>\n")
    });
    Wire::connect(&surus).ask("nonsense\r\n\r\n").unwrap();
    surus.wait_for_log(|log| log.contains("<127.0.0.1 - \"-\" 400 0 - \"-\" - static>\n"));
    assert!(!surus.log().contains("secret"));
}

#[test]
fn format_of_apache_is_followed_and_unknown_directives_stop_the_start() {
    let (surus, _dir) = start("<%h %V:%p \"%r\" %>s %b \"%{X-Kind}o\" %{%Y}t>").unwrap();
    let port = surus.address.rsplit(':').next().unwrap();
    let mut wire = Wire::connect(&surus);
    wire.ask("GET / HTTP/1.1\r\nHost: a.example:1\r\n\r\n")
        .unwrap();
    let line = format!("<127.0.0.1 a.example:{port} \"GET / HTTP/1.1\" 200 5 \"a\\\"b\" 20");
    surus.wait_for_log(|log| log.contains(&line));
    drop(surus);
    let log = start("%h %Z").err().unwrap();
    assert!(
        log.contains("access_log.format: `%Z` is not a directive"),
        "{log}"
    );
}

/// The line of the request with this number.
fn line(surus: &Surus, number: usize) -> String {
    let lines = |log: &str| {
        let lines = log.lines().filter(|line| line.starts_with('<'));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    surus.wait_for_log(|log| lines(log).len() > number);
    lines(&surus.log()).remove(number)
}

#[test]
fn bytes_with_headers_are_those_on_the_wire() {
    let (surus, _dir) = start("<%I %O>").unwrap();
    let body = format!("Content-Length: 4000\r\n\r\n{}", "b".repeat(4000));
    let close = "Host: a.example\r\nConnection: close\r\n";
    let requests = [
        format!("GET / HTTP/1.1\r\n{close}\r\n"),
        format!("HEAD /?a HTTP/1.1\r\n{close}\r\n"),
        format!("GET /stream.php HTTP/1.1\r\n{close}\r\n"),
        format!("HEAD /stream.php?a HTTP/1.1\r\n{close}\r\n"),
        format!("GET /file.txt?ab HTTP/1.1\r\n{close}\r\n"),
        format!("GET http://a.example/?abcd HTTP/1.1\r\n{close}\r\n"),
        format!("POST / HTTP/1.1\r\n{close}{body}"),
        "GET /stream.php HTTP/1.0\r\n\r\n".to_owned(),
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
    ];
    for (number, request) in requests.iter().enumerate() {
        let mut wire = Wire::connect(&surus);
        wire.send(request);
        let sent = wire.rest();
        let expected = format!("<{} {}>", request.len(), sent.len());
        let begin = text(&sent[..sent.len().min(400)]);
        assert!(begin.starts_with("HTTP/1."), "{request}: {begin}");
        assert_eq!(line(&surus, number), expected, "{request}: {begin}");
    }
    let mut wire = Wire::connect(&surus);
    let kept = [
        "GET /?kept HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /?keep HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
    ];
    for (number, request) in (requests.len()..).zip(kept) {
        let answer = wire.ask(request).unwrap();
        let sent = answer.head.len() + answer.body.len();
        let expected = format!("<{} {sent}>", request.len());
        assert_eq!(line(&surus, number), expected, "{}", answer.head);
    }
    // A request that cannot be parsed.
    let mut wire = Wire::connect(&surus);
    wire.send("nonsense\r\n\r\n");
    let sent = wire.rest();
    let expected = format!("<0 {}>", sent.len());
    let number = requests.len() + kept.len();
    assert_eq!(line(&surus, number), expected, "{}", text(&sent));
}

#[test]
fn bytes_over_http_2_are_those_of_http_1() {
    let (surus, _dir) = start("<%H %I %O>").unwrap();
    let curl = |version: &str| {
        let mut curl = std::process::Command::new("curl");
        let url = format!("{}/file.txt", surus.url);
        let fetched = curl.args(["--silent", "--fail", version, &url]).output();
        assert_eq!(fetched.unwrap().stdout, b"file", "{version}");
    };
    let bytes = |version: &str| {
        let log = surus.log();
        let (_, rest) = log.split_once(&format!("<{version} "))?;
        let (bytes, _) = rest.split_once(">\n")?;
        Some(bytes.to_owned())
    };
    curl("--http1.1");
    curl("--http2-prior-knowledge");
    surus.wait_for_log(|log| log.matches("<HTTP/").count() == 2);
    assert_eq!(bytes("HTTP/1.1"), bytes("HTTP/2.0"), "{}", surus.log());
}
