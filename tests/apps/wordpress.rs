//! Tests WordPress on MariaDB.

use regex::Regex;
use serde_json::json;

use super::blog::{PNG, database, install, site, site_of};
use super::browser::Browser;
use super::client::{Answer, Client, Upload};
use super::database::Database;
use super::site::{Site, example, framework};
use crate::common::Surus;
use crate::common::ports::free_address;

/// The example, with `classic` selected by a request header.
pub fn both(database: &Database) -> Site {
    let config = std::fs::read_to_string(example("wordpress/surus.toml")).unwrap();
    let classic = "\n[[route]]\nprefix = \"/\"\nheader = \"x-classic\"\nengine = \"classic\"\n";
    let proxy = "\n[http]\ntrusted_proxies = [\"127.0.0.1/32\"]\n";
    site(database, "wordpress/", "").write("surus.toml", &format!("{config}{classic}{proxy}"))
}

/// Requests a page twice from the booted engine, because the first request must leave nothing
/// behind, and compares it with the response of `classic`.
pub fn same(reader: &Client, engine: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let made = Regex::new("<dateCreated>.*</dateCreated>").unwrap();
    let classic = reader.get_as(path, &[headers, &[("x-classic", "1")]].concat());
    for _ in 0..2 {
        let booted = reader.get_as(path, headers);
        let heads = |answer: &Answer| {
            let mut heads: Vec<_> = (answer.headers.iter())
                .filter(|(name, _)| {
                    !["date", "expires", "content-length", "transfer-encoding"]
                        .contains(&name.as_str())
                })
                .map(|(name, value)| format!("{name}: {value:?}"))
                .collect();
            heads.sort();
            (answer.status, answer.url.clone(), heads)
        };
        assert_eq!(
            heads(&booted),
            heads(&classic),
            "{engine} {path} {headers:?}"
        );
        // One page contains the time of its creation.
        let body = |answer: &Answer| made.replace_all(&answer.text(), "").into_owned();
        assert_eq!(body(&booted), body(&classic), "{engine} {path} {headers:?}");
    }
    classic
}

/// Compares every kind of page between the booted engine and `classic`.
#[test]
fn booted_wordpress_answers_like_classic() {
    let database = database();
    let site = both(&database);
    let host = free_address();
    install(&site.www().join("wordpress"), &host);
    publish(&database);
    for engine in ["rewind", "fork", "standby"] {
        let args = ["--engine", engine, "--listen", &*host];
        let surus = site.serve_with(&args, &[]);
        compare(&format!("http://{host}"), engine, &surus, &database);
        // WordPress limits how often comments may be posted.
        database.run("DELETE FROM wordpress.wp_comments WHERE comment_author = 'Hasdrubal'");
    }
}

#[test]
fn unmodified_wordpress_6_8_is_booted_by_one_word() {
    one_word_boots("wordpress6");
}

#[test]
fn unmodified_wordpress_7_1_is_booted_by_one_word() {
    one_word_boots("wordpress7");
}

/// Nothing but the routes to compare with is configured.
fn one_word_boots(version: &str) {
    let database = database();
    let files = framework(version).with_file_name("wordpress");
    let route = "[[route]]\nprefix = \"/\"\nheader = \"x-classic\"\nengine = \"classic\"\n";
    let site = site_of(&files, &database, "", "").write("surus.toml", route);
    let host = free_address();
    install(&site.www(), &host);
    publish(&database);
    let surus = site.serve_with(&["--engine", "rewind", "--listen", &host], &[]);
    surus.wait_for_log(|log| log.contains("script=\"surus://boot/wordpress.php\""));
    compare(&format!("http://{host}"), "rewind", &surus, &database);
}

/// Lets search engines read it.
fn publish(database: &Database) {
    database.run(
        "UPDATE wordpress.wp_options SET option_value = '1' WHERE option_name = 'blog_public'",
    );
}

