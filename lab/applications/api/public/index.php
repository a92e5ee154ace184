<?php

require_once __DIR__.'/../vendor/autoload.php';

$app = new Surus\Api\App();
$app->get('/', fn () => ['message' => 'Hello World!']);
$app->run();
