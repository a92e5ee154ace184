//! Tests the access log's formats of nginx and Apache.

use crate::common::Surus;
use crate::wire::Wire;

fn start(format: &str) -> Result<(Surus, tempfile::TempDir), String> {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let index = "<?php header('X-Kind: a\"b'); echo 'hello';";
    std::fs::write(dir.path().join("index.php"), index).unwrap();
    std::fs::write(dir.path().join("file.txt"), "file").unwrap();
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
