<?php

namespace App;

use Illuminate\Contracts\Queue\ShouldQueue;

/** 20 ms of waiting for something else. */
final class Sleep implements ShouldQueue
{
    public function handle(): void
    {
        usleep(20_000);
    }
}
