//! Tests that each request of Symfony trusts the proxy that it comes from, if `REMOTE_ADDR` is
//! among the trusted proxies.

use super::super::client::Client;
use super::super::site::{BOOTING, Site, framework};
use super::{WITHOUT_RUNTIME, unmodified, without_libraries};

const TRUSTED: &str = "192.0.2.1,REMOTE_ADDR";

/// The scheme of a forwarded request, of one that is not, and of a forwarded one again.
fn schemes(site: &Site, engine: &str, script: &str) -> Vec<String> {
    let env = [
        ("SURUS_ENV_APP_ENV", "prod"),
        ("SURUS_ENV_APP_DEBUG", "0"),
        ("SURUS_ENV_TRUSTED_PROXIES", TRUSTED),
    ];
    let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &env);
    if engine != "classic" {
        surus.wait_for_log(|log| log.contains(&format!("script=\"surus://boot/{script}\"")));
    }
    let scheme = |headers: &[(&str, &str)]| {
        let visitor = Client::new(&surus.url);
        let who = visitor.get_as("/who?q=a", headers).ok().json();
        let url = who["urls"][0].as_str().unwrap();
        url.split_once(':').unwrap().0.to_string()
    };
    let forwarded = [("x-forwarded-proto", "https")];
    vec![scheme(&forwarded), scheme(&[]), scheme(&forwarded)]
}

#[track_caller]
fn are_trusted_on_every_engine(site: &Site, script: &str) {
    for engine in ["classic"].into_iter().chain(BOOTING) {
        let schemes = schemes(site, engine, script);
        assert_eq!(schemes, ["https", "http", "https"], "{engine}");
    }
}

#[test]
fn symfony_proxy_that_the_kernel_trusts_by_its_address_is_that_of_each_request() {
    let setting = format!("'trusted_proxies' => '{TRUSTED}', 'csrf_protection' => true,");
    for libraries in ["symfony6", "symfony7"] {
        let site = without_libraries()
            .replace("src/Kernel.php", "'csrf_protection' => true,", &setting)
            .vendor_from(&framework(libraries));
        are_trusted_on_every_engine(&site, "symfony-runtime.php");
    }
}

/// As those of Symfony 4 and 5.0 do.
#[test]
fn symfony_proxy_that_a_front_controller_trusts_by_its_address_is_that_of_each_request() {
    let trusts = "if ($proxies = $_SERVER['TRUSTED_PROXIES'] ?? false) {
    Request::setTrustedProxies(explode(',', $proxies), Request::HEADER_X_FORWARDED_PROTO);
}
$kernel =";
    let front = WITHOUT_RUNTIME.replace("$kernel =", trusts);
    let site = unmodified("symfony5").write("public/index.php", &front);
    are_trusted_on_every_engine(&site, "symfony.php");

    let closure = "<?php

use App\\Kernel;
use Symfony\\Component\\HttpFoundation\\Request;

require_once dirname(__DIR__).'/vendor/autoload_runtime.php';

return static function (array $context): Kernel {
    $proxies = explode(',', $context['TRUSTED_PROXIES']);
    Request::setTrustedProxies($proxies, Request::HEADER_X_FORWARDED_PROTO);

    return new Kernel($context['APP_ENV'], (bool) $context['APP_DEBUG']);
};
";
    let site = unmodified("symfony6").write("public/index.php", closure);
    are_trusted_on_every_engine(&site, "symfony-runtime.php");
}
