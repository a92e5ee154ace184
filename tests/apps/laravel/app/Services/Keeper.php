<?php

namespace App\Services;

use Illuminate\Http\Request;

/** A singleton whose constructor gets the request. */
final class Keeper
{
    public function __construct(public Request $request)
    {
    }
}
