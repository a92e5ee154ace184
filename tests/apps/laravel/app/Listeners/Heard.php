<?php

namespace App\Listeners;

use Illuminate\Contracts\Auth\Guard;
use Illuminate\Http\Request;

final class Heard
{
    public function __construct(private Request $request, private Guard $guard)
    {
    }

    public function handle(): string
    {
        return $this->request->query('q').' by '.($this->guard->user()->name ?? 'nobody');
    }
}
