<?php

namespace App\Services;

/** Loaded only by a request. */
final class Statics
{
    private static ?object $user = null;
    public static int $calls = 0;

    public static function remember(?object $user): ?object
    {
        ++self::$calls;

        return self::$user ??= $user;
    }
}
