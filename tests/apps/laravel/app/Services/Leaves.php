<?php

namespace App\Services;

/** Loaded only by a request, and keeps its name. */
final class Leaves
{
    private static string $name;

    public static function named(string $name): string
    {
        return self::$name ??= $name;
    }
}
