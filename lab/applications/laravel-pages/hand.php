<?php

/*
 * A boot written by hand: the same application handles all requests, warm-ups too. Every visitor
 * finds what a warm-up leaves in it. It shows how fast a warm boot can be, and is no advice.
 */

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;

require __DIR__.'/vendor/autoload.php';

$app = require __DIR__.'/bootstrap/app.php';
$app->instance('request', Request::create('/'));
$kernel = $app->make(Kernel::class);
$kernel->bootstrap();

surus_serve(static function () use ($app, $kernel): void {
    $request = Request::capture();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
    // Workers cannot share a connection of the boot.
    isset($_SERVER['SURUS_WARMUP']) && $app['db']->purge();
});
