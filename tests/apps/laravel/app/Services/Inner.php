<?php

namespace App\Services;

use Illuminate\Http\Request;

final class Inner
{
    public function __construct(public Request $request)
    {
    }
}
