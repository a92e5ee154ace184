<?php

/*
 * The handler of `surus work` for Laravel's jobs. Composer may have linked this library into
 * vendor/, so Surus names the project.
 */

$project = (string) getenv('SURUS_PROJECT');

require_once $project.'/vendor/autoload.php';

Surus\Laravel\InConsole::begin();

return new Surus\Laravel\Jobs(require $project.'/bootstrap/app.php');
