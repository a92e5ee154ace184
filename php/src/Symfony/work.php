<?php

/*
 * The handler of `surus work` for Messenger's messages. Composer may have linked this library into
 * vendor/, so Surus names the project.
 */

$project = (string) getenv('SURUS_PROJECT');

require_once $project.'/vendor/autoload.php';

return Surus\Symfony\Messages::of($project);
