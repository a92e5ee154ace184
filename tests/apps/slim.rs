//! The application in `examples/slim`: routes, JSON, a session.

use super::client::Client;
use super::site::{BOOTING, Site, example, installed};
use crate::common::Surus;

#[test]
fn a_slim_application_runs_on_every_engine() {
    installed("/usr/share/php/Slim/autoload.php", "php-slim");
    let site = ["app.php", "composer.json", "public", "worker.php"]
        .iter()
        .fold(Site::new(), |site, part| {
            site.copy(&example("slim").join(part), part)
        })
        .vendor();
    visit(&site.serve(&[]));
    let script = site.www().join("worker.php");
    for engine in BOOTING {
        let args = ["--engine", engine, "--script", script.to_str().unwrap()];
        visit(&site.serve_with(&args, &[]));
    }
}

fn visit(surus: &Surus) {
    let visitor = Client::new(&surus.url);
    let hello = visitor.get("/api/hello").ok();
    assert_eq!(hello.header("content-type"), "application/json");
    assert_eq!(hello.text(), r#"{"hello":"world"}"#);
    let echo = visitor
        .post_as(
            "/api/echo?a=1",
            &[("content-type", "application/json")],
            br#"{"deep":[1]}"#.to_vec(),
        )
        .ok();
    assert_eq!(
        echo.json(),
        serde_json::json!({ "method": "POST", "query": { "a": "1" }, "body": { "deep": [1] } })
    );
    visitor.get("/").shows("Hello, Hannibal!");
    visitor.get("/no/such/page").status(404);
    visitor.post("/api/hello", &[]).status(405);
    // More often than there are workers: what one remembers would show.
    for number in 1..=6 {
        let visits = format!("Visit number {number}, stranger");
        visitor.get("/visits").shows(&visits);
    }
    visitor
        .post("/visits", &[("name", "Gisgo")])
        .shows("number 7, Gisgo");
    Client::new(&surus.url)
        .get("/visits")
        .shows("number 1, stranger");
}
