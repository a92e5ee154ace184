//! Tests `examples/slim`: routes, JSON, a session.

use super::client::Client;
use super::examples::{on_every_engine, speaks_json};
use super::site::{Site, example, installed};
use crate::common::Surus;

#[test]
fn slim_application_runs_on_every_engine() {
    installed("/usr/share/php/Slim/autoload.php", "php-slim");
    let site = ["app.php", "composer.json", "public", "worker.php"]
        .iter()
        .fold(Site::new(), |site, part| {
            site.copy(&example("slim").join(part), part)
        })
        .vendor();
    on_every_engine(&site, visit, &[]);
}

fn visit(surus: &Surus) {
    let visitor = Client::new(&surus.url);
    speaks_json(&visitor);
    visitor.get("/").shows("Hello, Hannibal!");
    // More requests than workers, so that state kept by one would show.
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
