<?php

namespace App\Services;

use Illuminate\Http\Request;

/** A singleton that is given the request where it is made. */
final class Keeper
{
    public function __construct(public Request $request)
    {
    }
}
