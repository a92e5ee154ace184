//! Tests boots of Symfony where php.ini disables functions.

use super::super::client::Client;
use super::unmodified;

/// A static variable of the first request, which warm-ups must not be.
#[test]
fn symfony_boot_is_restored_if_a_disabled_function_prevents_services_created_ahead() {
    let json = "return new JsonResponse([$request->query->get('q'), ";
    let keeps = "static $first;\n        $first ??= $request->query->get('q');\n        \
                 return new JsonResponse([$first, ";
    let site = unmodified("symfony7").replace("src/Controller/Visitor.php", json, keeps);
    let env = [
        ("SURUS_ENV_APP_ENV", "prod"),
        ("SURUS_ENV_APP_DEBUG", "0"),
        ("SURUS_ENGINE_WARMUP", "/json?q=warm"),
    ];
    for function in ["readlink", "ini_get_all"] {
        let disabled = format!("disable_functions={function}");
        for engine in ["rewind", "fork", "standby"] {
            let args = ["--engine", engine, "--workers", "1", "-d", &disabled];
            let surus = site.serve_with(&args, &env);
            for q in ["ada", "bob"] {
                let seen = Client::new(&surus.url).get(&format!("/json?q={q}")).ok();
                assert_eq!(seen.json()[0], q, "{engine} without {function}");
            }
            let why =
                format!("no service is created ahead, because disable_functions has {function}");
            surus.wait_for_log(|log| log.contains(&why));
            let log = surus.log();
            for sign in ["Call to undefined function", "cannot be booted"] {
                assert!(!log.contains(sign), "{engine} without {function}: {log}");
            }
        }
    }
}
