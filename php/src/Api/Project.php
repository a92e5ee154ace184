<?php

namespace Surus\Api;

/** Creates a project from the package's skeleton, with libraries, so that it runs at once. */
final class Project
{
    /** What the project needs of the package; its tests stay out. */
    private const PACKAGE = ['bin', 'composer.json', 'lambda', 'skeleton', 'src'];

    /** @return string what to do next */
    public static function create(string $package, string $directory): string
    {
        $directory = rtrim($directory, '/') ?: '/';
        if (file_exists($directory) && (!is_dir($directory) || 2 !== \count(scandir($directory)))) {
            throw new \RuntimeException("$directory exists already and is not an empty directory");
        }
        self::copy(
            "$package/skeleton",
            $directory,
            trim(
                strtolower(preg_replace('/[^A-Za-z0-9]+/', '-', basename($directory))),
                '-'
            ) ?: 'api'
        );
        self::rename("$directory/gitignore", "$directory/.gitignore");
        self::rename("$directory/autoload.php", "$directory/vendor/autoload.php");
        foreach (self::PACKAGE as $part) {
            self::copy("$package/$part", "$directory/packages/surus/$part");
        }

        return self::next($directory);
    }

    private static function next(string $directory): string
    {
        $composer = self::hasComposer()
            ? 'packages/surus has the library. `composer require` adds others and writes vendor/ again.'
            : "Composer is not installed. The project runs without it: packages/surus has the library,\nand vendor/ an autoloader. For other packages, get Composer from https://getcomposer.org or apt-get install composer.";

        return <<<TEXT
            Created $directory. Next:

                cd $directory
                php tests/run.php
                surus serve .

            $composer

            TEXT;
    }

    private static function hasComposer(): bool
    {
        foreach (explode(\PATH_SEPARATOR, (string) getenv('PATH')) as $path) {
            if (is_executable("$path/composer")) {
                return true;
            }
        }

        return false;
    }

    private static function copy(string $from, string $to, ?string $name = null): void
    {
        if (!is_dir($from)) {
            $text = file_get_contents($from);
            if (false === $text) {
                throw new \RuntimeException("cannot read $from");
            }
            self::write($to, null === $name ? $text : str_replace('NAME', $name, $text));

            return;
        }
        foreach (array_diff(scandir($from), ['.', '..']) as $entry) {
            self::copy("$from/$entry", "$to/$entry", $name);
        }
    }

    private static function write(string $file, string $text): void
    {
        if (
            (!is_dir($parent = \dirname($file)) && !@mkdir($parent, 0777, true))
                || false === @file_put_contents($file, $text)
        ) {
            throw new \RuntimeException(
                "cannot write $file: ".(error_get_last()['message'] ?? 'unknown error')
            );
        }
    }

    private static function rename(string $from, string $to): void
    {
        if ((!is_dir($parent = \dirname($to)) && !@mkdir($parent)) || !rename($from, $to)) {
            throw new \RuntimeException("cannot rename $from to $to");
        }
    }
}
