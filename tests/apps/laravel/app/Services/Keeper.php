<?php

namespace App\Services;

use Illuminate\Http\Request;

/** A singleton that gets the request in its constructor. */
final class Keeper
{
    public function __construct(public Request $request)
    {
    }
}
