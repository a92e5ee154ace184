<?php

namespace Surus\Laravel;

use Illuminate\Foundation\Application;

/** Distinguishes an application's classes from those of its libraries. */
final class Source
{
    /** @var array<string, string> */
    private static array $real = [];

    /** Whether the class is in the project and not below its vendor/. */
    public static function isApplication(Application $app, \ReflectionClass $class): bool
    {
        $file = (string) $class->getFileName();
        // PHP names files by their real paths, and a deployment may be a link to its release.
        $base = $app->basePath();
        $project = rtrim(self::$real[$base] ??= realpath($base) ?: $base, '/').'/';

        return str_starts_with($file, $project) && !str_starts_with($file, $project.'vendor/');
    }
}
