<?php

/*
 * The handler of `surus work --schedule`. Composer may have linked this library into vendor/, so
 * Surus names the project.
 */

$project = (string) getenv('SURUS_PROJECT');

require_once $project.'/vendor/autoload.php';

Surus\Laravel\InConsole::begin();

return new Surus\Laravel\Scheduler(require $project.'/bootstrap/app.php');
