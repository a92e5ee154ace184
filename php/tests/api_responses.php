<?php

// Tests what Surus\Api sends: data, problems, and failures that only the log explains.

use Surus\Api\App;
use Surus\Api\Json;
use Surus\Api\Output;
use Surus\Api\Problem;
use Surus\Api\Request;
use Surus\Api\Response;

enum Weekday: string
{
    case Monday = 'mon';
}

/** The response to GET / of a handler, and what was logged. */
$ask = static function (callable $handler, bool $development = false): array {
    ini_set('error_log', $log = tempnam(sys_get_temp_dir(), 'log'));
    $response = (new App($development))->get('/', $handler)->handle(Request::of('GET', '/'));
    $logged = file_get_contents($log);
    unlink($log);
    ini_set('error_log', '/dev/null');

    return [$response, $logged];
};

return [
    'what a handler returns is sent as JSON' => static function () use ($ask): void {
        foreach ([
            '{"a":"ä/b","f":1.0}' => fn () => ['a' => 'ä/b', 'f' => 1.0],
            '"text"' => fn () => 'text',
            'false' => fn () => false,
            '[1,2]' => function () { yield 'x' => 1; yield 'x' => 2; },
            '{"a":1}' => fn () => (object) ['a' => 1],
            '[]' => fn () => new ArrayIterator([]),
            '{"a":["2020-01-01T00:00:00+02:00"],"o":{"at":"2020-01-01T00:00:00.010000+00:00"},"e":{},"z":"Europe/Berlin"}' =>
                fn () =>
                [
                'a' => [new DateTime('2020-01-01T00:00:00+02:00')],
                'o' => new class implements JsonSerializable {
                    function jsonSerialize(): object {
                        return (object) ['at' => new DateTimeImmutable('2020-01-01T00:00:00.01Z')];
                    }
                },
                'e' => new stdClass(),
                'z' => new DateTimeZone('Europe/Berlin'),
            ],
            '{"at":"2020-01-01T00:00:00+00:00","next":null}' => fn () =>
                new class(new DateTime('2020-01-01T00:00:00Z')) implements JsonSerializable {
                    private int $secret = 1;

                    function __construct(public DateTime $at, public ?self $next = null) {
                    }

                    function jsonSerialize(): static {
                        return $this;
                    }
                },
            '["\\"timezone_type\\":"]' => fn () => ['"timezone_type":'],
            '{"timezone_type":{"x":1.0}}' => fn () => ['timezone_type' => ['x' => 1.0]],
        ] as $expected => $handler) {
            [$response] = $ask($handler);
            same(
                [$expected, 200, 'application/json'],
                [$response->body, $response->status, $response->header('Content-Type')]
            );
        }
        [$nothing] = $ask(function (): void {});
        same([204, '', null], [$nothing->status, $nothing->body, $nothing->header('Content-Type')]);
    },
    'values next to a date are those of json_encode()' => static function (): void {
        $object = new class {
            public int $a = 1;
            protected int $b = 2;
            private int $c = 3;
            public int $unset;
        };
        $itself = new class(['m' => 1]) extends ArrayObject implements JsonSerializable {
            public int $own = 1;

            function jsonSerialize(): static {
                return $this;
            }
        };
        $other = new class(['m' => 1]) extends ArrayObject implements JsonSerializable {
            function jsonSerialize(): array {
                return ['j' => new ArrayObject($this->getArrayCopy())];
            }
        };
        $set = new SplObjectStorage();
        $set[$object] = 1;
        $stack = new SplStack();
        $stack[] = 1;
        $at = new DateTimeImmutable('2020-01-01T00:00:00Z');
        foreach ([
            new ArrayObject(['x' => 1]),
            new ArrayObject([1, 2.0]),
            new ArrayObject(),
            new ArrayObject(['x' => ['y' => new ArrayObject([Weekday::Monday, [], null])]]),
            [Weekday::Monday],
            new ArrayObject(["\0hidden" => 1, '' => 2, '1' => 3]),
            new ArrayObject(['x' => 1], ArrayObject::STD_PROP_LIST),
            new ArrayObject(['x' => 1], ArrayObject::ARRAY_AS_PROPS),
            new ArrayObject($object),
            new ArrayObject(new ArrayIterator($object)),
            new ArrayIterator(['x' => new ArrayIterator([1])]),
            new RecursiveArrayIterator([1, [2]]),
            SplFixedArray::fromArray([1, new ArrayObject(['x' => 1])]),
            $itself,
            $other,
            $object,
            $set,
            $stack,
            new DateInterval('P1D'),
            fn () => 1,
            (object) ['1' => 1, '' => 2, 'b' => false],
        ] as $value) {
            same(
                '{"v":'.json_encode($value, Json::FLAGS).',"at":"2020-01-01T00:00:00+00:00"}',
                Json::encode(['v' => $value, 'at' => $at])
            );
        }
        same(
            '{"at":"2020-01-01T00:00:00+00:00","in":{"0":"2020-01-01T00:00:00+00:00"}}',
            Json::encode(new ArrayObject(['at' => $at, 'in' => new ArrayIterator([$at])]))
        );
    },
    'responses carry status and headers' => static function () use ($ask): void {
        [$created] = $ask(
            fn () => Response::created('/x/1', ['id' => 1])->with(
                'Set-Cookie',
                'a=1',
                'b=2'
            )->with('location', '/x/2')
        );
        same(
            [201, '/x/2', 'a=1, b=2', '{"id":1}'],
            [
                $created->status,
                $created->header('Location'),
                $created->header('set-cookie'),
                $created->body
            ]
        );
        same(
            ['text/csv', 'a;b'],
            [($raw = Response::raw('a;b', 'text/csv'))->header('content-type'), $raw->body]
        );
        foreach (["a\r\nX-Evil: 1", "a\nb", "a\0"] as $value) {
            throws(
                InvalidArgumentException::class,
                'line break or NUL',
                fn () => Response::empty(204, ['X' => $value])
            );
            throws(
                InvalidArgumentException::class,
                'line break or NUL',
                fn () => Response::empty()->with('X', 'fine', $value)
            );
        }
        foreach (["a\r\nX-Evil: 1", "a\0", 'Bad Name', 'X:', 'Ü', ''] as $name) {
            throws(
                InvalidArgumentException::class,
                'is not the name of a header',
                fn () => Response::empty(204, [$name => 'x'])
            );
        }
        foreach (
            [
                'json' => Response::json(...),
                'raw' => fn (...$rest) => Response::raw('{}', 'text/plain', 200, ...$rest)
            ] as $form => $make
        ) {
            $own = 'raw' === $form
                ? $make(headers: ['content-type' => 'application/hal+json'])
                : $make([], headers: ['content-type' => 'application/hal+json']);
            same([$form, 'application/hal+json'], [$form, $own->header('Content-Type')]);
        }
        throws(InvalidArgumentException::class, 'not the status', fn () => Response::empty(101));
    },
    'problems follow RFC 9457' => static function () use ($ask): void {
        [$response, $logged] = $ask(
            fn () => throw new Problem(
                409,
                'sold',
                [['detail' => 'x', 'pointer' => '#/a']],
                ['Retry-After' => '5'],
                'https://example.com/sold',
                'Sold out'
            )
        );
        same(
            [409, 'application/problem+json', '5', ''],
            [
                $response->status,
                $response->header('Content-Type'),
                $response->header('Retry-After'),
                $logged
            ]
        );
        same(
            [
                'type' => 'https://example.com/sold',
                'title' => 'Sold out',
                'status' => 409,
                'detail' => 'sold',
                'errors' => [['detail' => 'x', 'pointer' => '#/a']]
            ],
            $response->data()
        );
        [$other] = $ask(fn () => throw new Problem(418, "not UTF-8: \xff"));
        same(
            ['Status 418', "not UTF-8: \u{fffd}"],
            [$other->data()['title'], $other->data()['detail']]
        );
    },
    'exceptions show a trace in development only, and are logged' =>
    static function () use ($ask): void {
        $secret = fn () => throw new RuntimeException("password \xff");
        [$response, $logged] = $ask($secret);
        same(
            [500, '{"type":"about:blank","title":"Internal Server Error","status":500}'],
            [$response->status, $response->body]
        );
        same(true, str_contains($logged, 'RuntimeException: password'));
        [$response] = $ask($secret, true);
        $data = $response->data();
        same(
            [500, "password \u{fffd}", 'RuntimeException', __FILE__.':'.(__LINE__ - 10), true],
            [
                $response->status,
                $data['detail'],
                $data['exception'],
                $data['at'],
                [] !== $data['trace']
            ]
        );
    },
    'data that JSON cannot express is 500 with its place in the log' =>
    static function () use ($ask): void {
        $cycle = new stdClass();
        $cycle->self = $cycle;
        foreach ([
            'the value is at $.users[1].name' => ['users' => [['name' => 'a'], ['name' => "\xff"]]],
            'a key of $.a is not UTF-8' => ['a' => ["\xff" => 1]],
            'the value is at $[0]' => [INF],
            'Recursion' => $cycle,
            'Type is not supported' => ['x' => fopen('php://memory', 'r')],
            'Maximum stack depth' => array_reduce(range(1, 600), fn ($deep) => [$deep]),
        ] as $says => $data) {
            [$response, $logged] = $ask(fn () => $data);
            same([$says, 500, true], [$says, $response->status, str_contains($logged, $says)]);
            same(500, $response->data()['status']);
        }
    },
    'middleware of the application sees errors, and its own are answered' =>
    static function (): void {
        ini_set('error_log', '/dev/null');
        $app = new App(false);
        $app->use(fn (Request $request, callable $next) => $next($request)->with('X-Seen', '1'));
        $app->use(
            fn (Request $request, callable $next) => '/mine' === $request->path
                ? throw new Problem(403)
                : $next($request)
        );
        $app->use(
            fn (Request $request, callable $next) => '/wrong' === $request->path
                ? 'no response'
                : $next($request)
        );
        $app->get('/bug', fn () => throw new Exception('bug'));
        $ask = static fn (string $path): array => [
            ($r = $app->handle(Request::of('GET', $path)))->status,
            $r->header('X-Seen')
        ];
        same(
            [[404, '1'], [500, '1'], [403, null], [500, null]],
            array_map($ask, ['/no', '/bug', '/mine', '/wrong'])
        );
    },
    'printed output is logged and not sent' => static function (): void {
        ini_set('error_log', $log = tempnam(sys_get_temp_dir(), 'log'));
        $level = ob_get_level();
        $output = new Output();
        echo 'one';
        ob_flush();
        ob_start();
        echo 'two', str_repeat("\xff", 100_000);
        $output->discard();
        same(
            [$level, true, true],
            [
                ob_get_level(),
                str_contains($said = file_get_contents($log), '100006 bytes'),
                str_contains($said, '"onetwo')
            ]
        );
        unlink($log);
        ini_set('error_log', '/dev/null');
    },
    'a request without a server has headers, query and body' => static function (): void {
        $request = Request::of(
            'PUT',
            '/a%20b?x[]=1&y=2',
            ['X-Some-Name' => 'v', 'content-type' => 'text/plain'],
            'body'
        );
        same(
            ['PUT', '/a%20b', ['x' => ['1'], 'y' => '2'], 'v', 'text/plain', null, 'body'],
            [
                $request->method,
                $request->path,
                $request->query,
                $request->header('x-some-name'),
                $request->header('Content-Type'),
                $request->header('X-None'),
                $request->body()
            ]
        );
        $before = [$_SERVER, $_GET];
        $_SERVER = [
            'REQUEST_METHOD' => 'GET',
            'REQUEST_URI' => 'http://user@host:80/path?x=1',
            'HTTP_X_A' => 'b'
        ];
        $_GET = ['x' => '1'];
        $request = Request::fromGlobals();
        [$_SERVER, $_GET] = $before;
        same(
            ['/path', ['x' => '1'], 'b'],
            [$request->path, $request->query, $request->header('x-a')]
        );
    },
];
