<?php

// Written with the project; `composer install` replaces it.
spl_autoload_register(static function (string $class): void {
    foreach ([
        'App\\' => __DIR__.'/../src/',
        'Surus\\' => __DIR__.'/../packages/surus/src/'
    ] as $prefix => $directory) {
        $file = $directory.strtr(substr($class, strlen($prefix)), '\\', '/').'.php';
        if (str_starts_with($class, $prefix) && is_file($file)) {
            require $file;
        }
    }
});
