<?php

use Slim\Http\Environment;
use Slim\Http\Request;

$app = require __DIR__.'/app.php';
$container = $app->getContainer();

// Not $app->run(), which takes the request from the container: a container that lives on, as on
// `worker`, gives the same one again.
surus_serve(static function () use ($app, $container): void {
    $request = Request::createFromEnvironment(new Environment($_SERVER));
    $app->respond($app->process($request, $container->raw('response')($container)));
});
