//! Test that WordPress responds behind a function URL as behind `surus serve`.

use std::io::Write;
use std::process::{Command, Stdio};

use super::applications::compare_between;
use crate::apps::blog::{PNG, database, install, site};
use crate::apps::client::{Answer, Client, Upload};
use crate::apps::database::Database;

/// A fixed address, so that both servers serve the same site.
const ADDRESS: &str = "
if (isset($_SERVER['HTTP_HOST'])) {
    define('WP_HOME', 'http://'.$_SERVER['HTTP_HOST']);
    define('WP_SITEURL', WP_HOME);
}";

/// Nonces, cookie names, obfuscated mail addresses, ETags of uploads, and dates.
const RANDOM: &str = r#"
    | \b[0-9a-f]{32}\b
    | \b[0-9a-f]{10}\b
    | \d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d
    | \d{1,2}:\d\d\ [ap]m
    | unapproved=\d+&moderation-hash
    | data-pw="[^"]+"
    | mailto:[^"]*"[^<]*
    | "[0-9a-f]+\.[0-9a-f]+-[0-9a-f]+"
    | \b1[78]\d{8}(\.\d+)?\b
    | \d+\ (seconds?|mins?|minutes?)\ ago
    | [A-Z][a-z]{2},\ \d\d\ [A-Z][a-z]{2}\ \d{4}\ \d\d:\d\d:\d\d"#;

#[test]
fn wordpress_responds_as_behind_serve() {
    let database = database();
    let site = site(&database, "", ADDRESS);
    install(&site.www(), "localhost");
    let installed = dump(&database);
    let uploads = site.www().join("wp-content/uploads");
    let reset = || {
        load(&database, &installed);
        for year in std::fs::read_dir(&uploads).unwrap() {
            std::fs::remove_dir_all(year.unwrap().path()).unwrap();
        }
    };
    compare_between(&site, &[], visit, reset, RANDOM);
}

/// A MariaDB program, run on the blog's database.
fn client(program: &str, database: &Database) -> Command {
    let mut command = Command::new(program);
    let socket = format!("--socket={}", database.socket().display());
    command.args(["--no-defaults", &socket, "--user=root", "wordpress"]);
    command
}

/// Dumps the blog's database.
fn dump(database: &Database) -> Vec<u8> {
    let output = client("mariadb-dump", database).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "mariadb-dump: {said}");
    output.stdout
}

/// Restores the blog's database.
fn load(database: &Database, dump: &[u8]) {
    let mut client = client("mariadb", database);
    let mut client = client.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = client.stdin.take().unwrap();
    stdin.write_all(dump).unwrap();
    drop(stdin);
    assert!(client.wait().unwrap().success(), "mariadb");
}

fn visit(reader: &Client) -> Vec<Answer> {
    let mut seen = vec![
        reader.get("/").shows("Über die Alpen"),
        reader.get("/alpen/").shows("Elephants."),
        // Redirects.
        reader.get("/alpen").shows("Elephants."),
        reader.get("/?p=1").ok(),
        reader.get("/?s=it%27s+%22quoted%22+%5C").ok(),
        reader.get("/feed/").shows("<title>Über die Alpen</title>"),
        reader.get("/no/such/page/").status(404),
        reader.get("/wp-json/wp/v2/posts").shows("alpen"),
        reader.get("/wp-json/wp/v2/users/me").status(401),
        reader.get("/robots.txt").ok(),
        reader
            .get("/wp-includes/css/buttons.min.css")
            .shows(".wp-core-ui"),
        reader
            .get_as(
                "/wp-includes/css/buttons.min.css",
                &[("range", "bytes=3-20")],
            )
            .status(206),
        reader.get("/wp-includes/images/media/text.png").ok(),
        reader.get("/wp-config.php").ok().lacks("alps-218"),
    ];
    seen.extend(comment(reader));
    seen.extend(upload(reader));
    seen
}

fn comment(reader: &Client) -> Vec<Answer> {
    let posts = reader.get("/wp-json/wp/v2/posts?slug=alpen").ok();
    let id = posts.json()[0]["id"].to_string();
    let fields = [
        ("author", "Hasdrubal"),
        ("email", "hasdrubal@example.org"),
        ("comment", "It's <b>\"cold\"</b> \\ here & high"),
        ("comment_post_ID", &*id),
        ("comment_parent", "0"),
    ];
    // Redirected to the pending comment.
    let pending = reader
        .post("/wp-comments-post.php", &fields)
        .shows("here &amp; high");
    // WordPress rejects a second comment within seconds: as the same, or since 6.8 as too soon.
    let again = reader.post("/wp-comments-post.php", &fields);
    assert!(matches!(again.status, 409 | 429), "{}", again.status);
    vec![posts, pending, again]
}

fn upload(visitor: &Client) -> Vec<Answer> {
    let login = |password| {
        [
            ("log", "hannibal"),
            ("pwd", password),
            ("wp-submit", "Log In"),
            ("redirect_to", "/wp-admin/profile.php"),
            ("testcookie", "1"),
        ]
    };
    let mut seen = vec![
        visitor.get("/wp-login.php").shows("user_login"),
        visitor
            .post("/wp-login.php", &login("rome"))
            .shows("The password you entered for the username"),
        visitor
            .post("/wp-login.php", &login("elephants-218"))
            .shows("hannibal@example.org"),
        visitor.get("/").shows("wpadminbar"),
    ];
    let nonce = visitor
        .get("/wp-admin/admin-ajax.php?action=rest-nonce")
        .ok();
    let headers = [
        ("x-wp-nonce", &*nonce.text()),
        ("content-type", "image/png"),
        ("content-disposition", "attachment; filename=\"surus.png\""),
    ];
    let image = visitor
        .post_as("/wp-json/wp/v2/media", &headers, PNG.to_vec())
        .status(201);
    let said = image.json();
    for url in [
        &said["source_url"],
        &said["media_details"]["sizes"]["thumbnail"]["source_url"],
    ] {
        let sent_back = visitor.get(url.as_str().unwrap()).ok();
        assert_eq!(sent_back.header("content-type"), "image/png");
        assert!(sent_back.body.starts_with(b"\x89PNG"));
        seen.push(sent_back);
    }
    assert!(seen[seen.len() - 2].body == PNG, "the image is another one");
    // As a browser without JavaScript sends it.
    let form = visitor
        .get("/wp-admin/media-new.php?browser-uploader=1")
        .ok();
    let fields = [
        ("_wpnonce", &*form.input("_wpnonce")),
        ("post_id", "0"),
        ("html-upload", "Upload"),
    ];
    let file = Upload {
        field: "async-upload",
        name: "second.png",
        mime: "image/png",
        bytes: PNG,
    };
    let uploaded = visitor.upload("/wp-admin/media-new.php", &fields, &file);
    let found = visitor.get("/wp-json/wp/v2/media?search=second").ok();
    let url = found.json()[0]["source_url"].as_str().unwrap().to_string();
    assert!(visitor.get(&url).ok().body == PNG);
    let comments = visitor.get("/wp-admin/edit-comments.php?comment_status=moderated");
    seen.extend([
        image,
        uploaded.ok(),
        found,
        comments.shows("here &amp; high"),
    ]);
    seen
}
