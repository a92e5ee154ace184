<?php

namespace App\Services;

/** A singleton that a provider creates during the boot, and that requests change. */
final class Tenants
{
    /** @var list<string> */
    public array $seen = [];
    public static string $last = 'nobody';
    public static array $all = [];
    private static string $name;
    private readonly string $host;

    public function named(string $name): string
    {
        return self::$name ??= $name;
    }

    public function host(string $host): string
    {
        return $this->host ??= $host;
    }
}
