<?php

namespace App\Service;

/** A random number. */
final class Dice
{
    public readonly int $cast;

    public function __construct()
    {
        $this->cast = random_int(0, PHP_INT_MAX);
    }
}