fn compare(base: &str, engine: &str, surus: &Surus, database: &Database) {
    let reader = Client::new(base);
    let same = |reader: &Client, path: &str| same(reader, engine, path, &[]);
    same(&reader, "/").shows("Über die Alpen");
    same(&reader, "/alpen/").shows("Elephants.");
    same(&reader, "/?s=elephants").shows("Über die Alpen");
    same(&reader, "/?s=it%27s+%22quoted%22+%5C");
    same(&reader, "/feed/").shows("<title>Über die Alpen</title>");
    same(&reader, "/comments/feed/");
    same(&reader, "/no/such/page/").status(404);
    same(&reader, "/alpen");
    same(&reader, "/?p=1");
    // While WordPress loads, it looks for these in the request.
    same(&reader, "/alpen/?replytocom=1").shows("noindex, follow");
    same(&reader, "/alpen/?unapproved=1&moderation-hash=x");
    same(&reader, "/alpen/").lacks("noindex, follow");
    same(&reader, "/category/uncategorized/");
    same(&reader, "/wp-json/").shows("The Alps &amp; Beyond");
    same(&reader, "/wp-json/wp/v2/posts").shows("alpen");
    same(&reader, "/wp-json/wp/v2/users/me").status(401);
    same(&reader, "/wp-login.php").shows("user_login");
    same(&reader, "/wp-login.php?action=lostpassword").shows("user_login");
    same(&reader, "/wp-sitemap.xml");
    same(&reader, "/robots.txt").ok();
    same(&reader, "/wp-links-opml.php").ok();
    // The address of trackbacks without readable URLs: only a script that loads WordPress looks the
    // post up.
    same(&reader, "/wp-trackback.php?p=999").status(404);

    let author = Client::new(base);
    let fields = |password| {
        [
            ("log", "hannibal"),
            ("pwd", password),
            ("wp-submit", "Log In"),
            ("redirect_to", "/wp-admin/"),
            ("testcookie", "1"),
        ]
    };
    author.get("/wp-login.php").ok();
    author
        .post("/wp-login.php", &fields("rome"))
        .shows("The password you entered for the username");
    author
        .post("/wp-login.php", &fields("elephants-218"))
        .shows("Dashboard")
        .shows("wpadminbar");
    same(&author, "/").shows("wpadminbar");
    same(&author, "/alpen/").shows("wpadminbar");
    same(&reader, "/").lacks("wpadminbar");
    let nonce = author
        .get("/wp-admin/admin-ajax.php?action=rest-nonce")
        .ok()
        .text();
    let headers = [
        ("x-wp-nonce", &*nonce),
        ("content-type", "application/json"),
    ];
    let body = json!({ "title": format!("It's \"{engine}\" \\ here"), "status": "publish" });
    let made = author
        .post_as(
            "/wp-json/wp/v2/posts",
            &headers,
            body.to_string().into_bytes(),
        )
        .status(201)
        .json();
    assert_eq!(made["title"]["raw"], body["title"]);
    same(&reader, "/").shows(engine);

    let id = reader.get("/wp-json/wp/v2/posts?slug=alpen").ok().json()[0]["id"].to_string();
    let comment = format!("It's \"{engine}\" \\ waiting");
    let fields = [
        ("author", "Hasdrubal"),
        ("email", "hasdrubal@example.org"),
        ("comment", &*comment),
        ("comment_post_ID", &*id),
        ("comment_parent", "0"),
    ];
    Client::new(base)
        .post("/wp-comments-post.php", &fields)
        .shows("waiting");
    author
        .get("/wp-admin/edit-comments.php?comment_status=moderated")
        .shows(&format!("{engine}&#8221; \\ waiting"));

    // Objects that the boot has made with other permalinks are made again.
    let permalinks = |structure: &str, categories: &str| {
        database.run(&format!(
            "UPDATE wordpress.wp_options SET option_value = '{structure}'
             WHERE option_name = 'permalink_structure';
             UPDATE wordpress.wp_options SET option_value = '{categories}'
             WHERE option_name = 'category_base';
             DELETE FROM wordpress.wp_options WHERE option_name = 'rewrite_rules'"
        ));
    };
    permalinks("/then/%postname%/", "about");
    same(&reader, "/").shows("/then/alpen/");
    same(&reader, "/then/alpen/").shows("Elephants.");
    same(&reader, "/wp-json/wp/v2/categories").shows("about");
    permalinks("/%postname%/", "");
    same(&reader, "/").lacks("/then/");

    let log = surus.log();
    for line in log.lines() {
        assert!(
            !line.contains("PHP Warning") && !line.contains("replaced instead"),
            "{line}"
        );
    }
}

