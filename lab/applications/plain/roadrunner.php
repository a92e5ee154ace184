<?php
// The same pages in a worker of RoadRunner.

require __DIR__.'/frames.php';

$pages = ['/hello.php' => 'application/json', '/html.php' => 'text/html; charset=utf-8'];

$worker = new Surus\Tests\RoadRunner\Worker();
while ($request = $worker->next()) {
    $page = parse_url($request['uri'], PHP_URL_PATH) ?: '/';
    if (!isset($pages[$page])) {
        $worker->respond(404, '');
        continue;
    }
    ob_start();
    require __DIR__."/public$page";
    $worker->respond(200, ob_get_clean(), ['Content-Type' => [$pages[$page]]]);
}
