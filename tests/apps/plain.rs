//! Tests the demo in `examples/plain`, which uses no framework.

use std::path::Path;

use super::browser::Browser;
use super::client::{Client, Upload};
use super::site::{BOOTING, Site, example};
use crate::common::Surus;

const PNG: &[u8] = include_bytes!("elephant.png");

#[test]
fn plain_example_accepts_uploads_and_keeps_a_session() {
    let site = Site::new().copy(&example("plain"), "");
    let script = site.www().join("worker.php");
    for engine in BOOTING {
        let args = ["--engine", engine, "--script", script.to_str().unwrap()];
        visit(&site.serve_with(&args, &[]));
    }
    let surus = site.serve(&[]);
    visit(&surus);
    look(&surus, &site.tmp().join("surus.png"));
}

fn visit(surus: &Surus) {
    let visitor = Client::new(&surus.url);

    let page = visitor
        .get("/")
        .shows("This one carries PHP")
        .shows(">once</strong>");
    assert_eq!(page.header("content-type"), "text/html; charset=UTF-8");
    visitor.get("/").shows(">2 times</strong>");
    Client::new(&surus.url).get("/").shows(">once</strong>");
    visitor
        .post("/", &[("forget", "1")])
        .shows(">once</strong>");

    let json = visitor.get("/api/hello?from=a%20test").ok();
    assert_eq!(json.header("content-type"), "application/json");
    assert_eq!(
        (&json.json()["hello"], &json.json()["method"]),
        (&"world".into(), &"GET".into())
    );
    visitor
        .get("/no/such/%3Cpage%3E")
        .status(404)
        .says("There is no <code>/no/such/&lt;page&gt;</code>");
    visitor.get("/style.css").shows("font-family");

    visitor
        .post("/", &[("name", "Gisgo & Söhne")])
        .shows("Hello, Gisgo &amp; Söhne!")
        .shows("No file came with it.");
    let picture = Upload {
        field: "file",
        name: "surus.png",
        mime: "image/png",
        bytes: PNG,
    };
    visitor
        .upload("/", &[("name", "Gisgo")], &picture)
        .shows("Hello, Gisgo!")
        .shows("5,176 bytes of image/png")
        .shows(PNG_SHA256);
    // More than is kept in memory, with every byte value.
    let bytes: Vec<u8> = (0..1_500_000u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let large = Upload {
        field: "file",
        name: "large.bin",
        mime: "application/octet-stream",
        bytes: &bytes,
    };
    visitor
        .upload("/", &[], &large)
        .shows("1,500,000 bytes")
        .shows(LARGE_SHA256);
    // PHP's default limit is 2 MiB per file.
    let bytes = vec![b'x'; 3 << 20];
    let larger = Upload {
        bytes: &bytes,
        ..large
    };
    visitor
        .upload("/", &[], &larger)
        .shows("That file is larger than PHP accepts here: 2M.");
}

/// The same in a browser.
fn look(surus: &Surus, picture: &Path) {
    std::fs::write(picture, PNG).unwrap();
    let browser = Browser::open();
    browser.go(&surus.url);
    browser.sees("h1", "Surus");
    browser.click("#ask");
    browser.sees("#json", r#""hello": "world""#);
    browser.fill("#name", "Hannibal");
    browser.choose("#file", picture);
    browser.click("#send button");
    browser.sees(".answer", "Hello, Hannibal!");
    browser.sees(".answer", PNG_SHA256);
    browser.sees(".visits", "once");
    browser.screenshot("plain");
}

const PNG_SHA256: &str = "213c3f20939481360e0c1429a83819d10270b4a85d1a8e773a03e45867af2d61";
const LARGE_SHA256: &str = "f5238277ab617e0fbc0ef468da07758193dc0f000eda51153f80749520b30f96";