#[test]
fn wordpress_is_installed_published_to_and_read() {
    let database = database();
    let site = site(&database, "", "");
    let surus = site.serve(&[]);
    let author = Client::new(&surus.url);

    // With an empty database every client gets the installer.
    let installer = author.get("/").ok();
    assert!(
        installer.url.ends_with("/wp-admin/install.php"),
        "{}",
        installer.url
    );
    author
        .post(
            "/wp-admin/install.php?step=2",
            &[
                ("weblog_title", "The Alps & Beyond"),
                ("user_name", "hannibal"),
                ("admin_password", "elephants-218"),
                ("admin_password2", "elephants-218"),
                ("pw_weak", "1"),
                ("admin_email", "hannibal@example.org"),
                ("blog_public", "0"),
                ("language", ""),
                ("Submit", "Install WordPress"),
            ],
        )
        .shows("WordPress has been installed");

    let login = |password| {
        let to = format!("{}/wp-admin/", surus.url);
        let fields = [
            ("log", "hannibal"),
            ("pwd", password),
            ("wp-submit", "Log In"),
            ("redirect_to", &*to),
            ("testcookie", "1"),
        ];
        author.get("/wp-login.php").shows("user_login");
        author.post("/wp-login.php", &fields)
    };
    login("rome")
        .shows("The password you entered for the username")
        .lacks("wpadminbar");
    let dashboard = login("elephants-218")
        .shows("wpadminbar")
        .shows("Dashboard");
    assert!(dashboard.url.ends_with("/wp-admin/"), "{}", dashboard.url);
    // A directory's URL without its slash works too.
    author.get("/wp-admin").shows("wpadminbar");
    // Styles and scripts that PHP concatenates.
    let styles = dashboard.find(r#"href='[^']*(/wp-admin/load-styles\.php\?[^']*)'"#);
    assert!(
        author
            .get(&styles)
            .shows("#wpadminbar")
            .header("content-type")
            .starts_with("text/css")
    );
    let scripts = dashboard.find(r#"src='[^']*(/wp-admin/load-scripts\.php\?[^']*)'"#);
    assert!(
        author
            .get(&scripts)
            .shows("jQuery")
            .header("content-type")
            .starts_with("application/javascript")
    );

    // URLs such as /2026/11/name/ are not files: the front controller answers them.
    let options = author.get("/wp-admin/options-permalink.php").ok();
    let structure = "/%year%/%monthnum%/%postname%/";
    let fields = [
        ("_wpnonce", &*options.input("_wpnonce")),
        ("_wp_http_referer", "/wp-admin/options-permalink.php"),
        ("selection", structure),
        ("permalink_structure", structure),
        ("category_base", ""),
        ("tag_base", ""),
        ("submit", "Save Changes"),
    ];
    author
        .post("/wp-admin/options-permalink.php", &fields)
        .shows("Permalink structure updated");

    let nonce = author
        .get("/wp-admin/admin-ajax.php?action=rest-nonce")
        .ok()
        .text();
    let image = author.post_as(
        "/wp-json/wp/v2/media",
        &[
            ("x-wp-nonce", &nonce),
            ("content-type", "image/png"),
            ("content-disposition", "attachment; filename=\"surus.png\""),
        ],
        PNG.to_vec(),
    );
    let image = image.status(201).json();
    assert_eq!(
        (&image["media_details"]["width"], &image["mime_type"]),
        (&json!(640), &json!("image/png"))
    );
    // GD has made smaller images.
    let thumbnail = image["media_details"]["sizes"]["thumbnail"]["source_url"]
        .as_str()
        .unwrap();
    assert!(author.get(thumbnail).ok().body.starts_with(b"\x89PNG"));
    let source = image["source_url"].as_str().unwrap();
    let sent_back = author.get(source).ok();
    assert_eq!(sent_back.header("content-type"), "image/png");
    assert!(
        sent_back.body == PNG,
        "the image came back with {} bytes instead of {}",
        sent_back.body.len(),
        PNG.len()
    );

    // The same through the classic form, which browsers use without REST.
    let form = author
        .get("/wp-admin/media-new.php?browser-uploader=1")
        .ok();
    let fields = [
        ("_wpnonce", &*form.input("_wpnonce")),
        ("post_id", "0"),
        ("html-upload", "Upload"),
    ];
    let upload = Upload {
        field: "async-upload",
        name: "second.png",
        mime: "image/png",
        bytes: PNG,
    };
    author
        .upload("/wp-admin/media-new.php", &fields, &upload)
        .ok();
    let second = author.get("/wp-json/wp/v2/media?search=second").ok().json()[0]["source_url"]
        .as_str()
        .unwrap()
        .to_string();
    assert!(author.get(&second).ok().body == PNG);

    let post = json!({
        "title": "Über die Alpen",
        "slug": "ueber-die-alpen",
        "status": "publish",
        "content": format!(
            "<p>Thirty-seven elephants &amp; one <em>Surus</em>. 🐘</p>\
             <img src=\"{source}\" alt=\"Surus\">"
        ),
    });
    let json = [
        ("x-wp-nonce", &*nonce),
        ("content-type", "application/json"),
    ];
    let post = author
        .post_as("/wp-json/wp/v2/posts", &json, post.to_string().into_bytes())
        .status(201)
        .json();
    let link = post["link"].as_str().unwrap();
    assert!(link.ends_with("/ueber-die-alpen/"), "{link}");
    author
        .post_as("/wp-json/wp/v2/posts", &json[1..], b"{}".to_vec())
        .status(401)
        .says("rest_cannot_create");

    let reader = Client::new(&surus.url);
    reader
        .get("/")
        .shows("The Alps &amp; Beyond")
        .shows("Über die Alpen")
        .shows("Hello world!")
        .lacks("wpadminbar");
    let page = reader
        .get(link)
        .shows("one <em>Surus</em>. 🐘")
        .lacks("Hello world!");
    assert_eq!(page.url, link);
    // An old URL redirects to the new one.
    assert_eq!(reader.get(&format!("/?p={}", post["id"])).ok().url, link);
    assert_eq!(reader.get(link.trim_end_matches('/')).ok().url, link);
    let feed = reader.get("/feed/").shows("<title>Über die Alpen</title>");
    assert!(
        feed.header("content-type")
            .starts_with("application/rss+xml")
    );
    reader.get("/?s=elephants").shows("Über die Alpen");
    reader
        .get("/no/such/page/")
        .status(404)
        .says("Nothing found here.");
    reader.get("/wp-json/").shows("The Alps &amp; Beyond");

    // A reader comments; the author sees the comment in moderation.
    let fields = [
        ("author", "Hasdrubal"),
        ("email", "hasdrubal@example.org"),
        ("comment", "Wait for me!"),
        ("comment_post_ID", &*post["id"].to_string()),
        ("comment_parent", "0"),
    ];
    reader
        .post("/wp-comments-post.php", &fields)
        .shows("Wait for me!");
    author
        .get("/wp-admin/edit-comments.php?comment_status=moderated")
        .shows("Wait for me!");

    let browser = Browser::open();
    browser.go(&format!("{}/wp-login.php", surus.url));
    browser.fill("#user_login", "hannibal");
    browser.fill("#user_pass", "elephants-218");
    browser.click("#wp-submit");
    browser.sees("#wpbody h1", "Dashboard");
    browser.screenshot("wordpress-admin");
    browser.click("#menu-posts > a");
    browser.sees("#the-list", "Über die Alpen");
    browser.go(&surus.url);
    // Both posts may be of the same second.
    browser.click(&format!("article h2 a[href='{link}']"));
    browser.sees("article", "Thirty-seven elephants");
    browser.screenshot("wordpress");
}
