//! Tests the site's error pages, and the page of PHP's fatal error.

use crate::common::Surus;
use crate::wire::{Answer, Wire};

const INDEX: &str = r#"<?php
header('Set-Cookie: a=b');
switch ($_GET['do'] ?? '') {
    case 'throw': secret(1);
    case 'own': http_response_code(500); exit('the application says so');
    case 'kill': posix_kill(getmypid(), 9); sleep(60);
    case 'caught':
        ob_start();
        register_shutdown_function(function () {
            ob_end_clean();
            echo 'page of the framework';
        });
        secret(2);
}
function secret($what) {
    throw new RuntimeException("no <luck> $what");
}
"#;

fn site(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("index.php"), INDEX).unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

fn serve(dir: &tempfile::TempDir, env: &[(&str, &str)]) -> Surus {
    let mut env = env.to_vec();
    env.push(("SURUS_ENGINE_WORKERS", "1"));
    Surus::spawn(dir.path(), &[], &env).unwrap_or_else(|log| panic!("no start:\n{log}"))
}

fn is_root() -> bool {
    surus_sys::process::is_root()
}

fn ask(surus: &Surus, target: &str, headers: &str) -> Answer {
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    Wire::connect(surus).ask(&request).unwrap()
}

fn body(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

#[test]
fn errors_of_surus_and_empty_errors_of_php_get_the_pages_of_the_site() {
    let dir = site(&[
        ("errors/404.html", "<h1>No such page</h1>"),
        ("errors/4xx.html", "<h1>Not like this</h1>"),
        ("errors/500.html", "<h1>We are sorry</h1>"),
        ("errors/502.html", "<h1>Try again</h1>"),
        (".hidden", "secret"),
    ]);
    let env = [
        ("SURUS_HTTP_MAX_BODY_SIZE", "10"),
        ("SURUS_SITE_FALLBACK", "false"),
    ];
    let surus = serve(&dir, &env);
    let missing = ask(&surus, "/missing", "Accept: text/html\r\n");
    assert_eq!(
        (missing.status, &*body(&missing)),
        (404, "<h1>No such page</h1>")
    );
    assert_eq!(
        missing.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let json = ask(&surus, "/missing", "Accept: application/json\r\n");
    assert_eq!(
        (json.status, &*body(&json)),
        (404, "404 Not Found: no such file\n")
    );
    let post = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n";
    let large = Wire::connect(&surus).ask(post).unwrap();
    assert_eq!(
        (large.status, &*body(&large)),
        (413, "<h1>Not like this</h1>")
    );
    let killed = ask(&surus, "/?do=kill", "");
    assert_eq!(
        (killed.status, &*body(&killed)),
        (502, "<h1>Try again</h1>")
    );
    let thrown = ask(&surus, "/?do=throw", "");
    assert_eq!(
        (thrown.status, &*body(&thrown)),
        (500, "<h1>We are sorry</h1>")
    );
    assert_eq!(thrown.header("set-cookie"), Some("a=b"));
    let own = ask(&surus, "/?do=own", "");
    assert_eq!((own.status, &*body(&own)), (500, "the application says so"));
    let head = "HEAD /missing HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut wire = Wire::connect(&surus);
    wire.send(head);
    let head = wire.answer_to("HEAD").unwrap();
    assert_eq!(
        (head.status, head.header("content-length")),
        (404, Some("21"))
    );
}

#[test]
fn reload_reads_the_pages_of_the_configured_directory_again() {
    let dir = site(&[
        ("public/index.php", "<?php"),
        ("pages/404.html", "first"),
        ("pages/503.html", &"x".repeat(65 << 10)),
    ]);
    let env = [
        ("SURUS_SITE_FALLBACK", "false"),
        ("SURUS_ERROR_PAGES_DIRECTORY", "pages"),
    ];
    let surus = serve(&dir, &env);
    surus.wait_for_log(|log| log.contains("the error page is not used"));
    assert_eq!(body(&ask(&surus, "/missing", "")), "first");
    std::fs::write(dir.path().join("pages/404.html"), "second").unwrap();
    assert_eq!(body(&ask(&surus, "/missing", "")), "first");
    surus.signal("HUP");
    surus.wait_for_log(|log| log.contains("reloaded"));
    assert_eq!(body(&ask(&surus, "/missing", "")), "second");
}

#[test]
fn site_that_has_not_booted_answers_with_its_own_page() {
    let fails = "<?php throw new Exception('at the boot'); surus_serve(1);";
    let dir = site(&[
        ("bad/index.php", fails),
        ("bad/errors/503.html", "<h1>Back soon</h1>"),
        (
            "surus.toml",
            "[[site]]\nhost = 'good.example'\nengine.name = 'classic'\n\
             [[site]]\nhost = 'bad.example'\nproject = 'bad'\n",
        ),
    ]);
    let surus = serve(&dir, &[]);
    let ask = |host: &str, accept: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n\r\n");
        Wire::connect(&surus).ask(&request).unwrap()
    };
    let page = ask("bad.example", "text/html");
    assert_eq!(
        (page.status, &*body(&page)),
        (503, "<h1>Back soon</h1>"),
        "{}",
        surus.log()
    );
    assert_eq!(page.header("retry-after"), Some("1"));
    let json = ask("bad.example", "application/json");
    assert_eq!(json.status, 503);
    assert!(body(&json).contains("this site cannot be served"));
    let unknown = ask("unknown.example", "text/html");
    assert_eq!(unknown.status, 421);
    assert!(body(&unknown).contains("no site of this server"));
    // The next attempt to boot finds another page.
    std::fs::write(dir.path().join("bad/errors/503.html"), "<h1>Later</h1>").unwrap();
    surus.signal("HUP");
    surus.wait_for_log(|_| body(&ask("bad.example", "text/html")) == "<h1>Later</h1>");
    let served = "<?php surus_serve(function () { echo 'served'; });";
    std::fs::write(dir.path().join("bad/index.php"), served).unwrap();
    surus.wait_for_log(|_| body(&ask("bad.example", "text/html")) == "served");
}

#[test]
fn missing_directory_of_error_pages_stops_the_start() {
    let dir = site(&[]);
    let env = [("SURUS_ERROR_PAGES_DIRECTORY", "nowhere")];
    let log = Surus::spawn(dir.path(), &[], &env).err().unwrap();
    assert!(
        log.contains("error_pages.directory") && log.contains("nowhere"),
        "{log}"
    );
}

#[test]
fn fatal_error_is_shown_with_its_source_to_a_local_client_only() {
    for engine in ["classic", "rewind"] {
        let dir = site(&[
            ("errors/5xx.html", "<h1>We are sorry</h1>"),
            (
                "worker.php",
                "<?php surus_serve(fn () => include __DIR__ . '/throws.php');",
            ),
            (
                "throws.php",
                "<?php\nthrow new LogicException('no <luck> 1');\n",
            ),
        ]);
        let env = [("SURUS_PHP_DISPLAY_ERRORS", "1")];
        let booted = dir.path().join("worker.php");
        let args: &[&str] = match engine {
            "classic" => &[],
            engine => &["--engine", engine, "--script", booted.to_str().unwrap()],
        };
        let mut env = env.to_vec();
        env.push(("SURUS_ENGINE_WORKERS", "1"));
        let surus = Surus::spawn(dir.path(), args, &env).unwrap();
        // Twice: a restored worker has forgotten the first.
        for _ in 0..2 {
            let shown = ask(&surus, "/?do=throw", "Accept: text/html\r\n");
            let page = body(&shown);
            assert_eq!(shown.status, 500, "{engine}: {page}");
            for part in [
                "<h1>Fatal error",
                "no &lt;luck&gt; 1",
                ".php:",
                "Stack trace",
                "{main}",
            ] {
                assert!(page.contains(part), "{engine}: {part} is not in {page}");
            }
            // As root, Surus reads no files of the application.
            assert_eq!(
                page.contains("class=\"here\""),
                !is_root(),
                "{engine}: {page}"
            );
            assert!(
                !shown.head.to_lowercase().contains("surus-fatal"),
                "{}",
                shown.head
            );
        }
        let proxied = ask(
            &surus,
            "/?do=throw",
            "Accept: text/html\r\nX-Forwarded-For: 192.0.2.1\r\n",
        );
        assert!(
            !body(&proxied).contains("<h1>Fatal error"),
            "{}",
            body(&proxied)
        );
        assert!(
            !proxied.head.to_lowercase().contains("surus-fatal"),
            "{}",
            proxied.head
        );
        let bare = "GET /?do=throw HTTP/1.0\r\nHost: 127.0.0.1:8080\r\nAccept: text/html\r\n\r\n";
        let bare = Wire::connect(&surus).ask(bare).unwrap();
        assert!(!body(&bare).contains("<h1>Fatal error"), "{}", body(&bare));
        let tool = ask(&surus, "/?do=throw", "Accept: */*\r\n");
        assert!(!body(&tool).contains("<h1>Fatal error"), "{}", body(&tool));
    }
}

#[test]
fn fatal_error_over_http_2_is_shown_at_a_local_host_only() {
    let dir = site(&[]);
    let surus = serve(&dir, &[("SURUS_PHP_DISPLAY_ERRORS", "1")]);
    let (_, port) = surus.address.rsplit_once(':').unwrap();
    for (host, is_shown) in [
        ("localhost", true),
        ("shop.localhost", true),
        ("shop.test", false),
        ("evil.example", false),
    ] {
        let out = std::process::Command::new("curl")
            .args(["-sS", "-m", "30", "--http2-prior-knowledge"])
            .args(["-H", "Accept: text/html"])
            .args(["--connect-to", &format!("::{}", surus.address)])
            .arg(format!("http://{host}:{port}/?do=throw"))
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
        let page = String::from_utf8_lossy(&out.stdout);
        assert_eq!(page.contains("<h1>Fatal error"), is_shown, "{host}: {page}");
    }
}

#[test]
fn error_page_that_a_shutdown_function_makes_is_kept() {
    let dir = site(&[]);
    let env = [
        ("SURUS_PHP_DISPLAY_ERRORS", "1"),
        ("SURUS_PHP_OUTPUT_BUFFERING", "4096"),
    ];
    let surus = serve(&dir, &env);
    let caught = ask(&surus, "/?do=caught", "Accept: text/html\r\n");
    assert_eq!(body(&caught), "page of the framework");
}

#[test]
fn error_page_has_no_paths_when_errors_are_not_displayed() {
    let dir = site(&[("errors/500.html", "<h1>We are sorry</h1>")]);
    let env = [
        ("SURUS_ERROR_PAGES_DETAILS", "all"),
        ("SURUS_PHP_DISPLAY_ERRORS", "0"),
    ];
    let surus = serve(&dir, &env);
    let thrown = ask(&surus, "/?do=throw", "");
    assert_eq!(
        (thrown.status, &*body(&thrown)),
        (500, "<h1>We are sorry</h1>")
    );
    let place = dir.path().to_str().unwrap();
    assert!(!thrown.head.contains(place), "{}", thrown.head);
}
