<?php

return [
    'default' => 'main',
    'connections' => ['main' => ['driver' => 'sqlite', 'database' => storage_path('main.sqlite'), 'prefix' => '']],
    'migrations' => 'migrations',
];
