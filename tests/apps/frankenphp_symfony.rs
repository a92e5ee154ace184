//! Tests Symfony's example with a stand-in for the package runtime/frankenphp-symfony.

use super::client::Client;
use super::examples::symfony;
use super::site::{BOOTING, Site, fixture};
use super::symfony::{engine, serve, visit};

const CLASS: &str = r"Runtime\FrankenPhpSymfony\Runtime";

/// The example with the package, and `extra` in composer.json.
fn site(extra: &str) -> Site {
    let load = r#""Runtime\\FrankenPhpSymfony\\": "frankenphp/""#;
    symfony()
        .copy(&fixture("frankenphp_symfony"), "frankenphp")
        .replace(
            "composer.json",
            r#""App\\": "src/""#,
            &format!(r#""App\\": "src/", {load}"#),
        )
        .replace(
            "composer.json",
            r#""debian": ["#,
            &format!(r#"{extra}"debian": ["#),
        )
        .vendor()
}

/// The number of the turn of the loop that has handled a request.
fn handled(client: &Client) -> Option<String> {
    let answer = client.get("/api/hello").ok();
    let count = answer.headers.get("x-handled")?;
    Some(count.to_str().unwrap().to_string())
}

fn serves_in_the_loop(site: &Site, env: &[(&str, &str)]) {
    assert_eq!(engine(&serve(site, &[], env)), "rewind");
    for engine in BOOTING {
        let surus = serve(site, &["--engine", engine, "--workers", "1"], env);
        visit(&surus);
        let client = Client::new(&surus.url);
        let before: u64 = handled(&client).unwrap().parse().unwrap();
        let expected = if engine == "worker" { before + 1 } else { 1 };
        assert_eq!(
            handled(&client).unwrap(),
            expected.to_string(),
            "{engine}: {}",
            surus.log()
        );
    }
    let surus = serve(site, &["--engine", "classic"], env);
    visit(&surus);
    assert_eq!(handled(&Client::new(&surus.url)), None);
}

#[test]
fn runtime_named_by_the_variable_serves_in_its_loop() {
    serves_in_the_loop(&site(""), &[("SURUS_ENV_APP_RUNTIME", CLASS)]);
}

#[test]
fn runtime_named_in_composer_json_serves_in_its_loop() {
    let class = CLASS.replace('\\', r"\\");
    let extra = format!(r#""runtime": {{ "class": "{class}" }}, "#);
    serves_in_the_loop(&site(&extra), &[]);
}

#[test]
fn loop_that_ends_at_its_maximum_is_restarted() {
    let class = CLASS.replace('\\', r"\\");
    let extra = format!(r#""runtime": {{ "class": "{class}", "frankenphp_loop_max": 2 }}, "#);
    let site = site(&extra);
    let surus = serve(&site, &["--engine", "worker", "--workers", "1"], &[]);
    let client = Client::new(&surus.url);
    for _ in 0..5 {
        let count = handled(&client).unwrap();
        assert!(["1", "2"].contains(&&*count), "{count}: {}", surus.log());
    }
    surus.wait_for_log(|log| log.contains("reason=\"script_returned\""));
}

/// The package's class of Surus, by the same way.
#[test]
fn surus_runtime_in_composer_json_boots() {
    let extra = r#""runtime": { "class": "Surus\\Symfony\\Runtime" }, "#;
    let site = site(extra);
    let surus = serve(&site, &[], &[]);
    assert_eq!(engine(&surus), "rewind");
    visit(&surus);
}
