//! Tests that real applications respond behind a function URL as behind `surus serve`.

use regex::Regex;
use surus::emulator::http::HttpService;

use super::behind::Behind;
use crate::apps::client::{Answer, Client, Upload};
use crate::apps::examples::{laravel, symfony};
use crate::apps::site::Site;
use crate::common::Surus;

/// Visits both servers and panics at the first difference.
fn compare(site: &Site, env: &[(&str, &str)], visit: impl Fn(&Client) -> Vec<Answer>) {
    compare_between(site, env, visit, || {}, "");
}

/// The same, with an action between the two visits. `random` matches further random values.
pub fn compare_between(
    site: &Site,
    env: &[(&str, &str)],
    visit: impl Fn(&Client) -> Vec<Answer>,
    between: impl FnOnce(),
    random: &str,
) {
    let random = Regex::new(&format!("(?x) {RANDOM} {random}")).unwrap();
    let [sessions, temporary] = site.stored();
    let value = |entry: &str| entry.split_once('=').unwrap().1.to_string();
    let (sessions, temporary) = (value(&sessions), value(&temporary));
    let stored = [
        ("SURUS_PHP_SESSION__SAVE_PATH", sessions.as_str()),
        ("SURUS_PHP_SYS_TEMP_DIR", temporary.as_str()),
    ];
    let env = [&stored, env].concat();
    let serve = Surus::spawn(&site.www(), &[], &env)
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    let function = Behind::start(&site.www(), &env);
    let url = format!("http://{}", function.service(HttpService::Url));
    let served = visit(&Client::new(&serve.url));
    between();
    let answered = visit(&Client::new(&url));
    assert_eq!(served.len(), answered.len());
    for (served, answered) in served.iter().zip(&answered) {
        let theirs = seen(served, &serve.url, &random);
        let ours = seen(answered, &url, &random);
        // Only the first difference, since pages are long.
        if let Some((theirs, ours)) = theirs.iter().zip(&ours).find(|(a, b)| a != b) {
            panic!("{}\n serve: {theirs}\nlambda: {ours}", answered.url);
        }
        assert_eq!(theirs.len(), ours.len(), "{}", answered.url);
    }
}

const RANDOM: &str =
    r#"expires=[^;]+ | Max-Age=\d+ | =[A-Za-z0-9%+/,_.-]{20,} | value="[A-Za-z0-9_.-]{20,}""#;

