<?php

namespace App\Services;

/** Has the request in a part that the container does not keep. */
final class Deep
{
    public function __construct(public Inner $inner)
    {
    }
}
