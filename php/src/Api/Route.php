<?php

namespace Surus\Api;

/** A method and a path, with their handler. */
final class Route
{
    private ?Signature $signature = null;

    /** @param list<\Closure> $middleware of this route alone */
    public function __construct(
        public readonly string $method,
        public readonly Pattern $pattern,
        public readonly \Closure $handler,
        public readonly Group $group,
        private readonly array $middleware,
    ) {
    }

    /** Reads the handler's parameters at the first use: `classic` needs one route's only. */
    public function signature(): Signature
    {
        return $this->signature ??= new Signature($this);
    }

    /** @return list<\Closure> */
    public function middleware(): array
    {
        return [...$this->group->inherited(), ...$this->middleware];
    }
}
