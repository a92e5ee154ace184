<?php

namespace Surus\Laravel;

use Illuminate\Foundation\Application;

/** Tells the classes of an application from those of its libraries. */
final class Source
{
    /** Is the class in the project, and not below its vendor/? */
    public static function isApplication(Application $app, \ReflectionClass $class): bool
    {
        $file = (string) $class->getFileName();
        $project = rtrim($app->basePath(), '/').'/';

        return str_starts_with($file, $project) && !str_starts_with($file, $project.'vendor/');
    }
}
