<?php

namespace App;

use Illuminate\Contracts\Queue\ShouldQueue;

/** The article's message: hello world. */
final class Hello implements ShouldQueue
{
    public function handle(): void
    {
        echo "Hello World!\n";
    }
}
