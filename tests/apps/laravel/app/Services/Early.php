<?php

namespace App\Services;

use Illuminate\Http\Request;

/** A singleton that a provider creates during the boot. */
final class Early
{
    public string $tenant = 'nobody';

    public function __construct(public Request $request)
    {
    }
}
