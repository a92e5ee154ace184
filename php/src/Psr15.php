<?php

namespace Surus;

use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;
use Surus\Lambda\Hook;

/** Serves requests with a PSR-15 handler, such as a Slim 4 or Mezzio application. */
final class Psr15
{
    private const PIECE = 65536;

    /**
     * @param callable(): ServerRequestInterface $request creates a request from the superglobals,
     * as Slim\Psr7\Factory\ServerRequestFactory::createFromGlobals(...) does
     */
    public static function serve(RequestHandlerInterface $handler, callable $request): void
    {
        surus_serve(static function () use ($handler, $request): void {
            Hook::begin();
            self::send($handler->handle($request()));
        });
    }

    private static function send(ResponseInterface $response): void
    {
        header(
            sprintf(
                'HTTP/%s %d %s',
                $response->getProtocolVersion(),
                $response->getStatusCode(),
                $response->getReasonPhrase()
            )
        );
        foreach ($response->getHeaders() as $name => $values) {
            foreach ($values as $number => $value) {
                // The first value of a name replaces PHP's own, such as Content-Type; the others
                // are added.
                header(
                    "$name: $value",
                    0 === $number && 0 !== strcasecmp($name, 'set-cookie'),
                    $response->getStatusCode()
                );
            }
        }
        $body = $response->getBody();
        if ($body->isSeekable()) {
            $body->rewind();
        }
        while (!$body->eof()) {
            echo $body->read(self::PIECE);
        }
    }
}
