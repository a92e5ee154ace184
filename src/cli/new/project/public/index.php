<?php

// Every request that names no other file of this directory comes here.

declare(strict_types=1);

require_once __DIR__.'/../src/app.php';

$path = rawurldecode(parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) ?: '/');
[$status, $body] = App\answer($_SERVER['REQUEST_METHOD'], $path, $_GET);

http_response_code($status);
header('Content-Type: text/html; charset=utf-8');
echo $body;
