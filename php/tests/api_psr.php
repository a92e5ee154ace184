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
    use Slim\Psr7\Factory\UriFactory;
    use Surus\Api\App;
    use Surus\Api\Psr15Middleware;
    use Surus\Api\Request;
    use Surus\Api\Response;

    /** Like a factory that reads superglobals which are not those of the request. */
    $other = static fn (): ServerRequestInterface => (new ServerRequestFactory())
        ->createServerRequest('DELETE', 'https://other.example:8443/other?other=1')
        ->withHeader('X-Other', 'other')
        ->withHeader('Content-Type', 'text/other')
        ->withCookieParams(['other' => '1'])
        ->withHeader('Cookie', 'other=1')
        ->withBody((new StreamFactory())->createStream('other'))
        ->withParsedBody(['other' => 1]);
    /**
     * @param Closure(ServerRequestInterface, RequestHandlerInterface): ResponseInterface $process
     */
    $of = static fn (
        Closure $process,
        ?Closure $requests = null
    ): Psr15Middleware => new Psr15Middleware(
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
        $requests ?? $other,
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
    /** What PSR-15 middleware reads of a request, after other middleware. */
    $read = static function (
        Request $request,
        ?Closure $requests = null,
        callable ...$before
    ) use ($of): array {
        $got = null;
        $last = $of(static function ($psr, $handler) use (&$got) {
            $got = $psr;

            return $handler->handle($psr);
        }, $requests);
        $app = new App();
        $app->use(...[...$before, $last])->handle($request);
        $headers = array_change_key_case($got->getHeaders());
        ksort($headers);

        return [
            $got->getMethod(),
            (string) $got->getUri(),
            $got->getQueryParams(),
            array_map(static fn (array $values) => implode(', ', $values), $headers),
            $got->getCookieParams(),
            $got->getBody()->getContents(),
            $got->getParsedBody(),
        ];
    };
    /** The attribute `user` that a handler gets after this middleware. */
    $user = static function (callable ...$middleware): mixed {
        $app = new App();
        $app->use(...$middleware);
        $app->get('/', fn (Request $request) => ['user' => $request->attribute('user')]);

        return $app->handle(Request::of('GET', '/'))->data()['user'];
    };
    $passesOn = $of(static fn ($psr, $handler) => $handler->handle($psr));
    $native = static fn (string $user) => static fn (Request $request, callable $next) => $next(
        $request->with('user', $user)
    );
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
        'attribute of native middleware reaches PSR-15 middleware' => static function () use (
            $of,
            $user,
            $native
        ): void {
            $seen = [];
            $sees = $of(static function ($psr, $handler) use (&$seen) {
                $seen[] = $psr->getAttribute('user');

                return $handler->handle($psr);
            });
            same('gisgo', $user($native('gisgo'), $sees, $sees));
            same(['gisgo', 'gisgo'], $seen);
        },
        'attribute that native middleware sets between PSR-15 middleware stays' =>
        static function () use ($of, $user, $native, $passesOn): void {
            $seen = null;
            $guest = $of(
                static fn ($psr, $handler) => $handler->handle($psr->withAttribute('user', 'guest'))
            );
            $sees = $of(static function ($psr, $handler) use (&$seen) {
                $seen = $psr->getAttribute('user');

                return $handler->handle($psr);
            });
            same('admin', $user($guest, $native('admin'), $sees, $passesOn));
            same('admin', $seen);
            same('guest', $user($native('admin'), $guest, $passesOn));
        },
        'attribute that PSR-15 middleware removes is gone' => static function () use (
            $of,
            $user,
            $native,
            $passesOn
        ): void {
            $removes = $of(
                static fn ($psr, $handler) => $handler->handle($psr->withoutAttribute('user'))
            );
            same(null, $user($native('gisgo'), $removes));
            same(null, $user($native('gisgo'), $passesOn, $removes, $passesOn));
            same('again', $user($native('gisgo'), $removes, $native('again'), $passesOn));
        },
        'PSR-15 middleware reads the request and not what its factory created' =>
        static function () use ($read): void {
            $request = Request::of(
                'PUT',
                '/a%20b?q=1&list%5B%5D=x',
                ['Host' => 'api.example:81', 'X-User' => 'gisgo', 'Cookie' => 'a=1; b=x%20y+z'],
                '{"a":1}'
            );
            $expected = [
                'PUT',
                'https://api.example:81/a%20b?q=1&list%5B0%5D=x',
                ['q' => '1', 'list' => ['x']],
                ['cookie' => 'a=1; b=x%20y+z', 'host' => 'api.example:81', 'x-user' => 'gisgo'],
                ['a' => '1', 'b' => 'x y+z'],
                '{"a":1}',
                null,
            ];
            same($expected, $read($request));
            $form = Request::of(
                'POST',
                '/',
                ['Content-Type' => 'application/x-www-form-urlencoded; charset=utf-8'],
                'a=1&b[]=2'
            );
            [$method, $uri, $query, $headers, $cookies, $body, $parsed] = $read($form);
            same(['POST', 'https://other.example:8443/', []], [$method, $uri, $query]);
            same([[], 'a=1&b[]=2', ['a' => '1', 'b' => ['2']]], [$cookies, $body, $parsed]);
            same($form->header('Content-Type'), $headers['content-type']);
        },
        'PSR-15 middleware reads the request also with a factory of superglobals' =>
        static function () use ($read): void {
            $before = $_SERVER;
            $_SERVER = [
                'REQUEST_METHOD' => 'DELETE',
                'REQUEST_URI' => '/cli?cli=1',
                'QUERY_STRING' => 'cli=1',
                'HTTP_HOST' => 'cli.example',
                'HTTP_X_CLI' => 'cli',
                'HTTP_COOKIE' => 'cli=1'
            ] + $before;
            try {
                $got = $read(
                    Request::json('POST', '/items?a=1', ['x' => 1], ['Host' => 'api.example']),
                    ServerRequestFactory::createFromGlobals(...)
                );
            } finally {
                $_SERVER = $before;
            }
            same(
                [
                    'POST',
                    'http://api.example/items?a=1',
                    ['a' => '1'],
                    ['content-type' => 'application/json', 'host' => 'api.example'],
                    [],
                    '{"x":1}',
                    null
                ],
                $got
            );
        },
        'request of the superglobals is the one that the factory creates' =>
        static function () use ($read): void {
            $before = [$_SERVER, $_GET];
            $_SERVER = [
                'REQUEST_METHOD' => 'POST',
                'REQUEST_URI' => '/x?a.b=1',
                'QUERY_STRING' => 'a.b=1',
                'HTTP_HOST' => 'internal.example',
                'CONTENT_TYPE' => 'multipart/form-data; boundary=x'
            ];
            $_GET = ['a_b' => '1'];
            try {
                // As libraries read X-Forwarded-Host of a trusted proxy and PHP_AUTH_USER.
                $got = $read(Request::fromGlobals(), static fn () => ServerRequestFactory
                    ::createFromGlobals()
                    ->withHeader('Authorization', 'Basic eA==')
                    ->withParsedBody(['field' => 'x'])
                    ->withUri((new UriFactory())->createUri('https://public.example/x?a.b=1')));
            } finally {
                [$_SERVER, $_GET] = $before;
            }
            same(
                ['https://public.example/x?a.b=1', ['a_b' => '1'], ['field' => 'x']],
                [$got[1], $got[2], $got[6]]
            );
            same(
                [
                    'authorization' => 'Basic eA==',
                    'content-type' => 'multipart/form-data; boundary=x',
                    'host' => 'public.example'
                ],
                $got[3]
            );
        },
        'PSR-15 middleware reads what native middleware has replaced' => static function () use (
            $read,
            $sent,
            $passesOn
        ): void {
            $replaces = static fn (Request $request, callable $next) => $next(
                $request->replaced(
                    'PATCH',
                    '/new',
                    ['q' => 'new'],
                    ['X-User' => 'admin', 'X-Kept' => null, 'Host' => 'new.example'],
                    'new body'
                )
            );
            foreach ([[$replaces], [$passesOn, $replaces], [$replaces, $passesOn]] as $chain) {
                same(
                    [
                        'PATCH',
                        'https://new.example/new?q=new',
                        ['q' => 'new'],
                        ['host' => 'new.example', 'x-user' => 'admin'],
                        [],
                        'new body',
                        null
                    ],
                    $read($sent(), null, ...$chain)
                );
            }
        },
        'PSR-15 middleware gets what the one before it passes on' => static function () use (
            $of,
            $read,
            $sent
        ): void {
            $parses = $of(
                static fn ($psr, $handler) => $handler->handle(
                    $psr->withParsedBody(['a' => 2])
                        ->withQueryParams(['q' => 'new'])
                        ->withCookieParams(['c' => 'new'])
                )
            );
            $reads = static function (Request $request, callable $next): Response {
                same('{"a":2}', $request->body());

                return $next($request);
            };
            $got = $read($sent(), null, $parses, $reads);
            same(
                ['https://other.example:8443/sent?q=old', ['q' => 'new'], ['c' => 'new']],
                [$got[1], $got[2], $got[4]]
            );
            same(['as sent', ['a' => 2]], [$got[5], $got[6]]);
        },
    ];
}
