//! Tests MediaWiki, which has no boot script: `classic` serves it, whatever engine is asked for.

use std::fs;
use std::process::Command;

use super::browser::Browser;
use super::client::{Client, Upload};
use super::one_word::warnings;
use super::site::{Site, extension, framework};
use crate::common::php::cli;

const PNG: &[u8] = include_bytes!("elephant.png");
const PASSWORD: &str = "over-the-alps-218";

/// What the installer does not ask. Debian has another directory for the cache.
const SETTINGS: &str = r#"
$wgServer = 'http://' . ($_SERVER['HTTP_HOST'] ?? 'localhost');
$wgCacheDirectory = __DIR__ . '/cache';
$wgEnableUploads = true;
$wgGroupPermissions['*']['edit'] = false;
wfLoadExtension('Cite');
wfLoadExtension('ParserFunctions');
"#;

/// MediaWiki as upstream installs it, with a database in SQLite and two of its extensions.
fn site() -> Site {
    for name in ["intl", "mbstring", "sqlite3", "xml"] {
        extension(name, &format!("php-{name}"));
    }
    let root = framework("mediawiki1").with_file_name("mediawiki");
    let apart = [
        "LocalSettings.php",
        "config",
        "extensions",
        "extensions-core",
        "images",
    ];
    let mut site = Site::new().directory("images").directory("cache");
    for entry in fs::read_dir(&root).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !apart.contains(&&*name) {
            site = site.copy(&root.join(&name), &name);
        }
    }
    for name in ["Cite", "ParserFunctions"] {
        let from = root.join("extensions-core").join(name);
        site = site.copy(&from, &format!("extensions/{name}"));
    }
    install(&site);
    let settings = fs::read_to_string(site.www().join("LocalSettings.php")).unwrap();
    site.write("LocalSettings.php", &(settings + SETTINGS))
}

