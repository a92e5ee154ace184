<?php

namespace App\Service;

use Symfony\Component\HttpFoundation\Request;

/** Keeps the first request that it gets, and has no reset(). */
final class Keeper
{
    private ?Request $request = null;

    public function first(Request $request): string
    {
        return (string) ($this->request ??= $request)->query->get('q');
    }
}
