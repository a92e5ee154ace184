<?php

namespace App\Services;

/** A singleton that a provider makes while it boots, and that requests change. */
final class Tenants
{
    /** @var list<string> */
    public array $seen = [];
    public static string $last = 'nobody';
    public static array $all = [];
}
