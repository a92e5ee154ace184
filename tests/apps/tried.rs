//! Throwaway: the real packages, by hand.
use std::path::Path;

use super::client::Client;
use super::examples::symfony;
use super::site::{BOOTING, Site, framework};
use super::visitors::{same, talk};
use super::{laravel_visitors, symfony_visitors};
use crate::common::Surus;

const TRY: &str = "/tmp/w30a-try";

fn octane_site() -> Site {
    let provider = "        Illuminate\\Auth\\AuthServiceProvider::class,";
    let site = laravel_visitors::unmodified("laravel10")
        .copy(&Path::new(TRY).join("octane"), "vendor/laravel/octane")
        .copy(&Path::new(TRY).join("octane/src/Commands/stubs/frankenphp-worker.php"), "public/frankenphp-worker.php")
        .copy(&Path::new(TRY).join("octane/config/octane.php"), "config/octane.php");
    let load = "
spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Laravel\\\\Octane\\\\')) {
        $file = __DIR__.'/laravel/octane/src/'.strtr(substr($class, 15), '\\\\', '/').'.php';
        is_file($file) && require $file;
    }
});
";
    let autoload = site.www().join("vendor/autoload.php");
    let text = std::fs::read_to_string(&autoload).unwrap() + load;
    std::fs::write(&autoload, text).unwrap();
    site.replace(
        "config/app.php",
        provider,
        &format!("{provider}\n        Laravel\\Octane\\OctaneServiceProvider::class,"),
    )
}

#[test]
fn octane_worker_script() {
    let site = octane_site();
    let steps = laravel_visitors::CONVERSATION;
    let token = laravel_visitors::TOKEN;
    let terminated = || {
        let _ = std::fs::remove_file(site.www().join("storage/terminated"));
    };
    terminated();
    let classic = talk(&site.serve_with(&["--engine", "classic"], &[]), steps, token);
    let script = site.www().join("public/frankenphp-worker.php");
    let base = site.www();
    for (engine, warmup) in [("", ""), ("rewind", "/page,/api/json"), ("fork", ""), ("standby", ""), ("worker", "")] {
        terminated();
        let mut args = vec!["--script", script.to_str().unwrap(), "--workers", "1"];
        if !engine.is_empty() {
            args.extend(["--engine", engine]);
        }
        let env = [
            ("SURUS_ENV_APP_BASE_PATH", base.to_str().unwrap()),
            ("SURUS_ENV_MAX_REQUESTS", "1000000"),
            ("SURUS_ENGINE_WARMUP", warmup),
        ];
        let surus = site.serve_with(&args, &env);
        let got = talk(&surus, steps, token);
        let mut differ = 0;
        for (a, b) in classic.iter().zip(&got) {
            if a != b {
                differ += 1;
                eprintln!("--- {engine} {warmup}\n{a}\n+++\n{b}");
            }
        }
        eprintln!("RESULT octane script on {engine:?} {warmup:?}: {differ} of {} differ; {} lines of the log", classic.len(), surus.log().lines().count());
        eprintln!("{}", surus.log());
    }
}

#[test]
fn octane_with_the_boot_script() {
    let site = octane_site();
    let steps = laravel_visitors::CONVERSATION;
    let token = laravel_visitors::TOKEN;
    let terminated = || {
        let _ = std::fs::remove_file(site.www().join("storage/terminated"));
    };
    terminated();
    let classic = talk(&site.serve_with(&["--engine", "classic"], &[]), steps, token);
    for engine in BOOTING {
        terminated();
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
        let got = talk(&surus, steps, token);
        let differ = classic.iter().zip(&got).filter(|(a, b)| a != b).count();
        for (a, b) in classic.iter().zip(&got).filter(|(a, b)| a != b) {
            eprintln!("--- {engine}\n{a}\n+++\n{b}");
        }
        eprintln!("RESULT octane provider, boot script on {engine}: {differ} of {} differ", classic.len());
        eprintln!("{}", surus.log());
    }
}

