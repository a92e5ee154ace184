<?php

namespace App;

/** The body of POST /greetings. */
final class NewGreeting
{
    public function __construct(public readonly string $name)
    {
        if ('' === $name) {
            throw new \InvalidArgumentException('the name must not be empty');
        }
    }
}
