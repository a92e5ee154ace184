<?php

namespace Surus\Api;

/**
 * Finds the route of a method and a path: a map of the paths without parameters, then regular
 * expressions of up to CHUNK paths each.
 */
final class Router
{
    private const CHUNK = 50;

    /** @var array<string, array<string, Route>> by method and path */
    private array $static = [];

    /** @var array<string, array<string, Route>> by method and regular expression, in order */
    private array $dynamic = [];

    /** @var array<string, list<array{string, list<Route>}>> */
    private array $chunks = [];

    private bool $open = true;

    public function add(Route $route): void
    {
        $this->mustBeOpen();
        $method = $route->method;
        if (!preg_match('/^[A-Z]+$/', $method) || \in_array($method, ['HEAD', 'OPTIONS'], true)) {
            throw new \InvalidArgumentException(
                "\"$method\" is not a method of a route; Surus\\Api answers HEAD for every path "
                    .'with GET, and OPTIONS for every path of a route'
            );
        }
        $regex = $route->pattern->regex;
        if ($route->pattern->parameters) {
            $known = &$this->dynamic[$method][$regex];
        } else {
            $known = &$this->static[$method][$regex];
        }
        if ($known) {
            throw new \LogicException(
                "$method {$route->pattern->path} is declared already, as {$known->pattern->path}"
            );
        }
        $known = $route;
    }

    /** A route that a request declared would answer the next client, too. */
    public function mustBeOpen(): void
    {
        if (!$this->open) {
            throw new \LogicException('declare routes and middleware before the first request');
        }
    }

    public function close(): void
    {
        $this->open = false;
    }

    /**
     * @param string $path normal, see Pattern::normal()
     *
     * @return ?array{Route, list<string>} with the encoded values of the path's parameters
     */
    public function find(string $method, string $path): ?array
    {
        if (isset($this->static[$method][$path])) {
            return [$this->static[$method][$path], []];
        }
        if (!isset($this->dynamic[$method])) {
            return null;
        }
        foreach ($this->chunks[$method] ??= $this->compile($method) as [$regex, $routes]) {
            $matches = preg_match($regex, $path, $found);
            if (false === $matches) {
                throw new Problem(414, 'the path is too long to match');
            }
            if ($matches) {
                $route = $routes[$found['MARK']];

                return [$route, \array_slice($found, 1, \count($route->pattern->parameters))];
            }
        }

        return null;
    }

    /** @return list<string> the methods of a path, for Allow */
    public function methods(string $path): array
    {
        $methods = [];
        foreach (array_keys($this->static + $this->dynamic) as $method) {
            if ($this->find($method, $path)) {
                $methods[] = $method;
                if ('GET' === $method) {
                    $methods[] = 'HEAD';
                }
            }
        }
        if ($methods) {
            $methods[] = 'OPTIONS';
        }

        return $methods;
    }

    /** @return list<Route> */
    public function routes(): array
    {
        $routes = [];
        foreach ([$this->static, $this->dynamic] as $byMethod) {
            foreach ($byMethod as $byPath) {
                array_push($routes, ...array_values($byPath));
            }
        }

        return $routes;
    }

    /** @return list<array{string, list<Route>}> */
    private function compile(string $method): array
    {
        $chunks = [];
        foreach (array_chunk(array_values($this->dynamic[$method]), self::CHUNK) as $routes) {
            $alternatives = [];
            foreach ($routes as $number => $route) {
                $alternatives[] = $route->pattern->regex."(*MARK:$number)";
            }
            // (?|: each alternative numbers its groups from 1. D: no line break after the end.
            $chunks[] = ['~^(?|'.implode('|', $alternatives).')$~D', $routes];
        }

        return $chunks;
    }
}
