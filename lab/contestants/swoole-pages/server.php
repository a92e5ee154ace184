<?php

[, $port, $workers, $root] = $argv;
$pages = ['/hello.php' => 'application/json', '/html.php' => 'text/html; charset=utf-8'];

$server = new Swoole\Http\Server('127.0.0.1', (int) $port);
$server->set(['worker_num' => (int) $workers, 'log_level' => SWOOLE_LOG_ERROR, 'user' => 'www-data', 'group' => 'www-data']);
$server->on('request', static function ($request, $response) use ($pages, $root): void {
    $page = $request->server['request_uri'];
    if (!isset($pages[$page])) {
        $response->status(404);
        $response->end();

        return;
    }
    ob_start();
    require $root.$page;
    $response->header('Content-Type', $pages[$page]);
    $response->end(ob_get_clean());
});
$server->start();
