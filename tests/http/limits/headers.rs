//! Tests endless headers, cookies and hints of PHP.

use super::log::get;
use super::memory::{MIB, Sampler};
use crate::common::Surus;

fn site(code: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let patient = "[http]\nrequest_timeout = \"10m\"\n";
    std::fs::write(dir.path().join("surus.toml"), patient).unwrap();
    std::fs::write(dir.path().join("page.php"), format!("<?php {code}")).unwrap();
    std::fs::write(dir.path().join("fine.php"), "<?php echo 'fine';").unwrap();
    dir
}

const COOKIES: &str =
    "for ($n = 0; $n < 20_000; $n++) header(\"Set-Cookie: c$n=1\", false); echo 'x';";
/// More names than a HeaderMap accepts, in less than 256 KiB. PHP compares none with those before.
const NAMES: &str = "
    for ($n = 0; $n < 28_000; $n++) {
        header(base_convert((string) $n, 10, 36).'x: 1', false);
    }
    echo 'x';";
const LARGE: &str = "header('X: '.str_repeat('x', 100 << 20)); echo 'x';";
const LINES_WITHOUT_NAMES: &str = "for ($n = 0; $n < 900; $n++) header('('.$n.': x'); echo 'x';";

#[test]
fn endless_headers_get_502_with_the_reason_and_the_next_request_is_answered() {
    for entry in surus::engines::CATALOGUE
        .iter()
        .filter(|entry| !entry.boots_script())
    {
        for (code, reason) in [
            (COOKIES, "headers are too large"),
            (NAMES, "response has more than 1024 headers"),
            (LARGE, "headers are too large"),
        ] {
            let dir = site(code);
            let args = [
                "--engine",
                entry.name,
                "--workers",
                "1",
                "-d",
                "memory_limit=1G",
            ];
            let env = [("SURUS_HTTP_REQUEST_TIMEOUT", "10m")];
            let surus = Surus::spawn(dir.path(), &args, &env).unwrap_or_else(|log| panic!("{log}"));
            let sampler = Sampler::start(surus.front());
            let answer = get(&surus.address, "/page.php");
            assert!(
                answer.starts_with("HTTP/1.1 502 "),
                "{}: {answer:.200}",
                entry.name
            );
            let reason = if entry.name == "builtin" {
                "headers: "
            } else {
                reason
            };
            surus.wait_for_log(|log| log.contains(reason) && log.contains("request failed"));
            let answer = get(&surus.address, "/fine.php");
            assert!(answer.contains("fine"), "{}: {answer:.200}", entry.name);
            let grown = sampler.peak() / MIB;
            assert!(grown < 32, "{}: grew by {grown} MiB", entry.name);
        }
    }
}

#[test]
fn invalid_response_headers_are_logged_rarely() {
    let dir = site(LINES_WITHOUT_NAMES);
    let surus = Surus::serve(dir.path(), &["--engine", "classic", "--workers", "1"]);
    let answer = get(&surus.address, "/page.php");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = get(&surus.address, "/fine.php");
    assert!(answer.contains("fine"), "{answer}");
    surus.wait_for_log(|log| log.matches("invalid response header removed").count() == 8);
}

const HINTS: &str = "
    header('Link: </'.str_repeat('x', 8000).'>');
    for ($n = 0; $n < 100_000; $n++) {
        headers_send(103);
    }
    echo 'x';";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_early_hints_to_a_stalled_client_use_bounded_memory() {
    let dir = site(HINTS);
    let surus = Surus::serve(dir.path(), &["--engine", "classic", "--workers", "1"]);
    let sampler = Sampler::start(surus.front());
    let stream = tokio::net::TcpStream::connect(&surus.address)
        .await
        .unwrap();
    let (mut requests, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("http://a/page.php").body(()).unwrap();
    let answer = requests.send_request(request, true).unwrap().0.await;
    assert_eq!(answer.unwrap().status(), 200);
    let grown = sampler.peak() / MIB;
    assert!(grown < 16, "grew by {grown} MiB");
    let dropped = crate::tls::metric(dir.path(), "surus_early_hints_dropped_total ");
    assert!(dropped > 99_000, "{dropped}");
}