fn install(site: &Site) {
    let data = site.tmp().join("data");
    fs::create_dir(&data).unwrap();
    let mut command = Command::new(cli());
    command
        .current_dir(site.www())
        .args(["maintenance/run.php", "install", "--dbtype", "sqlite"])
        .args(["--scriptpath", "", "--pass", PASSWORD, "--dbpath"])
        .arg(&data)
        .args(["War Elephants", "Hannibal"]);
    let output = command.output().unwrap();
    assert!(
        output.status.success() && site.www().join("LocalSettings.php").exists(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn log_in(visitor: &Client) {
    let path = "/index.php?title=Special:UserLogin";
    let fields = |password: &str| {
        let token = visitor.get(path).ok().input("wpLoginToken");
        [
            ("wpName", "Hannibal"),
            ("wpPassword", password),
            ("wploginattempt", "Log in"),
            ("wpLoginToken", &token),
            ("title", "Special:UserLogin"),
            ("authAction", "login"),
        ]
        .map(|(name, value)| (name, value.to_string()))
    };
    let post = |password: &str| {
        let fields = fields(password);
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (*name, &**value))
            .collect();
        visitor.post(path, &fields)
    };
    post("rome").shows("Incorrect username or password");
    post(PASSWORD).shows(r#""wgUserName":"Hannibal""#);
}

/// The form of the editor has hidden fields, all of which come back.
fn edit(visitor: &Client, title: &str, text: &str) {
    let path = format!("/index.php?title={title}&action=edit");
    let editor = visitor.get(&path).shows(r#"id="wpTextbox1""#);
    let names = [
        "wpUnicodeCheck",
        "wpStarttime",
        "wpEdittime",
        "editRevId",
        "wpAutoSummary",
        "oldid",
        "parentRevId",
        "format",
        "model",
        "wpEditToken",
        "wpUltimateParam",
    ];
    let hidden = names.map(|name| editor.input(name));
    let mut fields: Vec<_> = names
        .into_iter()
        .zip(hidden.iter().map(|value| &**value))
        .collect();
    fields.extend([
        ("wpTextbox1", text),
        ("wpSummary", "first"),
        ("wpSave", "Save changes"),
    ]);
    let path = format!("/index.php?title={title}&action=submit");
    visitor.post(&path, &fields).shows("<b>one tusk</b>");
}

#[test]
fn mediawiki_is_edited_and_shown() {
    let site = site();
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "2"], &[]);
    surus.wait_for_log(|log| log.contains(r#"PHP is ready engine="rewind" instead="classic""#));
    let log = surus.log();
    assert_eq!(warnings(&log).len(), 1, "{log}");
    let visitor = Client::new(&surus.url);
    let stranger = Client::new(&surus.url);

    stranger.get("/").shows("MediaWiki has been installed.");
    let refused = stranger.get("/index.php?title=Surus&action=edit");
    refused.shows("Login required");
    stranger
        .get("/index.php/Surus")
        .status(404)
        .says("There is currently no text in this page");

    log_in(&visitor);
    let text = "He had '''one tusk''' & crossed the Alps<ref>Polybius</ref>: größer als Rom. \
                {{#if: x | [[Main Page|home]] }}";
    edit(&visitor, "Surus", text);
    stranger
        .get("/index.php/Surus")
        .shows("größer als Rom.")
        .shows(r#"<span class="reference-text">Polybius</span>"#)
        .shows(r#"title="Main Page">home</a>"#)
        .lacks("Hannibal\"");
    let source = stranger.get("/index.php?title=Surus&action=raw").ok();
    assert_eq!(source.text(), text);
    assert_eq!(source.header("content-type"), "text/x-wiki; charset=UTF-8");
    stranger
        .get("/index.php?title=Surus&action=history")
        .shows("first");
    stranger
        .get("/index.php?title=Special:Search&search=tusk&fulltext=1")
        .shows("Surus");
    stranger
        .get("/index.php/Special:RecentChanges")
        .shows("Surus");
    stranger
        .get("/index.php?title=Special:RecentChanges&feed=atom")
        .shows("<feed");

    apis(&visitor, &stranger);
    styles(&stranger);
    upload(&visitor, &stranger);
    for closed in [
        "/includes/Setup.php",
        "/maintenance/update.php",
        "/vendor/autoload.php",
    ] {
        stranger.get(closed).status(403);
    }
    assert_eq!(stranger.get("/LocalSettings.php").ok().text(), "");

    let browser = Browser::open();
    browser.go(&format!("{}/index.php/Surus", surus.url));
    browser.sees("h1", "Surus");
    browser.sees("#mw-content-text b", "one tusk");
    browser.screenshot("mediawiki");
    assert_eq!(browser.errors(), [""; 0]);
}

fn apis(visitor: &Client, stranger: &Client) {
    let query = "/api.php?action=query&format=json&formatversion=2";
    let token = visitor.get(&format!("{query}&meta=tokens")).ok().json();
    let token = token["query"]["tokens"]["csrftoken"].as_str().unwrap();
    let path = "/api.php?action=edit&format=json";
    let fields = [("title", "Alps"), ("text", "Snow."), ("token", token)];
    let edited = visitor.post(path, &fields).ok().json();
    assert_eq!(edited["edit"]["result"], "Success", "{edited}");
    let stale = stranger.post(path, &fields).ok().json();
    assert_eq!(stale["error"]["code"], "badtoken", "{stale}");
    let page = stranger.get("/rest.php/v1/page/Alps").ok();
    assert_eq!(page.json()["source"], "Snow.");
    let tag = page.header("etag").to_string();
    stranger
        .get_as("/rest.php/v1/page/Alps", &[("if-none-match", &tag)])
        .status(304);
    let missing = stranger.get("/rest.php/v1/page/None").status(404).json();
    assert_eq!(missing["errorKey"], "rest-nonexistent-title", "{missing}");
}

fn styles(stranger: &Client) {
    let path = "/load.php?lang=en&modules=skins.vector.styles&only=styles&skin=vector-2022";
    // MediaWiki knows the version of a module, and so its tag, once it has made it.
    stranger.get(path).shows(".vector-header");
    let styles = stranger.get(path).ok();
    assert_eq!(styles.header("content-type"), "text/css; charset=utf-8");
    let tag = styles.header("etag").to_string();
    stranger
        .get_as(path, &[("if-none-match", &tag)])
        .status(304);
}

fn upload(visitor: &Client, stranger: &Client) {
    let form = visitor
        .get("/index.php/Special:Upload")
        .shows("wpUploadFile");
    let token = form.input("wpEditToken");
    let fields = [
        ("wpDestFile", "Surus.png"),
        ("wpUploadDescription", "An elephant"),
        ("wpEditToken", &token),
        ("title", "Special:Upload"),
        ("wpIgnoreWarning", "true"),
        ("wpUpload", "Upload file"),
    ];
    let file = Upload {
        field: "wpUploadFile",
        name: "surus.png",
        mime: "image/png",
        bytes: PNG,
    };
    visitor
        .upload("/index.php/Special:Upload", &fields, &file)
        .shows("An elephant");
    let page = stranger.get("/index.php/File:Surus.png").ok();
    let image = stranger
        .get(&page.find(r#"href="(/images/[^"]*/Surus\.png)""#))
        .ok();
    assert_eq!(image.header("content-type"), "image/png");
    assert!(
        image.body == PNG,
        "the image came back with {} bytes",
        image.body.len()
    );
}
