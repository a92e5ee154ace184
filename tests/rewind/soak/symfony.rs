//! Symfony's example: JSON, Twig, errors, streams and a session with a counter.

use super::{Body, Client, Question, soak};
use crate::apps::examples::symfony;

#[test]
#[ignore = "long; SOAK_REQUESTS says how long"]
fn symfony_keeps_visitors_apart() {
    let site = symfony();
    let script = site.www().join("worker.php");
    let cache = site.tmp().join("cache");
    let env = [
        ("SURUS_ENV_APP_CACHE_DIR", cache.to_str().unwrap()),
        ("SURUS_ACCESS_LOG_FORMAT", "off"),
        ("SURUS_COMPRESS_ENABLED", "false"),
    ];
    let args = ["--workers", "2", "--script", script.to_str().unwrap()];
    let surus = site.serve_with(&args, &env);
    soak(&surus, || {
        let mut visits = 0;
        move |client: &mut Client| ask(client, &mut visits)
    });
}

fn ask(client: &mut Client, visits: &mut u64) -> Question {
    let n = client.below(1_000_000);
    match client.below(100) {
        0..40 => Question::get("/api/hello", 200, Body::Is(r#"{"hello":"world"}"#.into())),
        40..65 => {
            let body = Body::Has(format!("<h1>Hello, No {n} &amp; Co!</h1>"));
            Question::get(&format!("/hello/No%20{n}%20%26%20Co"), 200, body)
        }
        65..80 => {
            let sent = format!(r#"{{"n":[{n}]}}"#);
            let body = format!(r#"{{"method":"POST","query":{{"q":"{n}"}},"body":{sent}}}"#);
            let head = "Content-Type: application/json\r\n";
            Question::of(
                "POST",
                &format!("/api/echo?q={n}"),
                head,
                &sent,
                200,
                Body::Is(body),
            )
        }
        80..88 => {
            *visits += 1;
            let body = match *visits {
                1 => "Your first visit".to_string(),
                more => format!("Visit number {more}<"),
            };
            let head = (client.cookie.as_ref())
                .map_or(String::new(), |cookie| format!("Cookie: {cookie}\r\n"));
            Question::of("GET", "/visits", &head, "", 200, Body::Has(body))
        }
        88..92 => {
            let rows: String = (1..=n % 50 + 1)
                .map(|row| format!("{{\"row\":{row}}}\n"))
                .collect();
            Question::get(&format!("/api/rows/{}", n % 50 + 1), 200, Body::Is(rows))
        }
        92..95 => Question::get("/guestbook", 200, Body::Has("<form".into())),
        95..98 => {
            let body = Body::Has("The elephant went another way.".into());
            Question::get(&format!("/no/such/page/{n}"), 404, body)
        }
        _ => Question::of("POST", "/api/hello", "", "", 405, Body::Has(String::new())),
    }
}
