<?php

// Tests of the router of Surus\Api: paths, parameters, methods, groups.

namespace Surus\Tests\Routes {
    enum Colour: string
    {
        case Red = 'red';
        case Blue = 'blue';
    }

    enum Level: int
    {
        case Low = 1;
    }

    final class Filled
    {
        public function __construct(public string $name)
        {
        }
    }

    final class HalfFilled
    {
        public function __construct(public Filled|string $what)
        {
        }
    }
}

namespace {
    use Surus\Api\App;
    use Surus\Api\Group;
    use Surus\Api\Request;
    use Surus\Api\Response;
    use Surus\Tests\Routes\Colour;
    use Surus\Tests\Routes\Filled;
    use Surus\Tests\Routes\HalfFilled;
    use Surus\Tests\Routes\Level;

    $get = static fn (App $app, string $target): mixed => json_decode(
        $app->handle(Request::of('GET', $target))->body,
        true
    );
    $status = static fn (
        App $app,
        string $target,
        string $method = 'GET'
    ): int => $app->handle(Request::of($method, $target))->status;

    return [
        'path parameters arrive with the types of the handler' =>
        static function () use ($get): void {
            $app = new App();
            $app->get('/i/{v}', fn (int $v) => [$v]);
            $app->get('/f/{v}', fn (float $v) => [$v]);
            $app->get('/b/{v}', fn (bool $v) => [$v]);
            $app->get('/s/{v}', fn (string $v) => [$v]);
            $app->get('/e/{v}', fn (Colour $v) => [$v]);
            $app->get('/l/{v}', fn (Level $v) => [$v]);
            $app->get('/t/{v}', fn (DateTimeImmutable $v) => [$v->format('c')]);
            $app->get('/typed/{v:int}', fn ($v) => [$v]);
            foreach (['/i/-7' => -7, '/f/1.5' => 1.5, '/f/2' => 2.0, '/b/true' => true,
                '/b/0' => false, '/s/a%20b' => 'a b', '/e/blue' => 'blue', '/l/1' => 1,
                '/typed/5' => 5,
                '/t/2026-02-28T01:02:03Z' => '2026-02-28T01:02:03+00:00'] as $path => $expected) {
                same([$expected], $get($app, $path));
            }
        },
        'path parameter of another type is 404' => static function () use ($status): void {
            $app = new App();
            $app->get('/i/{v}', fn (int $v) => $v);
            $app->get('/f/{v}', fn (float $v) => $v);
            $app->get('/b/{v}', fn (bool $v) => $v);
            $app->get('/e/{v}', fn (Colour $v) => $v);
            $app->get('/l/{v}', fn (Level $v) => $v);
            $app->get('/t/{v}', fn (DateTimeImmutable $v) => 1);
            $app->get('/typed/{v:int}', fn ($v) => $v);
            foreach (['/i/x', '/i/1.0', '/i/07', '/i/1%0A', '/i/99999999999999999999', '/f/1e999',
                '/f/.5', '/f/nan', '/b/yes', '/e/green', '/l/2', '/l/01', '/l/1x',
                '/t/tomorrow', '/t/2026-02-30T00:00:00Z', '/typed/x', '/typed/5%0A', '/typed/',
                '/typed/99999999999999999999'] as $path) {
                same([$path, 404], [$path, $status($app, $path)]);
            }
        },
        'path without parameters wins, then the first that matches' =>
        static function () use ($get): void {
            $app = new App();
            $app->get('/u/{id:int}', fn (int $id) => ['id', $id]);
            $app->get('/u/{name}', fn (string $name) => ['name', $name]);
            $app->get('/u/me', fn () => ['me']);
            $app->get('/u/{name}.json', fn (string $name) => ['json', $name]);
            $app->get('/u/{a}-{b}/x', fn (string $b, string $a) => [$a, $b]);
            for ($i = 0; $i < 120; ++$i) {
                $app->get("/many$i/{v:int}/{w}", fn (int $v, string $w) => [$i, $v, $w]);
            }
            same(['me'], $get($app, '/u/me'));
            same(['id', 5], $get($app, '/u/5'));
            same(['name', 'you'], $get($app, '/u/you'));
            same(['a-b', 'c'], $get($app, '/u/a-b-c/x'));
            foreach ([0, 49, 50, 119] as $i) {
                same([$i, $i, 'w'], $get($app, "/many$i/$i/w"));
            }
            $app = new App();
            $app->get('/u/{name}.json', fn (string $name) => ['json', $name]);
            same(['json', 'a.json'], $get($app, '/u/a.json.json'));
        },
        'spelling of a path does not matter, and %2F is no separator' => static function () use (
            $get,
            $status
        ): void {
            $app = new App();
            $app->get('/café/@me', fn () => ['static']);
            $app->get('/f/{name}', fn (string $name) => [$name]);
            same(['static'], $get($app, '/caf%C3%A9/@me'));
            same(['static'], $get($app, '/caf%c3%a9/%40me'));
            same(['static'], $get($app, '/café/@me?x=/f/y'));
            same(['a/b'], $get($app, '/f/a%2fb'));
            same(['a+b%c'], $get($app, '/f/a+b%25c'));
            same(
                [404, 404, 404],
                [$status($app, '/f/a/b'), $status($app, '//f/a'), $status($app, '/f/')]
            );
        },
        'path that is no text is 400, and a huge one is answered' => static function () use (
            $status
        ): void {
            $app = new App();
            $app->get('/f/{name}', fn (string $name) => 1);
            $app->get('/g/{a}-{b}-{c}', fn () => 1);
            same(
                [400, 400, 404],
                [$status($app, '/f/%ff'), $status($app, '/f/%00'), $status($app, '')]
            );
            same(200, $status($app, '/f/'.str_repeat('x', 1_000_000)));
            same(404, $status($app, '/f/'.str_repeat('x/', 500_000)));
            same(404, $status($app, str_repeat('/%2e%2e', 100_000)));
            same(true, in_array($status($app, '/g/'.str_repeat('-', 4000).'/'), [404, 414], true));
        },
        'HEAD, OPTIONS and 405 follow from the routes of the path' => static function (): void {
            $app = new App();
            $app->get('/u/{id:int}', fn (int $id) => [$id]);
            $app->delete('/u/{any}', function () {});
            $app->post('/only', fn () => 1);
            $ask = static fn (
                string $method,
                string $path
            ): Response => $app->handle(Request::of($method, $path));
            same(
                [200, '', 'application/json'],
                [
                    $ask('HEAD', '/u/5')->status,
                    $ask('HEAD', '/u/5')->body,
                    $ask('HEAD', '/u/5')->header('content-type')
                ]
            );
            same(
                [204, 'GET, HEAD, DELETE, OPTIONS'],
                [$ask('OPTIONS', '/u/5')->status, $ask('OPTIONS', '/u/5')->header('Allow')]
            );
            same(
                [405, 'DELETE, OPTIONS'],
                [$ask('GET', '/u/x')->status, $ask('GET', '/u/x')->header('Allow')]
            );
            same(
                [405, 'POST, OPTIONS'],
                [$ask('HEAD', '/only')->status, $ask('HEAD', '/only')->header('Allow')]
            );
            same(
                [405, 404, 404],
                [
                    $ask("X\nY", '/only')->status,
                    $ask('OPTIONS', '/no')->status,
                    $ask('PURGE', '/no')->status
                ]
            );
        },
        'groups prefix their routes, and their middleware runs only around them' =>
        static function (): void {
            $app = new App();
            $mark = static fn (string $name) => static fn (
                Request $request,
                callable $next
            ) => $next(
                $request->with('by', $request->attribute('by').$name)
            )->with("X-$name", '1');
            $by = fn (Request $request) => $request->attribute('by');
            $app->use($mark('app'));
            $app->get('/out', $by);
            $app->group('/v1', function (Group $v1) use ($mark, $by): void {
                $v1->use($mark('v1'));
                $v1->group(
                    '/deep',
                    fn (Group $deep) => $deep->use($mark('deep'))->get(
                        '/{id:int}',
                        $by,
                        $mark('own')
                    )
                );
                $v1->get('', $by);
            });
            $ask = static fn (string $path): Response => $app->handle(Request::of('GET', $path));
            same(
                ['"app"', '"appv1"', '"appv1deepown"'],
                [$ask('/out')->body, $ask('/v1')->body, $ask('/v1/deep/5')->body]
            );
            same(
                [404, '1', null],
                [
                    $ask('/v1/no')->status,
                    $ask('/v1/no')->header('x-app'),
                    $ask('/v1/no')->header('x-v1')
                ]
            );
        },
        'middleware may answer instead of the handler' => static function () use ($status): void {
            $app = new App();
            $app->get(
                '/',
                fn () => throw new Exception('not reached'),
                fn (Request $request, callable $next) => Response::empty(202)
            );
            same(202, $status($app, '/'));
        },
        'wrong declaration stops the start' => static function (): void {
            $app = new App();
            $app->get('/a', fn () => 1);
            $app->get('/b/{x}', fn () => 1);
            throws(
                LogicException::class,
                'GET /a is declared already',
                fn () => $app->get('/a', fn () => 2)
            );
            throws(
                LogicException::class,
                'GET /b/{y} is declared already, as /b/{x}',
                fn () => $app->get('/b/{y}', fn () => 2)
            );
            throws(
                InvalidArgumentException::class,
                'must begin with /',
                fn () => $app->get('a', fn () => 1)
            );
            throws(
                InvalidArgumentException::class,
                'must be {name} or {name:type}',
                fn () => $app->get('/{id:integer}', fn () => 1)
            );
            throws(
                InvalidArgumentException::class,
                'must be {name} or {name:type}',
                fn () => $app->get('/{id', fn () => 1)
            );
            throws(
                InvalidArgumentException::class,
                'twice',
                fn () => $app->get('/{id}/{id}', fn () => 1)
            );
            throws(
                InvalidArgumentException::class,
                '"HEAD" is not a method of a route; Surus\\Api answers HEAD for every path with GET',
                fn () => $app->map(['HEAD'], '/h', fn () => 1)
            );
            throws(
                InvalidArgumentException::class,
                'not end with it',
                fn () => $app->group('/g/', fn () => 1)
            );
        },
        'request cannot declare a route or middleware for the next' => static function () use (
            $status
        ): void {
            ini_set('error_log', '/dev/null');
            $app = new App();
            $app->get('/', fn () => $app->get('/leak', fn () => 1));
            $app->get('/use', fn () => $app->use(fn () => Response::empty()));
            same(
                [500, 500, 404],
                [$status($app, '/'), $status($app, '/use'), $status($app, '/leak')]
            );
        },
        'autoloader is not asked for types of PHP' => static function () use ($get): void {
            $asked = [];
            spl_autoload_register($loader = static function (string $class) use (&$asked): void {
                $asked[] = $class;
            });
            $app = new App();
            $app->get(
                '/{id}',
                fn (int $id, int|string|null $a = null, array|float|bool $b = true) => $id
            );
            $app->get('/q/{id}', fn (int $id, ?float $a = null, mixed $c = null) => $id);
            $found = $get($app, '/q/7');
            spl_autoload_unregister($loader);
            same([7, []], [$found, $asked]);
        },
        'handler with a parameter that nothing can fill is named' => static function (): void {
            foreach ([
                'takes the body twice' => ['post', fn (array $a, array $b) => 1],
                'GET does not have' => ['get', fn (array $a) => 1],
                'must not be variadic' => ['get', fn (string ...$a) => 1],
                'ArrayObject is a class of PHP' => ['post', fn (ArrayObject $a) => 1],
                'Countable cannot be created' => ['post', fn (Countable $a) => 1],
                'intersection type' => ['post', fn (Countable&Traversable $a) => 1],
                'array is not a type of a text' => ['get', fn (string|array $a) => 1],
                'Filled is not a type of a text in a URL' => ['get', fn (Filled|string $a) => 1],
                'Filled is not a type of a text in a path' => ['get', fn (Filled $d) => 1, '/{d}'],
            ] as $says => $declared) {
                [$method, $handler, $path] = [...$declared, '/'];
                $log = tempnam(sys_get_temp_dir(), 'log');
                ini_set('error_log', $log);
                $app = new App();
                $app->$method($path, $handler);
                throws(LogicException::class, $says, $app->prepare(...));
                $app = new App();
                $app->$method($path, $handler);
                same(
                    500,
                    $app->handle(
                        Request::json(
                            $method = strtoupper($method),
                            strtr($path, ['{d}' => 'x']),
                            []
                        )
                    )->status
                );
                same([$says, true], [$says, str_contains(file_get_contents($log), $says)]);
                unlink($log);
            }
            ini_set('error_log', '/dev/null');
            $app = new App();
            $app->post('/', fn (HalfFilled $a) => 1);
            throws(LogicException::class, 'Filled and other types', $app->prepare(...));
        },
    ];
}
