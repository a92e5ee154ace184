<?php

namespace Surus\Laravel;

use Illuminate\Foundation\Application;

/** Distinguishes an application's classes from those of its libraries. */
final class Source
{
    /** Whether the class is in the project and not below its vendor/. */
    public static function isApplication(Application $app, \ReflectionClass $class): bool
    {
        $file = (string) $class->getFileName();
        $project = rtrim($app->basePath(), '/').'/';

        return str_starts_with($file, $project) && !str_starts_with($file, $project.'vendor/');
    }
}
