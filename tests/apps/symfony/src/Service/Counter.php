<?php

namespace App\Service;

use Symfony\Component\HttpFoundation\RequestStack;
use Symfony\Contracts\Service\ResetInterface;

/** Keeps state, and has reset(). */
final class Counter implements ResetInterface
{
    /** @var list<string> */
    private array $seen = [];

    public function __construct(private RequestStack $requests)
    {
    }

    public function seen(): array
    {
        $this->seen[] = (string) $this->requests->getCurrentRequest()?->query->get('q');

        return $this->seen;
    }

    public function reset(): void
    {
        $this->seen = [];
    }
}
