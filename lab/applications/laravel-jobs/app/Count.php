<?php

namespace App;

use Illuminate\Contracts\Queue\ShouldQueue;

/** About 5 ms of CPU time. */
final class Count implements ShouldQueue
{
    public function handle(): void
    {
        hash_pbkdf2('sha256', 'password', 'salt', 6000);
    }
}
