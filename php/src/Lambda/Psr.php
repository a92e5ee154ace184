<?php

namespace Surus\Lambda;

use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;

/** What has reached PHP as a request, an event or an HTTP request itself, for handlers of PSR-15. */
final class Psr
{
    /** Who makes requests of the superglobals, whichever of them the application has. */
    private const FACTORIES = [
        ['GuzzleHttp\Psr7\ServerRequest', 'fromGlobals'],
        ['Laminas\Diactoros\ServerRequestFactory', 'fromGlobals'],
        ['Slim\Psr7\Factory\ServerRequestFactory', 'createFromGlobals'],
        ['Sunrise\Http\ServerRequest\ServerRequestFactory', 'fromGlobals'],
    ];

    public static function answer(RequestHandlerInterface $handler): Answer
    {
        $response = $handler->handle(self::request());

        return new Answer((string) $response->getBody(), $response->getStatusCode(), array_map(array_values(...), $response->getHeaders()));
    }

    private static function request(): ServerRequestInterface
    {
        if (class_exists($creator = 'Nyholm\Psr7Server\ServerRequestCreator') && class_exists($factory = 'Nyholm\Psr7\Factory\Psr17Factory')) {
            $factory = new $factory();

            return (new $creator($factory, $factory, $factory, $factory))->fromGlobals();
        }
        foreach (self::FACTORIES as [$class, $method]) {
            if (class_exists($class)) {
                return $class::$method();
            }
        }
        throw new \LogicException('A handler of PSR-15 needs a library that makes requests. What may help: composer require guzzlehttp/psr7, nyholm/psr7-server, laminas/laminas-diactoros or slim/psr7.');
    }
}
