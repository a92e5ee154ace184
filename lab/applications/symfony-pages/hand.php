<?php

/*
 * A boot written by hand: the application that serves has handled each page before. Every visitor
 * finds what these requests have left in it. It shows how fast a warm boot can be, and is no advice.
 */

use App\Kernel;
use Symfony\Component\HttpFoundation\Request;

require __DIR__.'/vendor/autoload.php';

$kernel = new Kernel('prod', false);
$kernel->boot();
foreach (['/list', '/page', '/json'] as $path) {
    $request = Request::create($path);
    $kernel->terminate($request, $kernel->handle($request));
}

surus_serve(static function () use ($kernel): void {
    $request = Request::createFromGlobals();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
});
