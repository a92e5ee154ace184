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
     *                                                     such as createFromGlobals() of a library
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
        $psr = $request->attribute(ServerRequestInterface::class) ?? ($this->requests)();
        $next = static fn (ServerRequestInterface $changed): Response => $next(
            self::changed($request, $psr, $changed)
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

    /**
     * The request with the attributes of a PSR-7 request, and with what a middleware has changed.
     * The rest stays as Surus\Api has read it.
     */
    private static function changed(
        Request $request,
        ServerRequestInterface $before,
        ServerRequestInterface $after
    ): Request
    {
        [$headers, $body] = [[], null];
        foreach ($before->getHeaders() + $after->getHeaders() as $name => $_) {
            $line = $after->getHeaderLine((string) $name);
            if ($line !== $before->getHeaderLine((string) $name)) {
                $headers[$name] = $after->hasHeader((string) $name) ? $line : null;
            }
        }
        $parsed = $after->getParsedBody();
        // A library may clone the stream with its request.
        if (
            $after->getBody() !== $before->getBody()
                && (string) $after->getBody() !== (string) $before->getBody()
        ) {
            $body = (string) $after->getBody();
        } elseif (null !== $parsed
            && $parsed !== $before->getParsedBody()
            && $parsed !== json_decode($request->body(), true)) {
            // Handlers read bodies as JSON. A body that a middleware only decodes keeps its form:
            // {} and [].
            $body = Json::encode($parsed);
            $headers = [
                'Content-Type' => 'application/json',
                'Content-Encoding' => null
            ] + $headers;
        }
        $different = static fn (string|array $new, string|array $old) => $new === $old
            ? null
            : $new;
        $request = $request->replaced(
            $different($after->getMethod(), $before->getMethod()),
            $different($after->getUri()->getPath(), $before->getUri()->getPath()),
            $different($after->getQueryParams(), $before->getQueryParams()),
            $headers,
            $body,
        )->with(ServerRequestInterface::class, $after);
        foreach ($after->getAttributes() as $name => $value) {
            $request = $request->with($name, $value);
        }

        return $request;
    }
}
