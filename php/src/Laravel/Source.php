<?php

namespace Surus\Laravel;

use Illuminate\Foundation\Application;

/** Distinguishes an application's code from that of its libraries. */
final class Source
{
    /** @var array<string, string> */
    private static array $real = [];

    /** Whether the class is in the project and not below its vendor/. */
    public static function isApplication(Application $app, \ReflectionClass $class): bool
    {
        return self::hasFile($app, (string) $class->getFileName());
    }

    /** Whether the file is in the project and not below its vendor/. */
    public static function hasFile(Application $app, string $file): bool
    {
        $project = self::project($app);

        return str_starts_with($file, $project) && !str_starts_with($file, $project.'vendor/');
    }

    /** The file's path below the project, or the whole path of a file elsewhere. */
    public static function short(Application $app, string $file): string
    {
        $project = self::project($app);

        return str_starts_with($file, $project) ? substr($file, \strlen($project)) : $file;
    }

    /** The directory with a slash at its end. */
    private static function project(Application $app): string
    {
        // PHP names files by their real paths, and a deployment may be a link to its release.
        $base = $app->basePath();

        return rtrim(self::$real[$base] ??= realpath($base) ?: $base, '/').'/';
    }
}
