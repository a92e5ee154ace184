<?php

/*
 * The script to boot if APP_RUNTIME is Surus\Laravel\Runtime: it boots the project's application,
 * next to its standard
 * public/index.php. Composer may have linked this library into vendor/, so this file's path does
 * not tell the project's.
 */

$project = dirname($_SERVER['DOCUMENT_ROOT']);

require $project.'/vendor/autoload.php';

Surus\Laravel\Runner::serve(require $project.'/bootstrap/app.php');
