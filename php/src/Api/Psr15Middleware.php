<?php

namespace Surus\Api;

use Psr\Http\Message\ResponseFactoryInterface;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\MiddlewareInterface;
use Psr\Http\Server\RequestHandlerInterface;

/** Lets a PSR-15 middleware run as middleware of an App. */
final class Psr15Middleware
{
    /**
     * @param \Closure(): ServerRequestInterface $requests creates a request from the superglobals,
     *                                                     such as createFromGlobals() of a library;
     *                                                     it gets the parts of the App's request
     */
    public function __construct(
        private readonly MiddlewareInterface $middleware,
        private readonly \Closure $requests,
        private readonly ResponseFactoryInterface $responses,
    ) {
    }

    /** @param callable(Request): Response $next */
    public function __invoke(Request $request, callable $next): Response
    {
        // The next PSR-15 middleware gets what this one passes on.
        [$psr, $known] = $request->psr7() ?? [($this->requests)(), null];
        $psr = Psr7::from(
            $request,
            $psr,
            $known,
            fn () => $this->responses->createResponse()->getBody()
        );
        $next = static fn (ServerRequestInterface $changed): Response => $next(
            Psr7::changed($request, $psr, $changed)
        );
        $handler = new class($next, $this->responses) implements RequestHandlerInterface {
            public function __construct(
                private \Closure $next,
                private ResponseFactoryInterface $responses
            )
            {
            }

            public function handle(ServerRequestInterface $psr): ResponseInterface
            {
                $response = ($this->next)($psr);
                $result = $this->responses->createResponse($response->status);
                foreach ($response->headers as $name => $values) {
                    $result = $result->withHeader($name, $values);
                }
                $result->getBody()->write($response->body);

                return $result;
            }
        };
        $response = $this->middleware->process($psr, $handler);
        $body = (string) $response->getBody();
        $result = '' === $body
            ? Response::empty($response->getStatusCode())
            : Response::raw($body, 'application/octet-stream', $response->getStatusCode());
        foreach ($response->getHeaders() as $name => $values) {
            $result = $result->with($name, ...$values);
        }

        return $result;
    }
}
