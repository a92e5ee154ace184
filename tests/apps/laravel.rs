//! The application in `examples/laravel`: JSON, Blade, validation, a session.

use super::client::Client;
use super::examples::{laravel, on_every_engine, speaks_json};
use crate::common::Surus;

#[test]
fn a_laravel_application_runs_on_every_engine() {
    let site = laravel();
    on_every_engine(&site, visit);
}

fn visit(surus: &Surus) {
    let visitor = Client::new(&surus.url);
    speaks_json(&visitor);
    let page = visitor.get("/").shows("<h1>Hello, Hannibal!</h1>");
    assert_eq!(page.url, format!("{}/hello/Hannibal", surus.url));
    visitor.get("/hello/a%20%26%20b").shows("a &amp; b");

    visitor.get("/visits").shows("Your first visit");
    // More often than there are workers: what one remembers would show.
    for number in 2..=6 {
        visitor
            .get("/visits")
            .shows(&format!("Visit number {number}<"));
    }
    visitor.post("/visits", &[("name", "Gisgo")]).status(419);
    let token = visitor.get("/visits").ok().input("_token");
    visitor
        .post("/visits", &[("_token", &token), ("name", "G")])
        .ok();
    visitor
        .post("/visits", &[("_token", &token), ("name", "Gisgo & Söhne")])
        .shows(", Gisgo &amp; Söhne</h1>");
    for _ in 0..5 {
        let stranger = Client::new(&surus.url);
        stranger
            .get("/visits")
            .shows("Your first visit</h1>")
            .lacks("Gisgo");
        assert_ne!(stranger.get("/visits").ok().input("_token"), token);
    }
}
