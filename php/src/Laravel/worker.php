<?php

/*
 * The boot script for APP_RUNTIME=Surus\Laravel\Runtime, next to the standard public/index.php.
 *
 * Composer may have linked this library into vendor/, so this file's path does not tell the
 * project's.
 */

$project = dirname($_SERVER['DOCUMENT_ROOT']);

require $project.'/vendor/autoload.php';

Surus\Laravel\Runner::serve(require $project.'/bootstrap/app.php');
