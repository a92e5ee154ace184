//! Tests `examples/api`: the same answers on every engine that it serves, and failures that only
//! the log explains.

use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::site::{Site, example};
use crate::common::Surus;

#[test]
fn api_example_answers_alike_on_every_engine_but_roadrunner() {
    let site = site();
    let classic = serve(&site, "classic");
    let expected = answers(&Client::new(&classic.url));
    meets_its_contract(&Client::new(&classic.url));
    drop(classic);
    for engine in [
        "worker", "standby", "fork", "rewind", "cli", "cgi", "fpm", "builtin",
    ] {
        let surus = serve(&site, engine);
        // Twice, because the first client must leave nothing behind.
        for _ in 0..2 {
            let client = Client::new(&surus.url);
            for (booted, classic) in answers(&client).iter().zip(&expected) {
                assert_eq!(booted, classic, "{engine}");
            }
        }
    }
}

#[test]
fn api_failure_is_explained_in_the_log_and_not_to_the_client() {
    let site = site();
    for engine in ["classic", "worker", "rewind"] {
        let surus = serve(&site, engine);
        let client = Client::new(&surus.url);
        for path in ["/binary", "/broken"] {
            let answer = client.get(path).status(500);
            assert_eq!(
                answer.json(),
                json!({ "type": "about:blank", "title": "Internal Server Error", "status": 500 }),
                "{engine} {path}"
            );
        }
        let reasons = ["the value is at $.name", "this is in the log"];
        surus.wait_for_log(|log| reasons.iter().all(|reason| log.contains(reason)));
    }
}

fn site() -> Site {
    ["app.php", "composer.json", "public", "src"]
        .iter()
        .fold(Site::new(), |site, part| {
            site.copy(&example("api").join(part), part)
        })
        .vendor()
}

fn serve(site: &Site, engine: &str) -> Surus {
    let script = site.www().join("public/index.php");
    let mut args = vec!["--engine", engine, "--workers", "1"];
    if ["worker", "standby", "fork", "rewind"].contains(&engine) {
        args.extend(["--script", script.to_str().unwrap()]);
    }
    site.serve_with(&args, &[])
}

fn post(client: &Client, path: &str, body: &[u8]) -> Answer {
    let json = [("content-type", "application/json")];
    client.post_as(path, &json, body.to_vec())
}

/// What a client sees of requests of all kinds.
fn answers(client: &Client) -> Vec<String> {
    let get = [
        "/",
        "/hello/J%C3%BCrgen%2F?loud=1",
        "/hello/%FF",
        "/hello/x?loud=maybe",
        "/orders?status=shipped",
        "/orders?status=lost",
        "/orders/7",
        "/orders/07",
        "/orders/7000",
        "/echo",
        "/no/such/path",
        "/openapi.json",
        "/binary",
        "/broken",
    ];
    let deep = "[".repeat(1000);
    let order = r#"{"customer":"Gisgo","items":[{"product":"oats","price":1.5,"quantity":2}]}"#;
    let bodies: [(&str, &[u8]); 7] = [
        ("/echo", br#"{"a":[1,2.0,null],"b":{}}"#),
        ("/echo", br#"{"a":1,"a":2}"#),
        ("/echo", b"{\"a\":"),
        ("/echo", b"[\"\xff\"]"),
        ("/echo", deep.as_bytes()),
        ("/orders", order.as_bytes()),
        ("/orders", br#"{"items":[{"price":"1","quantity":0}]}"#),
    ];
    let got = get.into_iter().map(|path| (path, client.get(path)));
    let posted = bodies
        .into_iter()
        .map(|(path, body)| (path, post(client, path, body)));
    let form = [("/echo", client.post("/echo", &[("a", "b")]))];
    got.chain(posted)
        .chain(form)
        .map(|(path, answer)| {
            let headers = [
                "content-type",
                "allow",
                "location",
                "x-content-type-options",
            ];
            let headers = headers.map(|name| answer.headers.get(name));
            format!("{path} {} {headers:?}\n{}", answer.status, answer.text())
        })
        .collect()
}

fn meets_its_contract(client: &Client) {
    let hello = client.get("/").ok();
    assert_eq!(hello.header("content-type"), "application/json");
    assert_eq!(hello.text(), r#"{"message":"Hello World!"}"#);

    let order = br#"{"customer":"Gisgo","items":[{"product":"oats","price":1.5,"quantity":2}]}"#;
    let created = post(client, "/orders", order).status(201);
    assert_eq!(created.header("location"), "/orders/1");
    assert_eq!(created.json()["total"], json!(3.0));

    let refused = post(client, "/orders", br#"{"items":[1]}"#).status(422);
    assert_eq!(refused.header("content-type"), "application/problem+json");
    assert_eq!(
        refused.json()["errors"],
        json!([
            { "detail": "is missing", "pointer": "#/customer" },
            { "detail": "must be an object", "pointer": "#/items/0" },
        ])
    );

    let wrong = client.get("/echo").status(405);
    assert_eq!(wrong.header("allow"), "POST, OPTIONS");
    client.get("/orders/07").status(404);
    client.get("/hello/%FF").status(400);
    client.post("/echo", &[("a", "b")]).status(415);
    let document: Value = client.get("/openapi.json").ok().json();
    assert_eq!(document["openapi"], "3.1.0");
}
