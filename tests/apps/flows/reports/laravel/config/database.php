<?php

return [
    'default' => 'main',
    'connections' => ['main' => [
        'driver' => env('DB_DRIVER'),
        'database' => env('DB_DATABASE'),
        'unix_socket' => env('DB_SOCKET'),
        'username' => env('DB_USERNAME'),
        'password' => env('DB_PASSWORD'),
        'charset' => 'utf8mb4',
        'collation' => 'utf8mb4_unicode_ci',
        'prefix' => '',
    ]],
    'migrations' => 'migrations',
];
