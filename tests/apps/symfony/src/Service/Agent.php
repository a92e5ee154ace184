<?php

namespace App\Service;

/** The browser of the request in which it is created. */
final class Agent
{
    public readonly string $name;

    public function __construct()
    {
        $this->name = $_SERVER['HTTP_USER_AGENT'] ?? 'none';
    }
}
