<?php

/*
 * What is booted where APP_RUNTIME is Surus\Laravel\Runtime: the project's application, beside its standard public/index.php. Composer
 * may have linked this library into vendor/, so where this file lies says nothing.
 */

$project = dirname($_SERVER['DOCUMENT_ROOT']);

require $project.'/vendor/autoload.php';

Surus\Laravel\Runner::serve(require $project.'/bootstrap/app.php');
