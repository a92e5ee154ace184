<?php

use Slim\App;
use Slim\Http\Request;
use Slim\Http\Response;

require __DIR__.'/vendor/autoload.php';

// Slim binds handlers to its container, so they are not static.
$app = new App(['settings' => ['displayErrorDetails' => false]]);

$app->get(
    '/',
    fn (Request $request, Response $response) => $response->withRedirect('/hello/Hannibal')
);
$app->get('/hello/{name}', fn (
    Request $request,
    Response $response,
    array $args
) => $response->write(
    '<!doctype html><title>Slim</title><h1>Hello, '.htmlspecialchars($args['name']).'!</h1>',
));
$app->get(
    '/api/hello',
    fn (Request $request, Response $response) => $response->withJson(['hello' => 'world'])
);
$app->post('/api/echo', fn (Request $request, Response $response) => $response->withJson([
    'method' => $request->getMethod(),
    'query' => $request->getQueryParams(),
    'body' => $request->getParsedBody(),
]));
$app->map(['GET', 'POST'], '/visits', function (Request $request, Response $response): Response {
    session_start();
    $_SESSION['name'] = $request->getParsedBodyParam('name', $_SESSION['name'] ?? 'stranger');
    $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;

    return $response->write(
        "<!doctype html><title>Slim</title><h1>Visit number $_SESSION[visits], "
            .htmlspecialchars($_SESSION['name'])
            .'</h1>'
    );
});

return $app;
