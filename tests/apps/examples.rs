//! Sets up the repository's examples with their libraries, each in its own directory.

use serde_json::json;

use super::client::Client;
use super::site::{BOOTING, Site, example, installed};
use crate::common::Surus;

/// Serves an application with its own front controller, then with its `worker.php` on all engines
/// that boot a script. Clients without cookies must get the same responses.
pub fn on_every_engine(site: &Site, visit: impl Fn(&Surus), env: &[(&str, &str)]) {
    let surus = site.serve_with(&["--engine", "classic"], env);
    let answers = strangers(&surus);
    visit(&surus);
    drop(surus);
    let script = site.www().join("worker.php");
    for engine in BOOTING {
        let args = ["--engine", engine, "--script", script.to_str().unwrap()];
        let surus = site.serve_with(&args, env);
        // Twice, because the first visit must leave nothing behind.
        for _ in 0..2 {
            for (booted, classic) in strangers(&surus).iter().zip(&answers) {
                assert_eq!(booted, classic, "{engine}");
            }
        }
        visit(&surus);
    }
}

/// The complete responses to clients without cookies.
fn strangers(surus: &Surus) -> Vec<String> {
    let get = [
        "/",
        "/api/hello",
        "/hello/J%C3%BCrgen%20%26%20Co",
        "/hello/x?y[]=1&y[]=2",
        "/no/such/page",
        "/api/no",
        "/index.php",
        "/index.php/api/hello",
        "/style.css",
    ];
    let post = ["/api/hello", "/api/echo?a=1", "/no/such/page"];
    let visitor = Client::new(&surus.url);
    let get = get.map(|path| (path, visitor.get(path)));
    let post = post.map(|path| (path, visitor.post(path, &[("a", "b & c"), ("d[]", "e")])));
    let answers = get.into_iter().chain(post);
    answers
        .map(|(path, answer)| {
            let kept = |name: &str| {
                !["date", "content-length", "transfer-encoding", "set-cookie"].contains(&name)
            };
            let mut headers: Vec<String> = (answer.headers.iter())
                .filter(|(name, _)| kept(name.as_str()))
                .map(|(name, value)| format!("{name}: {value:?}"))
                .collect();
            headers.sort();
            let whole = format!(
                "{path} {} {}\n{headers:?}\n{}",
                answer.status,
                answer.url,
                answer.text()
            );
            whole.replace(&surus.url, "").replace(&surus.address, "")
        })
        .collect()
}

/// What the examples of small frameworks answer to API clients.
pub fn speaks_json(visitor: &Client) {
    let hello = visitor.get("/api/hello").ok();
    assert_eq!(hello.header("content-type"), "application/json");
    assert_eq!(hello.text(), r#"{"hello":"world"}"#);
    let body = br#"{"deep":[1]}"#.to_vec();
    let of_json = [("content-type", "application/json")];
    let echo = visitor.post_as("/api/echo?a=1", &of_json, body).ok();
    assert_eq!(
        echo.json(),
        json!({ "method": "POST", "query": { "a": "1" }, "body": { "deep": [1] } })
    );
    visitor.get("/no/such/page").status(404);
    visitor.post("/api/hello", &[]).status(405);
}

pub fn symfony() -> Site {
    installed(
        "/usr/share/php/Symfony/Bundle/FrameworkBundle/autoload.php",
        "php-symfony-framework-bundle",
    );
    installed(
        "/usr/share/php/Symfony/Bundle/TwigBundle/autoload.php",
        "php-symfony-twig-bundle",
    );
    installed(
        "/usr/share/php/Symfony/Component/Form/autoload.php",
        "php-symfony-form",
    );
    installed(
        "/usr/share/php/Symfony/Component/Runtime/autoload.php",
        "php-symfony-runtime",
    );
    let parts = [
        "composer.json",
        "public",
        "src",
        "surus.toml",
        "templates",
        "worker.php",
    ];
    parts
        .iter()
        .fold(Site::new(), |site, part| {
            site.copy(&example("symfony").join(part), part)
        })
        .vendor()
}

pub fn laravel() -> Site {
    laravel_without_libraries().vendor()
}

pub fn laravel_without_libraries() -> Site {
    installed(
        "/usr/share/php/Illuminate/autoload.php",
        "php-laravel-framework",
    );
    Site::laravel(&["public", "surus.toml", "worker.php"])
}
