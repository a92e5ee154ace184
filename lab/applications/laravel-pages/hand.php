<?php

/*
 * A boot written by hand: the application that serves has handled each page before. Every visitor
 * finds what these requests have left in it. It shows how fast a warm boot can be, and is no advice.
 */

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;

require __DIR__.'/vendor/autoload.php';

$app = require __DIR__.'/bootstrap/app.php';
$app->instance('request', Request::create('/'));
$kernel = $app->make(Kernel::class);
$kernel->bootstrap();

foreach (['/list', '/page', '/api/json'] as $path) {
    $request = Request::create($path);
    $kernel->terminate($request, $kernel->handle($request));
}
// Workers cannot share a connection of the boot.
$app['db']->purge();

surus_serve(static function () use ($kernel): void {
    $request = Request::capture();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
});
