<?php

use App\ExceptionHandler;
use App\Http\Kernel;
use Illuminate\Contracts\Debug\ExceptionHandler as ExceptionHandlerContract;
use Illuminate\Contracts\Http\Kernel as KernelContract;
use Illuminate\Foundation\Application;

$app = new Application(dirname(__DIR__));
if ($storage = getenv('APP_STORAGE')) {
    $app->useStoragePath($storage);
}
foreach (['framework/views', 'framework/sessions', 'logs'] as $directory) {
    is_dir($app->storagePath()."/$directory")
        || mkdir($app->storagePath()."/$directory", 0777, true);
}
$app->singleton(KernelContract::class, Kernel::class);
$app->singleton(ExceptionHandlerContract::class, ExceptionHandler::class);

return $app;
