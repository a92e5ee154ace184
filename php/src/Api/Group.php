<?php

namespace Surus\Api;

/** Declares routes that share a prefix and middleware. */
class Group
{
    /** @var list<\Closure> */
    protected array $middleware = [];

    protected function __construct(
        private readonly string $prefix,
        private readonly Router $router,
        private readonly ?self $parent,
    ) {
    }

    /** @param callable ...$middleware of this route alone, the outermost first */
    public function get(string $path, callable $handler, callable ...$middleware): static
    {
        return $this->map(['GET'], $path, $handler, ...$middleware);
    }

    public function post(string $path, callable $handler, callable ...$middleware): static
    {
        return $this->map(['POST'], $path, $handler, ...$middleware);
    }

    public function put(string $path, callable $handler, callable ...$middleware): static
    {
        return $this->map(['PUT'], $path, $handler, ...$middleware);
    }

    public function patch(string $path, callable $handler, callable ...$middleware): static
    {
        return $this->map(['PATCH'], $path, $handler, ...$middleware);
    }

    public function delete(string $path, callable $handler, callable ...$middleware): static
    {
        return $this->map(['DELETE'], $path, $handler, ...$middleware);
    }

    /** @param list<string> $methods */
    public function map(
        array $methods,
        string $path,
        callable $handler,
        callable ...$middleware
    ): static
    {
        $pattern = new Pattern($this->prefix.$path);
        $middleware = array_map(static fn (callable $one) => $one(...), array_values($middleware));
        foreach ($methods as $method) {
            $this->router->add(new Route($method, $pattern, $handler(...), $this, $middleware));
        }

        return $this;
    }

    /**
     * @param string                 $prefix  begins with / and does not end with it
     * @param callable(Group): mixed $declare
     */
    public function group(string $prefix, callable $declare): static
    {
        if ('/' !== ($prefix[0] ?? '') || str_ends_with($prefix, '/')) {
            throw new \InvalidArgumentException(
                "the prefix \"$prefix\" of a group must begin with / and not end with it"
            );
        }
        $declare(new self($this->prefix.$prefix, $this->router, $this));

        return $this;
    }

    /**
     * Runs middleware around the handlers of this group, the first one outermost.
     *
     * @param callable(Request, callable(Request): Response): Response ...$middleware
     */
    public function use(callable ...$middleware): static
    {
        $this->router->mustBeOpen();
        foreach ($middleware as $one) {
            $this->middleware[] = $one(...);
        }

        return $this;
    }

    /**
     * The middleware of this group and those around it; the application's runs elsewhere.
     *
     * @return list<\Closure>
     */
    public function inherited(): array
    {
        return $this->parent ? [...$this->parent->inherited(), ...$this->middleware] : [];
    }
}
