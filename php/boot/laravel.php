<?php

/*
 * Boots a Laravel application by its front controller, up to where that captures the request.
 */

require Surus\Boot\PACKAGES.'/autoload.php';

if (is_file(Surus\Boot\PROJECT.'/storage/framework/maintenance.php')) {
    // The front controller would answer the boot with the maintenance page.
    defined('LARAVEL_START') || define('LARAVEL_START', microtime(true));
    Surus\Boot\Failure::reportOf(static function (): void {
        Surus\Laravel\Runner::serve(require Surus\Boot\PROJECT.'/bootstrap/app.php');
    });
    exit;
}

Surus\Boot\RequestCapture::then(static function (): void {
    Surus\Laravel\Runner::serve(Illuminate\Foundation\Application::getInstance());
});

require $_SERVER['SCRIPT_FILENAME'];
