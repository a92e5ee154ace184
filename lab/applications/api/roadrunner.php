<?php
// Spdy's shape: a router in front of handlers, in a worker of RoadRunner.

require __DIR__.'/frames.php';

$routes = ['GET' => ['/' => fn (): array => ['message' => 'Hello World!']]];

$worker = new Surus\Tests\RoadRunner\Worker();
while ($request = $worker->next()) {
    $path = parse_url($request['uri'], PHP_URL_PATH) ?: '/';
    $handler = $routes[$request['method']][$path] ?? null;
    if (null === $handler) {
        $worker->respond(404, '');
        continue;
    }
    $body = json_encode($handler($request), JSON_THROW_ON_ERROR);
    $worker->respond(200, $body, ['Content-Type' => ['application/json']]);
}
