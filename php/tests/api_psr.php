<?php

// Tests that middleware of PSR-15 runs as middleware of Surus\Api, with Slim's PSR-7.

namespace Psr\Http\Server {
    is_file('/usr/share/php/Slim/Psr7/autoload.php')
        && require_once '/usr/share/php/Slim/Psr7/autoload.php';
    interface_exists(RequestHandlerInterface::class)
        || eval(
            'namespace Psr\Http\Server; interface RequestHandlerInterface { public function handle(\Psr\Http\Message\ServerRequestInterface $request): \Psr\Http\Message\ResponseInterface; }'
        );
    interface_exists(MiddlewareInterface::class)
        || eval(
            'namespace Psr\Http\Server; interface MiddlewareInterface { public function process(\Psr\Http\Message\ServerRequestInterface $request, RequestHandlerInterface $handler): \Psr\Http\Message\ResponseInterface; }'
        );
}

namespace {
    use Psr\Http\Message\ResponseInterface;
    use Psr\Http\Message\ServerRequestInterface;
    use Psr\Http\Server\MiddlewareInterface;
    use Psr\Http\Server\RequestHandlerInterface;
    use Slim\Psr7\Factory\ResponseFactory;
    use Slim\Psr7\Factory\ServerRequestFactory;
    use Slim\Psr7\Factory\StreamFactory;
    use Surus\Api\App;
    use Surus\Api\Psr15Middleware;
    use Surus\Api\Request;

    /**
     * @param Closure(ServerRequestInterface, RequestHandlerInterface): ResponseInterface $process
     */
    $of = static fn (Closure $process): Psr15Middleware => new Psr15Middleware(
        new class($process) implements MiddlewareInterface {
            public function __construct(private Closure $process)
            {
            }

            public function process(
                ServerRequestInterface $request,
                RequestHandlerInterface $handler
            ): ResponseInterface
            {
                return ($this->process)($request, $handler);
            }
        },
        static fn () => (new ServerRequestFactory())->createServerRequest(
            'GET',
            'http://api.example/',
            ['X-Old' => 'old']
        ),
        new ResponseFactory(),
    );
    /** Adds its name to an attribute and to the response's headers. */
    $marks = static fn (string $name) => $of(static fn ($request, $handler) => $handler
        ->handle($request->withAttribute('seen', $request->getAttribute('seen', '').$name))
        ->withHeader("X-$name", ['1', '2']));
    /** What a handler gets of a request that a middleware has changed. */
    $seen = static function (Closure $change, Request $request) use ($of): array {
        $app = new App();
        $app->use($of(static fn ($psr, $handler) => $handler->handle($change($psr))));
        $app->map(['GET', 'POST', 'PUT'], '/{path}', static fn (Request $request) => [
            $request->method, $request
                ->path, $request
                ->query, $request
                ->header('X-User'), $request
                ->header('X-Kept'), $request
                ->body(),
        ]);
        $response = $app->handle($request);
        same(200, $response->status);

        return $response->data();
    };
    $sent = static fn () => Request::of(
        'POST',
        '/sent?q=old',
        ['X-Kept' => 'kept', 'X-User' => 'none'],
        'as sent'
    );

    return [
        'PSR-15 middleware passes attributes on and changes responses' => static function () use (
            $marks
        ): void {
            $app = new App();
            $app->use($marks('a'), $marks('b'));
            $app->get('/', fn (Request $request) => ['seen' => $request->attribute('seen')]);
            $response = $app->handle(Request::of('GET', '/'));
            same(
                [200, '{"seen":"ab"}', 'application/json', '1, 2', '1, 2'],
                [
                    $response->status,
                    $response->body,
                    $response->header('Content-Type'),
                    $response->header('x-a'),
                    $response->header('x-b')
                ]
            );
            $response = $app->handle(Request::of('GET', '/no'));
            same(
                [404, 'application/problem+json', '1, 2'],
                [$response->status, $response->header('Content-Type'), $response->header('X-a')]
            );
        },
        'PSR-15 middleware may answer alone' => static function () use ($of): void {
            $app = new App();
            $app->get(
                '/',
                fn () => throw new Exception('not reached'),
                $of(
                    static fn () => (new ResponseFactory())->createResponse(403)->withHeader(
                        'content-type',
                        'text/plain'
                    )
                )
            );
            $response = $app->handle(Request::of('GET', '/'));
            same(
                [403, '', 'text/plain'],
                [$response->status, $response->body, $response->header('Content-Type')]
            );
        },
        'what PSR-15 middleware leaves stays as it was sent' => static function () use (
            $seen,
            $sent
        ): void {
            same(
                ['POST', '/sent', ['q' => 'old'], 'none', 'kept', 'as sent'],
                $seen(static fn ($psr) => $psr->withAttribute('a', 1), $sent())
            );
        },
        'handler sees what PSR-15 middleware changes' => static function () use (
            $seen,
            $sent
        ): void {
            $change = static fn ($psr) => $psr->withMethod('PUT')
                ->withUri($psr->getUri()->withPath('/other'))
                ->withQueryParams(['q' => 'new'])
                ->withHeader('X-User', 'Gisgo')->withBody(
                    (new StreamFactory())->createStream('changed')
                );
            same(
                ['PUT', '/other', ['q' => 'new'], 'Gisgo', 'kept', 'changed'],
                $seen($change, $sent())
            );
            same(
                null,
                $seen(
                    static fn ($psr) => $psr->withHeader('X-User', 'a')->withoutHeader('X-User'),
                    Request::of('GET', '/sent')
                )[3]
            );
        },
        'parsed body of PSR-15 middleware is the JSON of the handler' =>
        static function () use ($of): void {
            $app = new App();
            $app->post(
                '/',
                fn (array $body) => $body,
                $of(
                    static fn ($psr, $handler) => $handler->handle($psr->withParsedBody(['a' => 2]))
                )
            );
            $response = $app->handle(
                Request::of(
                    'POST',
                    '/',
                    ['Content-Type' => 'application/x-www-form-urlencoded'],
                    'a=1'
                )
            );
            same([200, '{"a":2}'], [$response->status, $response->body]);
        },
        'parsed body that is the JSON as sent does not change it' => static function () use (
            $seen
        ): void {
            $request = Request::of(
                'POST',
                '/sent',
                ['Content-Type' => 'application/json'],
                '{"a": {}}'
            );
            same(
                '{"a": {}}',
                $seen(static fn ($psr) => $psr->withParsedBody(['a' => []]), $request)[5]
            );
        },
    ];
}