fn runtime_site(site: Site) -> Site {
    let load = r#""Runtime\\FrankenPhpSymfony\\": "frankenphp/""#;
    site.copy(&Path::new(TRY).join("frankenphp-symfony/src"), "frankenphp")
        .replace("composer.json", r#""App\\": "src/""#, &format!(r#""App\\": "src/", {load}"#))
}

#[test]
fn frankenphp_symfony() {
    const CLASS: &str = r"Runtime\FrankenPhpSymfony\Runtime";
    for (name, libraries) in [("symfony5", None), ("symfony6", Some("symfony6")), ("symfony7", Some("symfony7"))] {
        let site = runtime_site(symfony_visitors::unmodified(libraries.unwrap_or("symfony5")));
        let site = match libraries {
            None => site.vendor(),
            Some(libraries) => site.vendor_from(&framework(libraries)),
        };
        let env = [("SURUS_ENV_APP_ENV", "prod"), ("SURUS_ENV_APP_DEBUG", "0"), ("SURUS_ENV_APP_RUNTIME", CLASS)];
        let steps = symfony_visitors::CONVERSATION;
        let token = symfony_visitors::TOKEN;
        let classic = talk(&site.serve_with(&["--engine", "classic"], &env), steps, token);
        for engine in ["", "rewind", "fork", "standby", "worker"] {
            let mut args = vec!["--workers", "1"];
            if !engine.is_empty() {
                args.extend(["--engine", engine]);
            }
            let surus = site.serve_with(&args, &env);
            let got = talk(&surus, steps, token);
            let differ = classic.iter().zip(&got).filter(|(a, b)| a != b).count();
            for (a, b) in classic.iter().zip(&got).filter(|(a, b)| a != b).take(2) {
                eprintln!("--- {name} {engine}\n{a}\n+++\n{b}");
            }
            eprintln!("RESULT frankenphp-symfony {name} on {engine:?}: {differ} of {} differ", classic.len());
            for line in surus.log().lines().filter(|l| l.contains("engine=") || l.contains("WARN") || l.contains("ERROR")) { eprintln!("{line}"); }
        }
    }
    let _ = symfony;
}

fn slim_answers(surus: &Surus) -> Vec<String> {
    let visitor = Client::new(&surus.url);
    let mut all = Vec::new();
    let mut add = |what: &str, a: super::client::Answer| {
        let mut h: Vec<_> = a.headers.iter().filter(|(n, _)| !["date", "set-cookie", "expires", "content-length", "transfer-encoding"].contains(&n.as_str())).map(|(n, v)| format!("{n}: {v:?}")).collect();
        h.sort();
        all.push(format!("{what}: {} {} {h:?} {}", a.status, a.url, a.text()).replace(&surus.url, "").replace(&surus.address, ""));
    };
    for round in 0..3 {
        for path in ["/", "/hello/J%C3%BCrgen?a[]=1&b=2", "/no/such", "/visits", "/throws", "/big", "/users", "/users/2", "/users/99", "/users/x"] {
            add(&format!("{round} {path}"), visitor.get(path));
        }
        add("post", visitor.post("/echo", &[("a", "b & c"), ("d[]", "e")]));
        add("json", visitor.post_as("/echo", &[("content-type", "application/json")], br#"{"x":[1]}"#.to_vec()));
        let file = super::client::Upload { field: "f", name: "a.txt", mime: "text/plain", bytes: b"hello file" };
        add("file", visitor.upload("/echo", &[("n", "1")], &file));
        add("405", visitor.post("/hello/x", &[]));
        add("head", visitor.send_as("HEAD", "/hello/x", &[], Vec::new()));
        add("options", visitor.send_as("OPTIONS", "/users", &[], Vec::new()));
    }
    add("stranger", Client::new(&surus.url).get("/visits"));
    all
}

#[test]
fn slim() {
    for name in ["slim", "skeleton"] {
        let site = Site::new().copy(&Path::new(TRY).join(name), ".").directory("logs");
        let classic = slim_answers(&site.serve_with(&["--engine", "classic"], &[]));
        for line in classic.iter().take(16) { eprintln!("{}", &line[..line.len().min(300)]); }
        for engine in BOOTING {
            let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
            let got = slim_answers(&surus);
            let differ = classic.iter().zip(&got).filter(|(a, b)| a != b).count();
            for (a, b) in classic.iter().zip(&got).filter(|(a, b)| a != b).take(2) {
                eprintln!("--- {name} {engine}\n{}\n+++\n{}", &a[..a.len().min(600)], &b[..b.len().min(600)]);
            }
            eprintln!("RESULT {name} on {engine}: {differ} of {} differ", classic.len());
            for line in surus.log().lines().filter(|l| l.contains("script=") || l.contains("WARN") || l.contains("ERROR")).take(8) { eprintln!("{line}"); }
        }
    }
    let _ = same;
}
