//! Tests `Surus\Psr15` of the Composer package. Debian packages the messages of PSR-7 but not the
//! interface of PSR-15, so the test declares it.

use std::path::Path;

use super::client::Client;
use super::site::{BOOTING, Site, installed};

const SCRIPT: &str = r#"<?php
namespace Psr\Http\Server {
    use Psr\Http\Message\{ResponseInterface, ServerRequestInterface};
    interface RequestHandlerInterface {
        public function handle(ServerRequestInterface $request): ResponseInterface;
    }
}
namespace {
    use Psr\Http\Message\{ResponseInterface, ServerRequestInterface};
    use Slim\Psr7\Factory\ServerRequestFactory;
    require '/usr/share/php/Slim/Psr7/autoload.php';
    spl_autoload_register(function ($class) {
        if (str_starts_with($class, 'Surus\\')) {
            require __DIR__.'/library/'.strtr(substr($class, 6), '\\', '/').'.php';
        }
    });
    final class Handler implements Psr\Http\Server\RequestHandlerInterface {
        public function handle(ServerRequestInterface $request): ResponseInterface {
            $response = (new Slim\Psr7\Factory\ResponseFactory())->createResponse(201)
                ->withHeader('Content-Type', 'text/plain')
                ->withAddedHeader('Set-Cookie', 'a=1')->withAddedHeader('Set-Cookie', 'b=2');
            $response->getBody()->write(implode(' ', [
                $request->getMethod(),
                $request->getUri()->getPath(),
                json_encode($request->getQueryParams()),
                $request->getBody(),
            ]));
            return $response;
        }
    }
    Surus\Psr15::serve(new Handler(), ServerRequestFactory::createFromGlobals(...));
}
"#;

#[test]
fn psr_15_handler_is_served() {
    installed("/usr/share/php/Slim/Psr7/autoload.php", "php-slim-psr7");
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("php/src");
    let site = Site::new()
        .copy(&library, "library")
        .write("index.php", SCRIPT);
    for engine in BOOTING {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
        let client = Client::new(&surus.url);
        for number in 0..3 {
            let plain = [("content-type", "text/plain")];
            let path = format!("/some/path?n={number}");
            let answer = client.post_as(&path, &plain, b"body".to_vec()).status(201);
            assert_eq!(
                answer.text(),
                format!(r#"POST /some/path {{"n":"{number}"}} body"#)
            );
            assert!(answer.header("content-type").starts_with("text/plain"));
            let cookies: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
            assert_eq!(cookies, ["a=1", "b=2"]);
        }
    }
}
