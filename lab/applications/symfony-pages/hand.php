<?php

/*
 * A boot written by hand: the same application handles all requests, warm-ups too. Every visitor
 * finds what a warm-up leaves in it. It shows how fast a warm boot can be, and is no advice.
 */

use App\Kernel;
use Symfony\Component\HttpFoundation\Request;

require __DIR__.'/vendor/autoload.php';

$kernel = new Kernel('prod', false);
$kernel->boot();

surus_serve(static function () use ($kernel): void {
    $request = Request::createFromGlobals();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
});
