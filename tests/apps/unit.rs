//! Tests what users of NGINX Unit's PHP module rely on, each with the settings that replace
//! Unit's (<https://unit.nginx.org/configuration/#php>).

use serde_json::json;

use super::client::Client;
use super::site::Site;

const SHOW: &str = "<?php
header('Content-Type: application/json');
echo json_encode([
    basename(__FILE__),
    getcwd(),
    $_SERVER['REQUEST_URI'],
    $_SERVER['SCRIPT_NAME'],
    $_SERVER['PATH_INFO'] ?? '',
    $_SERVER['QUERY_STRING'],
]);
if (isset($_GET['chdir'])) {
    chdir($_GET['chdir']);
}";

/// `"share": "/www/public$uri", "fallback": {"pass": "applications/app"}` with
/// `"script": "index.php"`.
#[test]
fn share_with_a_script_as_fallback_sends_files_and_runs_the_script_for_the_rest() {
    let site = Site::new()
        .write("public/index.php", SHOW)
        .write("public/a.css", "a {}");
    let surus = site.serve(&[]);
    let visitor = Client::new(&surus.url);
    let style = visitor.get("/a.css").shows("a {}");
    assert!(style.header("content-type").starts_with("text/css"));
    let root = site.www().canonicalize().unwrap().join("public");
    for path in ["/", "/blog/post?a=b", "/no.css", "/deep/er/"] {
        let query = path.split_once('?').map_or("", |(_, query)| query);
        let seen = visitor.get(path).ok().json();
        let expected = json!(["index.php", root, path, "/index.php", "", query]);
        assert_eq!(seen, expected, "{path}");
    }
}

/// Without `script`, a URL names the script, and nothing answers what is missing.
#[test]
fn urls_name_scripts_where_there_is_no_front_controller() {
    let site = Site::new()
        .write("index.php", SHOW)
        .write("sub/show.php", SHOW)
        .write("sub/index.php", SHOW);
    let surus = site.serve(&[("SURUS_SITE_FALLBACK", "false")]);
    let visitor = Client::new(&surus.url);
    let root = site.www().canonicalize().unwrap();
    let sub = root.join("sub");
    let cases = [
        ("/", json!(["index.php", root, "/", "/index.php", "", ""])),
        (
            "/sub/show.php/more?a=b",
            json!([
                "show.php",
                sub,
                "/sub/show.php/more?a=b",
                "/sub/show.php",
                "/more",
                "a=b"
            ]),
        ),
        (
            "/sub/",
            json!(["index.php", sub, "/sub/", "/sub/index.php", "", ""]),
        ),
        // The directory without its slash is redirected, with the query.
        (
            "/sub?a=b",
            json!(["index.php", sub, "/sub/?a=b", "/sub/index.php", "", "a=b"]),
        ),
    ];
    for (path, expected) in cases {
        assert_eq!(visitor.get(path).ok().json(), expected, "{path}");
    }
    for path in [
        "/missing",
        "/missing.php",
        "/missing.php/more",
        "/sub/missing/",
    ] {
        visitor.get(path).status(404);
    }
}

/// The working directory is the script's, also after a request that has changed it.
#[test]
fn working_directory_is_that_of_the_script_for_every_request() {
    let site = Site::new()
        .write("sub/show.php", SHOW)
        .write("index.php", SHOW);
    let surus = site.serve_with(&["--workers", "1"], &[]);
    let visitor = Client::new(&surus.url);
    let sub = site.www().canonicalize().unwrap().join("sub");
    for _ in 0..2 {
        let seen = visitor.get("/sub/show.php?chdir=/").ok().json();
        assert_eq!(seen[1], json!(sub));
    }
}

/// `"index": "home.php"`.
#[test]
fn index_names_another_file_for_directories() {
    let site = Site::new()
        .write(
            "home.php",
            "<?php echo 'home of ', $_SERVER['SCRIPT_NAME'];",
        )
        .write(
            "sub/home.php",
            "<?php echo 'home of ', $_SERVER['SCRIPT_NAME'];",
        )
        .write("plain/home.txt", "not PHP <?php");
    let index = ("SURUS_SITE_INDEX", "home.php,home.txt");
    let surus = site.serve(&[index]);
    let visitor = Client::new(&surus.url);
    visitor.get("/").shows("home of /home.php");
    visitor.get("/sub/").shows("home of /sub/home.php");
    visitor.get("/plain/").shows("not PHP <?php");
}

/// `"targets"` of one application, chosen by `"routes"`: each has a script, options and environment
/// of its own here.
#[test]
fn routes_choose_between_targets() {
    let site = Site::new()
        .write(
            "index.php",
            "<?php echo 'front ', getenv('ROLE'), ' ', ini_get('precision');",
        )
        .write(
            "admin/run.php",
            "<?php echo 'admin ', getenv('ROLE'), ' ', ini_get('precision');",
        )
        .write("admin/index.php", "<?php echo 'never asked';")
        .write(
            "surus.toml",
            r#"
[php]
precision = 5
[env]
ROLE = "visitor"

[pool.admin]
engine = "classic"
workers = 1
script = "admin/run.php"
php = { precision = 6 }
env = { ROLE = "operator" }

[[route]]
prefix = "/admin/"
engine = "admin"

[[route]]
regex = "^/private/"
deny = true

[[route]]
prefix = "/api/"
methods = ["DELETE"]
deny = true
"#,
        );
    let surus = site.serve_with(&["--workers", "1"], &[]);
    let visitor = Client::new(&surus.url);
    assert_eq!(visitor.get("/").ok().text(), "front visitor 5");
    assert_eq!(
        visitor.get("/admin/users?id=1").ok().text(),
        "admin operator 6"
    );
    visitor.get("/private/x").status(403);
    assert_eq!(visitor.get("/api/x").ok().text(), "front visitor 5");
}

/// A file of another type is sent and not run, whatever it contains.
#[test]
fn only_php_files_run() {
    let site = Site::new()
        .write("index.php", "<?php echo 'front';")
        .write("page.wrong", "<?php echo 'run';")
        .write("page.html", "<?php echo 'run';");
    let surus = site.serve(&[]);
    let visitor = Client::new(&surus.url);
    for path in ["/page.wrong", "/page.html"] {
        visitor.get(path).ok().lacks("front").says("echo 'run'");
    }
}

#[test]
fn basic_authentication_reaches_php_and_digest_does_as_text() {
    let code = "<?php
        echo json_encode([
            $_SERVER['PHP_AUTH_USER'] ?? null,
            $_SERVER['PHP_AUTH_PW'] ?? null,
            $_SERVER['PHP_AUTH_DIGEST'] ?? null,
        ]);";
    let site = Site::new().write("index.php", code);
    let surus = site.serve(&[]);
    let visitor = Client::new(&surus.url);
    let asked = |value: &str| visitor.get_as("/", &[("authorization", value)]).ok().json();
    assert_eq!(
        asked("Basic dXNlcjpwYXNzd29yZA=="),
        json!(["user", "password", null])
    );
    assert_eq!(asked("Digest blah"), json!([null, null, "blah"]));
    for invalid in ["Basic", "Basic dXNlcg==", "Bearer token"] {
        assert_eq!(asked(invalid), json!([null, null, null]), "{invalid}");
    }
    assert_eq!(visitor.get("/").ok().json(), json!([null, null, null]));
}
