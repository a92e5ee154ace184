//! Tests that `classic` serves Symfony applications whose boot would decide for all requests, or
//! after whose requests nothing would be reset.

use super::super::client::Client;
use super::super::site::{BOOTING, Site, framework};
use super::{unmodified, without_libraries};

const PROD: &[(&str, &str)] = &[("SURUS_ENV_APP_ENV", "prod"), ("SURUS_ENV_APP_DEBUG", "0")];

/// A site is served by `classic`, with the reason, and these two requests get these answers.
#[track_caller]
fn is_served_by_classic(site: &Site, engines: &[&str], because: &str, answers: [(&str, &str); 2]) {
    for &engine in engines {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], PROD);
        surus.wait_for_log(|log| log.contains("cannot be booted"));
        assert!(surus.log().contains(because), "{engine}: {}", surus.log());
        for (path, says) in answers {
            Client::new(&surus.url).get(path).shows(says);
        }
    }
}

const PLAIN: &str = "<?php

use Symfony\\Component\\HttpFoundation\\Request;
use Symfony\\Component\\HttpFoundation\\Response;
use Symfony\\Component\\HttpKernel\\HttpKernelInterface;

require dirname(__DIR__).'/vendor/autoload.php';

$kernel = new class implements HttpKernelInterface {
    private int $handled = 0;

    public function handle(Request $request, int $type = 1, bool $catch = true): Response
    {
        return new Response('number '.++$this->handled);
    }
};
$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
";

#[test]
fn symfony_kernel_that_cannot_be_reset_is_served_by_classic_instead_of_worker() {
    let site = without_libraries()
        .write("public/index.php", PLAIN)
        .vendor_from(&framework("symfony7"));
    let answers = [("/", "number 1"), ("/", "number 1")];
    let because = "so nothing would reset it between requests";
    is_served_by_classic(&site, &["worker"], because, answers);
    for engine in ["rewind", "fork", "standby"] {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], PROD);
        surus.wait_for_log(|log| log.contains("warm-up: none, because the kernel"));
        for (path, says) in answers {
            Client::new(&surus.url).get(path).shows(says);
        }
        assert!(!surus.log().contains("cannot be booted"), "{}", surus.log());
    }
}

#[test]
fn symfony_runtime_closure_that_asks_for_the_request_is_served_by_classic() {
    for (argument, is_other) in [
        (
            "\\Symfony\\Component\\HttpFoundation\\Request $request",
            "$request->query->has('other')",
        ),
        ("array $request", "isset($request['query']['other'])"),
    ] {
        let front = format!(
            "<?php

require_once dirname(__DIR__).'/vendor/autoload_runtime.php';

return static function (array $context, {argument}) {{
    if ({is_other}) {{
        return new \\Symfony\\Component\\HttpFoundation\\Response('another application');
    }}

    return new \\App\\Kernel($context['APP_ENV'], (bool) $context['APP_DEBUG']);
}};
"
        );
        let site = unmodified("symfony7").write("public/index.php", &front);
        let answers = [
            ("/json?other", "another application"),
            ("/json?q=a", "\"a\""),
        ];
        let because = "would call it once for all requests";
        is_served_by_classic(&site, &BOOTING, because, answers);
    }
}

/// The text of the front controller shows it.
#[test]
fn symfony_runtime_closure_that_looks_at_the_host_is_served_by_classic() {
    let front = "<?php

require_once dirname(__DIR__).'/vendor/autoload_runtime.php';

return static fn (array $context) => 'b.test' === $context['HTTP_HOST']
    ? new \\Symfony\\Component\\HttpFoundation\\Response('another application')
    : new \\App\\Kernel($context['APP_ENV'], (bool) $context['APP_DEBUG']);
";
    let site = unmodified("symfony7").write("public/index.php", front);
    let because = "uses `$context['HTTP_HOST']` before";
    let answers = [("/json?q=a", "\"a\""), ("/json?q=b", "\"b\"")];
    is_served_by_classic(&site, &BOOTING, because, answers);
}
