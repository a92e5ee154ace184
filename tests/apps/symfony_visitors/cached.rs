//! Tests Symfony's HTTP cache: a stored public page is served to another visitor, and a private
//! page is not.

use super::super::client::Client;
use super::super::site::{BOOTING, Site, framework};
use super::{WITHOUT_RUNTIME, without_libraries};

/// Two pages that return the header `X-Visitor` of their request.
const PAGES: &str = r"<?php

namespace App\Controller;

use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

final class Pages
{
    public function everyone(Request $request): Response
    {
        return $this->one($request)->setPublic();
    }

    public function one(Request $request): Response
    {
        $response = new JsonResponse($request->headers->get('x-visitor'));

        return $response->setPrivate()->setMaxAge(3600);
    }
}
";

const ROUTES: &str = r"<?php

use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

return static function (RoutingConfigurator $routes): void {
    foreach (['everyone', 'one'] as $page) {
        $routes->add($page, '/'.$page)->controller(['App\Controller\Pages', $page]);
    }
};
";

/// The variable of the kernel comes after that of the cache.
const CACHE: &str = r"<?php

use App\Kernel;
use Symfony\Bundle\FrameworkBundle\HttpCache\HttpCache;
use Symfony\Component\HttpFoundation\Request;

require dirname(__DIR__).'/vendor/autoload.php';

$cache = new HttpCache($kernel = new Kernel($_SERVER['APP_ENV'], (bool) $_SERVER['APP_DEBUG']));
$request = Request::createFromGlobals();
$response = $cache->handle($request);
$response->send();
$cache->terminate($request, $response);
";

fn pages() -> Site {
    without_libraries()
        .write("src/Controller/Pages.php", PAGES)
        .write("config/routes.php", ROUTES)
}

#[track_caller]
fn shares_public_pages_only(site: &Site, script: &str) {
    let env = [("SURUS_ENV_APP_ENV", "prod"), ("SURUS_ENV_APP_DEBUG", "0")];
    for engine in ["classic"].into_iter().chain(BOOTING) {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &env);
        if engine != "classic" {
            surus.wait_for_log(|log| log.contains(&format!("script=\"surus://boot/{script}\"")));
        }
        // Pages of other engines are in the cache, too.
        for (page, all) in [("everyone", ["a", "a", "a"]), ("one", ["a", "b", "a"])] {
            for (visitor, expected) in ["a", "b", "a"].into_iter().zip(all) {
                let path = format!("/{page}?on={engine}");
                let answer = Client::new(&surus.url).get_as(&path, &[("x-visitor", visitor)]);
                let seen = answer.ok().json();
                assert_eq!(seen, expected, "{engine}: {page} for {visitor}");
            }
        }
    }
}

#[test]
fn symfony_cache_in_front_of_the_kernel_shares_public_pages_only() {
    let site = pages()
        .write("public/index.php", CACHE)
        .vendor_from(&framework("symfony5"));
    shares_public_pages_only(&site, "symfony.php");
}

#[test]
fn symfony_cache_of_the_framework_shares_public_pages_only() {
    let setting = "'http_cache' => true, 'csrf_protection' => true,";
    let cached = || pages().replace("src/Kernel.php", "'csrf_protection' => true,", setting);
    let site = cached().vendor_from(&framework("symfony7"));
    shares_public_pages_only(&site, "symfony-runtime.php");
    let site = cached()
        .write("public/index.php", WITHOUT_RUNTIME)
        .vendor_from(&framework("symfony5"));
    shares_public_pages_only(&site, "symfony.php");
}
