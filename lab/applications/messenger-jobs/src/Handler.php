<?php

namespace App;

/** The jobs of laravel-jobs. */
final class Handler
{
    public function __invoke(Job $job): void
    {
        match ($job->do) {
            'hello' => print "Hello World!\n",
            'sleep' => usleep(20_000),
            'count' => hash_pbkdf2('sha256', 'password', 'salt', 6000),
        };
    }
}