/// A response line by line, without values that differ each time: dates, session keys, form tokens,
/// the address.
fn seen(answer: &Answer, url: &str, random: &Regex) -> Vec<String> {
    // Dates, and headers of the connection.
    let own = [
        "date",
        "expires",
        "x-amzn-requestid",
        "content-length",
        "transfer-encoding",
    ];
    let address = url.trim_start_matches("http://");
    let mask = |text: &str| {
        let coded = address.replace(':', "%3A");
        let text = text
            .replace(address, "<address>")
            .replace(&coded, "<address>");
        random.replace_all(&text, "<random>").into_owned()
    };
    let mut lines = vec![format!("{} {}", answer.status, mask(&answer.url))];
    let mut headers = Vec::new();
    let names = answer.headers.keys();
    for name in names.filter(|name| !own.contains(&name.as_str())) {
        let values = answer.headers.get_all(name).iter();
        let values = values.map(|value| mask(&String::from_utf8_lossy(value.as_bytes())));
        match name.as_str() {
            "set-cookie" => headers.extend(values.map(|value| format!("{name}: {value}"))),
            // A function URL has one line per name, which means the same.
            _ => headers.push(format!("{name}: {}", values.collect::<Vec<_>>().join(", "))),
        }
    }
    headers.sort();
    lines.extend(headers);
    lines.extend(mask(&answer.text()).lines().map(str::to_string));
    lines
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

fn visit_symfony(visitor: &Client) -> Vec<Answer> {
    let signed = [
        ("entry[name]", "Hanno"),
        ("entry[message]", "<b>Ave</b>\nRoma"),
        ("entry[send]", ""),
    ];
    let refused = [
        ("entry[name]", "H"),
        ("entry[message]", ""),
        ("entry[send]", ""),
    ];
    let echo = br#"{"deep":{"er":[1,2,"\u00fc"]}}"#.to_vec();
    vec![
        visitor.get("/").shows("carried by an elephant"),
        visitor.get("/api/hello").ok(),
        visitor
            .get("/hello/J%C3%BCrgen%20%26%20Co")
            .shows("Jürgen &amp; Co"),
        visitor.get("/style.css").shows("--clay"),
        visitor
            .get_as("/style.css", &[("range", "bytes=3-9")])
            .status(206),
        visitor.get("/no/such/page").status(404),
        visitor.post("/api/hello", &[]).status(405),
        visitor
            .post_as("/api/echo?a[]=1&a[]=2", &JSON, echo)
            .shows(r#"["1","2"]"#),
        visitor.get("/api/rows/5000").ok(),
        visitor.get("/visits").shows("Your first visit"),
        visitor.get("/visits").shows("Visit number 2"),
        visitor.post("/guestbook", &refused).status(422),
        // Redirected, with a message from the session.
        visitor
            .post("/guestbook", &signed)
            .shows("Thank you, Hanno."),
        visitor
            .get("/guestbook")
            .shows("Roma")
            .lacks("Thank you, Hanno."),
    ]
}

/// Handles an upload next to Symfony's front controller.
const UPLOAD: &str = r#"<?php
$file = $_FILES['picture'];
$moved = sys_get_temp_dir().'/moved';
$is_moved = move_uploaded_file($file['tmp_name'], $moved);
header('Content-Type: application/octet-stream');
$about = [$file['name'], $file['type'], $file['size'], $file['error'], $is_moved];
header('X-Upload: '.json_encode([$_POST, ...$about]));
readfile($moved);
"#;

#[test]
fn symfony_responds_as_behind_serve() {
    let site = symfony().write("public/upload.php", UPLOAD);
    let cache = site.tmp().join("cache");
    let cache = ("SURUS_ENV_APP_CACHE_DIR", cache.to_str().unwrap());
    let picture: Vec<u8> = (0..100_000u32)
        .map(|n| (n.wrapping_mul(n) >> 3) as u8)
        .collect();
    compare(&site, &[cache], |visitor| {
        let file = Upload {
            field: "picture",
            name: "Mont Cenis.png",
            mime: "image/png",
            bytes: &picture,
        };
        let uploaded = visitor
            .upload("/upload.php", &[("title", "ü & b")], &file)
            .ok();
        assert_eq!(uploaded.body, picture);
        let said = uploaded.header("x-upload").to_string();
        assert!(
            said.ends_with(r#""Mont Cenis.png","image\/png",100000,0,true]"#),
            "{said}"
        );
        let mut seen = visit_symfony(visitor);
        seen.push(uploaded);
        seen
    });
}

#[test]
fn booted_symfony_responds_as_behind_serve() {
    let site = symfony();
    let cache = site.tmp().join("cache");
    let env = [
        ("SURUS_ENV_APP_CACHE_DIR", cache.to_str().unwrap()),
        ("SURUS_ENV_APP_RUNTIME", r"Surus\Symfony\Runtime"),
    ];
    compare(&site, &env, visit_symfony);
}

fn visit_laravel(visitor: &Client) -> Vec<Answer> {
    let mut seen = vec![
        visitor.get("/api/hello").ok(),
        // A redirect.
        visitor.get("/").shows("<h1>Hello, Hannibal!</h1>"),
        visitor.get("/hello/a%20%26%20b").shows("a &amp; b"),
        visitor
            .post_as("/api/echo?a=1", &JSON, br#"{"deep":[1]}"#.to_vec())
            .ok(),
        visitor.get("/no/such/page").status(404),
        visitor.post("/api/hello", &[]).status(405),
        visitor.get("/visits").shows("Your first visit"),
        visitor.get("/visits").shows("Visit number 2<"),
        visitor.post("/visits", &[("name", "Gisgo")]).status(419),
    ];
    let token = visitor.get("/visits").ok().input("_token");
    seen.push(
        visitor
            .post("/visits", &[("_token", &token), ("name", "Gisgo & Söhne")])
            .shows(", Gisgo &amp; Söhne</h1>"),
    );
    seen
}

#[test]
fn laravel_responds_as_behind_serve() {
    compare(&laravel(), &[], visit_laravel);
}

/// Surus boots the application with a boot script that waits for `Request::create()`. Where the
/// handler of events boots it, the script must not run.
#[test]
fn handler_that_boots_laravel_itself_gets_events() {
    let handler = r#"<?php
$app = require __DIR__.'/bootstrap/app.php';
// As Laravel's console kernel does.
$app->instance('request', Illuminate\Http\Request::create('http://localhost'));
$app->make(Illuminate\Contracts\Http\Kernel::class)->bootstrap();
return fn (array $event): string => config('app.name').' '.$event['id'];
"#;
    let site = laravel().write("handler.php", handler);
    let [sessions, temporary] = site.stored();
    let value = |entry: &str| entry.split_once('=').unwrap().1.to_string();
    let (sessions, temporary) = (value(&sessions), value(&temporary));
    let events = concat!(env!("CARGO_MANIFEST_DIR"), "/php/lambda/events.php");
    for engine in ["worker", "rewind"] {
        let env = [
            ("SURUS_PHP_SESSION__SAVE_PATH", sessions.as_str()),
            ("SURUS_PHP_SYS_TEMP_DIR", temporary.as_str()),
            ("SURUS_ENGINE_NAME", engine),
            ("SURUS_LAMBDA_HANDLER", "handler.php"),
            ("SURUS_LAMBDA_SCRIPT", events),
        ];
        let function = Behind::start(&site.www(), &env);
        let answer = function.invoke(r#"{"id": "e-1"}"#);
        assert_eq!(answer, "Surus e-1", "{engine}: {}", function.log());
    }
}
