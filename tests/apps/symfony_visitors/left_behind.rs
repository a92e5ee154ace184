//! Tests of state that requests of Symfony leave behind on `worker`: it is named.

use super::super::client::Client;
use super::{serve, site};

/// Symfony cannot reset a service without reset().
#[test]
fn symfony_service_that_keeps_a_request_is_named_once_on_worker() {
    let site = site("symfony7");
    let surus = serve(&site, "worker", "1", "");
    let visitor = Client::new(&surus.url);
    for n in 1..=4 {
        assert_eq!(visitor.get(&format!("/keeps?q={n}")).ok().json(), "1");
    }
    surus.wait_for_log(|log| log.contains("surus: "));
    visitor.get("/page").ok();
    let log = surus.log();
    let named: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("surus: "))
        .collect();
    assert_eq!(named.len(), 1, "{log}");
    assert!(
        named[0].replace(r"\\", r"\").contains(
            r"App\Service\Keeper->request keeps the Symfony\Component\HttpFoundation\Request"
        ),
        "{}",
        named[0]
    );
}

/// A static variable holds the request, and another one an array with it.
#[test]
fn each_static_variable_of_symfony_that_keeps_a_request_is_named_on_worker() {
    let site = site("symfony7").replace(
        "src/Service/Keeper.php",
        "return (string) ($this->request ??= $request)",
        "static $first, $all = [];
        $all['first'] ??= [$request];

        return (string) ($first ??= $request)",
    );
    let surus = serve(&site, "worker", "1", "");
    let visitor = Client::new(&surus.url);
    for n in 1..=3 {
        assert_eq!(visitor.get(&format!("/keeps?q={n}")).ok().json(), "1");
    }
    for variable in ["first", "all"] {
        let named = format!(
            r"App\Service\Keeper::first() (static variable ${variable}) keeps the Symfony\Component"
        );
        surus.wait_for_log(|log| log.replace(r"\\", r"\").contains(&named));
    }
    let log = surus.log();
    assert_eq!(log.matches("surus: ").count(), 2, "{log}");
}
