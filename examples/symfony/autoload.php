<?php

// Composer's libraries where they are installed, Debian's otherwise.
if (is_file(__DIR__.'/vendor/autoload.php')) {
    require __DIR__.'/vendor/autoload.php';

    return;
}

foreach (['Bundle/FrameworkBundle', 'Bundle/TwigBundle', 'Bridge/Twig', 'Component/Form'] as $part) {
    $file = "/usr/share/php/Symfony/$part/autoload.php";
    if (!is_file($file)) {
        http_response_code(500);
        exit("Neither vendor/autoload.php nor $file is there: run `composer install`, or read README.md for Debian's packages.");
    }
    require_once $file;
}

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'App\\')) {
        require __DIR__.'/src/'.strtr(substr($class, 4), '\\', '/').'.php';
    }
});
