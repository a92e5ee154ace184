<?php

namespace App\Service;

/** The time of its construction. */
final class Clock
{
    public readonly int $at;

    public function __construct()
    {
        $this->at = time();
    }
}
