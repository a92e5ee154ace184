<?php

namespace Surus\Api;

use Surus\Engine;
use Surus\Lambda\Hook;
use Surus\Process;

/** An API: routes, middleware, and JSON in and out. Keeps nothing of a request. */
final class App extends Group
{
    private readonly Router $routes;
    private readonly Failure $failure;

    /**
     * @param ?bool $development whether clients see what failed and where; null: if APP_ENV is dev,
     *                           development or local
     * @param int   $maxBody     bytes of JSON that a request may have
     */
    public function __construct(?bool $development = null, private readonly int $maxBody = 1 << 20)
    {
        $this->routes = new Router();
        $this->failure = new Failure(
            $development ?? \in_array(getenv('APP_ENV'), ['dev', 'development', 'local'], true)
        );
        parent::__construct('', $this->routes, null);
    }

    /** Serves the OpenAPI document of the routes. */
    public function openApi(
        string $title,
        string $version = '1.0.0',
        string $path = '/openapi.json'
    ): static
    {
        $routes = $this->routes;

        // Created by the request, because few ask for it.
        return $this->get(
            $path,
            static fn (): array => (new OpenApi($routes, $title, $version, $path))->document()
        );
    }

    /** Answers requests: on an engine that boots all that come, elsewhere the current one. */
    public function run(): void
    {
        if (!Engine::boots()) {
            $this->answer();

            return;
        }
        $this->prepare();
        surus_serve($this->serving(Engine::forgets() ? null : new Process()));
    }

    /**
     * Does the work that all requests share, so that none does it. A handler that cannot be called
     * stops the start here and not a request.
     */
    public function prepare(): void
    {
        foreach ($this->routes->routes() as $route) {
            foreach ($route->signature()->parameters as $parameter) {
                if (Source::Body === $parameter->source) {
                    Reader::prepare($parameter->type);
                }
            }
        }
        // No route has an empty path, so that all patterns are tried and compiled.
        $this->routes->methods('');
    }

    /** The response to a request, without sending it; also for tests. */
    public function handle(Request $request): Response
    {
        $this->routes->close();
        try {
            $response = $this->middleware
                ? self::through($this->middleware, $request, $this->dispatch(...))
                : $this->dispatch($request);
        } catch (\Throwable $thrown) {
            $response = $this->failure->response($thrown);
        }

        return 'HEAD' === $request->method ? $response->withoutBody() : $response;
    }

    private function dispatch(Request $request): Response
    {
        // Caught here, so that the application's middleware sees the response to an error.
        try {
            $path = Pattern::normal($request->path);
            $found = $this->routes->find(
                'HEAD' === $request->method ? 'GET' : $request->method,
                $path
            );
            if (null === $found) {
                return $this->withoutRoute($request->method, $path);
            }
            [$route, $values] = $found;
            $middleware = $route->middleware();

            return $middleware
                ? self::through(
                    $middleware,
                    $request,
                    fn (Request $request) => $this->call($route, $request, $values)
                )
                : $this->call($route, $request, $values);
        } catch (\Throwable $thrown) {
            return $this->failure->response($thrown);
        }
    }

    /** @param list<string> $values */
    private function call(Route $route, Request $request, array $values): Response
    {
        return Response::of(
            ($route->handler)(
                ...$route->signature()->arguments(
                    $request,
                    $route->pattern,
                    $values,
                    $this->maxBody
                )
            )
        );
    }

    private function withoutRoute(string $method, string $path): Response
    {
        $allowed = $this->routes->methods($path) ?: throw new Problem(404);
        $allow = ['Allow' => implode(', ', $allowed)];

        return 'OPTIONS' === $method
            ? Response::empty(204, $allow)
            : throw new Problem(405, headers: $allow);
    }

    /**
     * @param list<\Closure>              $middleware
     * @param \Closure(Request): Response $next
     */
    private static function through(array $middleware, Request $request, \Closure $next): Response
    {
        foreach (array_reverse($middleware) as $one) {
            $next = static fn (Request $request): Response => $one($request, $next);
        }

        return $next($request);
    }

    /**
     * The work of run() for each request on an engine that boots.
     *
     * @param ?Process $process the settings of the boot, if requests must not change them
     */
    private function serving(?Process $process): \Closure
    {
        return function () use ($process): void {
            // Before the request, because exit() in a handler skips what comes after it.
            $process?->restore();
            Hook::begin();
            $this->answer();
        };
    }

    private function answer(): void
    {
        $output = new Output();
        $response = null;
        register_shutdown_function(function () use (&$response, $output): void {
            if (null === $response) {
                $output->discard();
                $this->failure->unfinished()->send();
            }
        });
        $response = $this->handle(Request::fromGlobals());
        $output->discard();
        $response->send();
    }
}
