<?php

namespace App\Services;

/** Has the request in an object that the container does not keep. */
final class Deep
{
    public function __construct(public Inner $inner)
    {
    }
}
