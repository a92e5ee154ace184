<?php

$routes = ['GET' => ['/' => fn (): array => ['message' => 'Hello World!']]];

$server = new Swoole\Http\Server('127.0.0.1', (int) $argv[1], SWOOLE_BASE);
$server->set(['worker_num' => 1, 'log_level' => SWOOLE_LOG_ERROR, 'user' => 'www-data', 'group' => 'www-data']);
$server->on('request', static function ($request, $response) use ($routes): void {
    $handler = $routes[$request->server['request_method']][$request->server['request_uri']] ?? null;
    if (null === $handler) {
        $response->status(404);
        $response->end();

        return;
    }
    $response->header('Content-Type', 'application/json');
    $response->end(json_encode($handler(), JSON_THROW_ON_ERROR));
});
$server->start();
