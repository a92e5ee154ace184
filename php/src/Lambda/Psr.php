<?php

namespace Surus\Lambda;

use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;

/**
 * Requests for PSR-15 handlers, from the superglobals: an HTTP request, or an event as a request.
 */
final class Psr
{
    /** Factories that read the superglobals; the first that the application has is used. */
    private const FACTORIES = [
        ['GuzzleHttp\Psr7\ServerRequest', 'fromGlobals'],
        ['Laminas\Diactoros\ServerRequestFactory', 'fromGlobals'],
        ['Slim\Psr7\Factory\ServerRequestFactory', 'createFromGlobals'],
        ['Sunrise\Http\ServerRequest\ServerRequestFactory', 'fromGlobals'],
    ];

    public static function answer(RequestHandlerInterface $handler): Answer
    {
        $form = self::form();
        if ($form) {
            [$_POST, $_FILES] = $form;
        }
        $request = self::request();
        // Some libraries use $_POST only for POST.
        $request = $form && !$request->getParsedBody()
            ? $request->withParsedBody($_POST)
            : $request;
        $response = $handler->handle($request);

        return new Answer(
            (string) $response->getBody(),
            $response->getStatusCode(),
            array_map(array_values(...), $response->getHeaders())
        );
    }

    /**
     * Parses a form of another method than POST, which PHP does not do.
     *
     * @return ?array{array<mixed>, array<mixed>} $_POST and $_FILES
     */
    private static function form(): ?array
    {
        $type = strtolower(trim(strtok((string) ($_SERVER['CONTENT_TYPE'] ?? ''), ';')));
        if ('POST' === ($_SERVER['REQUEST_METHOD'] ?? 'POST')) {
            return null;
        }
        if ('application/x-www-form-urlencoded' === $type) {
            parse_str(file_get_contents('php://input'), $fields);

            return [$fields, []];
        }
        if ('multipart/form-data' !== $type) {
            return null;
        }

        // Without surus_form() (external engines), PHP 8.4 and later parse forms.
        return \function_exists('surus_form')
            ? surus_form()
            : (\function_exists('request_parse_body') ? request_parse_body() : null);
    }

    private static function request(): ServerRequestInterface
    {
        if (
            class_exists($creator = 'Nyholm\Psr7Server\ServerRequestCreator')
                && class_exists($factory = 'Nyholm\Psr7\Factory\Psr17Factory')
        ) {
            $factory = new $factory();

            return (new $creator($factory, $factory, $factory, $factory))->fromGlobals();
        }
        foreach (self::FACTORIES as [$class, $method]) {
            if (class_exists($class)) {
                return $class::$method();
            }
        }
        throw new \LogicException(
            'a PSR-15 handler needs a library that creates requests; run composer require with guzzlehttp/psr7, nyholm/psr7-server, laminas/laminas-diactoros or slim/psr7'
        );
    }
}
