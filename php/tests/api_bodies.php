<?php

// Tests that Surus\Api reads JSON into arrays and typed objects, and refuses what does not fit.

namespace Surus\Tests\Bodies {
    use Surus\Api\ListOf;

    enum Kind: string
    {
        case Ox = 'ox';
        case Elephant = 'elephant';
    }

    final class Leg
    {
        public function __construct(public float $length)
        {
        }
    }

    final class Animal
    {
        public function __construct(
            public string $name,
            public int $age,
            public Kind $kind,
            #[ListOf(Leg::class)] public array $legs,
            public ?self $mother = null,
            public bool $tame = true,
            public int|string|null $tag = null,
            public ?\DateTimeImmutable $born = null,
            public array $notes = [],
            #[ListOf('int')] public array $numbers = [],
            #[ListOf('mixed')] public array $any = [],
        ) {
            if ($age < 0) {
                throw new \InvalidArgumentException('the age must not be negative');
            }
        }
    }

    enum Rank: int
    {
        case First = 1;
    }

    final class Ranked
    {
        public function __construct(public Rank $rank)
        {
        }
    }

    final class Unreadable
    {
        public function __construct(public \Countable $what)
        {
        }
    }
}

namespace {
    use Surus\Api\App;
    use Surus\Api\Request;
    use Surus\Api\Response;
    use Surus\Tests\Bodies\Animal;
    use Surus\Tests\Bodies\Ranked;
    use Surus\Tests\Bodies\Unreadable;

    $app = new App(maxBody: 500_000);
    $app->post('/array', fn (array $body) => $body);
    $app->post('/animal', fn (Animal $animal) => $animal);
    $app->post('/unreadable', fn (Unreadable $body) => $body);
    $app->delete('/maybe', fn (?array $body) => ['body' => $body]);
    $app->get('/query', fn (int $page, string $q = 'all', ?float $max = null) => [$page, $q, $max]);
    $post = static fn (
        string $path,
        string $body,
        string $type = 'application/json',
        array $headers = []
    ): Response => $app->handle(
        Request::of('POST', $path, $headers + ['Content-Type' => $type], $body)
    );
    $errors = static function (Response $response): array {
        same(
            [422, 'application/problem+json'],
            [$response->status, $response->header('Content-Type')]
        );

        return array_column($response->data()['errors'], 'detail', 'pointer');
    };
    $surus = ['name' => 'Surus', 'age' => 3, 'kind' => 'elephant', 'legs' => []];

    return [
        'times of other languages and numbers of JSON are read' => static function () use (
            $app,
            $surus
        ): void {
            foreach (['2020-02-29T10:00:00.123456789Z', '2020-02-29T10:00:00.123456Z'] as $born) {
                $answer = $app->handle(
                    Request::json('POST', '/animal', ['born' => $born] + $surus)
                );
                same('2020-02-29T10:00:00.123456+00:00', $answer->data()['born']);
            }
            $app = new App();
            $app->post('/', fn (Ranked $body) => $body->rank->name);
            foreach (['{"rank":1}', '{"rank":1.0}', '{"rank":10e-1}'] as $body) {
                same(
                    '"First"',
                    $app->handle(
                        Request::of('POST', '/', ['Content-Type' => 'application/json'], $body)
                    )->body
                );
            }
            foreach (['1.5', '"1"', 'true'] as $rank) {
                same(
                    422,
                    $app->handle(
                        Request::of(
                            'POST',
                            '/',
                            ['Content-Type' => 'application/json'],
                            "{\"rank\":$rank}"
                        )
                    )->status
                );
            }
        },
        'body becomes an array or an object of its class' => static function () use (
            $post,
            $app,
            $surus
        ): void {
            same('{"a":[1,2.0,{"b":null}]}', $post('/array', '{"a":[1,2.0,{"b":null}]}')->body);
            $animal = $app->handle(
                Request::json(
                    'POST',
                    '/animal',
                    [
                        'mother' => ['legs' => [['length' => 2]], 'tag' => 7] + $surus,
                        'tag' => 'x',
                        'born' => '2020-02-29T10:00:00.5+01:00',
                        'notes' => ['a' => [1]],
                        'numbers' => [1, 2.0],
                        'any' => [null, 'x', [1]],
                        'unknown' => 1,
                        'age' => 4.0
                    ] + $surus
                )
            )->data();
            same([null, 'x', [1]], $animal['any']);
            same(
                [['length' => 2.0], 7, true, 'x', ['a' => [1]], [1, 2], 4, 'elephant'],
                [
                    $animal['mother']['legs'][0],
                    $animal['mother']['tag'],
                    $animal['tame'],
                    $animal['tag'],
                    $animal['notes'],
                    $animal['numbers'],
                    $animal['age'],
                    $animal['kind']
                ]
            );
            same('2020-02-29T10:00:00.500000+01:00', $animal['born']);
        },
        'everything that is wrong is listed with its place' => static function () use (
            $app,
            $errors,
            $surus
        ): void {
            $ask = static fn (mixed $data): array => $errors(
                $app->handle(Request::json('POST', '/animal', $data))
            );
            same([
                '#/age' => 'must be an integer',
                '#/kind' => 'must be one of "ox", "elephant"',
                '#/legs/0/length' => 'must be a number',
                '#/legs/1' => 'must be an object',
                '#/mother/name' => 'is missing',
                '#/mother/age' => 'is missing',
                '#/mother/kind' => 'is missing',
                '#/mother/legs' => 'is missing',
                '#/tame' => 'must be a boolean',
                '#/tag' => 'must be a string or an integer or null',
                '#/born' => 'must be a date and time of RFC 3339 or null',
                '#/numbers/1' => 'must be an integer'
            ],
                $ask(
                    [
                        'age' => '3',
                        'kind' => 'dog',
                        'legs' => [['length' => '2'], [1]],
                        'mother' => new stdClass(),
                        'tame' => 1,
                        'tag' => 1.5,
                        'born' => 'tomorrow',
                        'numbers' => [1, 1.5]
                    ] + $surus
                ));
            same(['#' => 'must be an object'], $ask([]));
            same(['#' => 'must be an object'], $ask('x'));
            same(['#' => 'must be an object'], $ask(null));
            same(
                ['#/name' => 'must be a string', '#/legs' => 'must be a list'],
                $ask(['name' => null, 'legs' => new stdClass()] + $surus)
            );
            same(['#' => 'the age must not be negative'], $ask(['age' => -1] + $surus));
            same(['#/age' => 'must be an integer'], $ask(['age' => 1e300] + $surus));
            same(100, count($ask(['legs' => array_fill(0, 5000, 1)] + $surus)));
        },
        'body that is not JSON is 400 with the reason' => static function () use ($post): void {
            foreach ([
                '{"a":' => 'is not JSON',
                "{'a':1}" => 'is not JSON',
                "\u{feff}{}" => 'is not JSON',
                '{} {}' => 'is not JSON',
                'NaN' => 'is not JSON',
                ' ' => 'has no body',
                '["\ud800"]' => 'surrogate',
                "[\"\xff\"]" => 'not valid UTF-8',
                "\0{\0}" => 'is not JSON',
                '{"\u0000a":1}' => 'begins with NUL',
                '{"a":1,"b":2,"a":3}' => 'a name twice',
                '{"a":1,"\u0061":3}' => 'a name twice',
                '[{"x":{"a":":","a":":"}}]' => 'a name twice',
                '{"1":1,"1":2}' => 'a name twice',
                '{"a":[-1e999]}' => 'too large',
                '1e999' => 'too large',
                str_repeat('[', 65).str_repeat(']', 65) => 'deeper than 64',
                str_repeat('{"a":', 90_000) => 'deeper than 64',
            ] as $body => $says) {
                $response = $post('/array', (string) $body);
                same(
                    [substr((string) $body, 0, 30), 400, true],
                    [
                        substr((string) $body, 0, 30),
                        $response->status,
                        str_contains($response->data()['detail'], $says)
                    ]
                );
            }
        },
        'colons and quotes inside strings are not taken for members' => static function () use (
            $post
        ): void {
            foreach (
                [
                    '{"a:":":","b":"\\":\\\\"}',
                    '["\\\\",{"\\\\\"":":"}]',
                    '{"":{},"0":[],"a":{"a":{"a":1}}}',
                    '":"',
                    '{"a":"'.str_repeat('\\\\\"x:', 60_000).'"}'
                ] as $json
            ) {
                same('"' === $json[0] ? 422 : 200, $post('/array', $json)->status);
            }
        },
        'other media types, charsets and codings are 415' => static function () use (
            $post,
            $app
        ): void {
            foreach (
                [
                    'text/plain',
                    'application/x-www-form-urlencoded',
                    'application/jsonp',
                    'application/json; charset=utf-16',
                    'application/json;charset="latin1"',
                    'json',
                    ''
                ] as $type
            ) {
                $response = $post('/array', '{}', $type);
                same(
                    [$type, 415, 'application/json'],
                    [$type, $response->status, $response->header('Accept')]
                );
            }
            same(415, $post('/array', '{}', headers: ['Content-Encoding' => 'gzip'])->status);
            foreach (
                [
                    'application/json',
                    'Application/JSON ; Charset="UTF-8"',
                    'application/merge-patch+json',
                    'application/vnd.a+b+json',
                    'application/json; profile=x'
                ] as $type
            ) {
                same([$type, 200], [$type, $post('/array', '{}', $type)->status]);
            }
            same(
                [400, 'the request has no body, and needs JSON'],
                [
                    ($none = $app->handle(Request::of('POST', '/array')))->status,
                    $none->data()['detail']
                ]
            );
        },
        'body that may be null may be missing' => static function () use ($app): void {
            $ask = static fn (string $body): Response => $app->handle(
                Request::of('DELETE', '/maybe', ['Content-Type' => 'application/json'], $body)
            );
            same(
                ['{"body":null}', '{"body":null}', '{"body":[1]}'],
                [$ask('')->body, $ask('null')->body, $ask('[1]')->body]
            );
            same([400, 422], [$ask(' ')->status, $ask('1')->status]);
        },
        'body above the limit is 413' => static function () use ($post): void {
            same(413, $post('/array', '["'.str_repeat('x', 500_000).'"]')->status);
            same(200, $post('/array', '["'.str_repeat('x', 499_996).'"]')->status);
        },
        'query parameters have the types of the handler' => static function () use ($app): void {
            $ask = static fn (string $query): Response => $app->handle(
                Request::of('GET', "/query?$query")
            );
            same('[2,"all",null]', $ask('page=2')->body);
            same('[2,"a b",1.5]', $ask('page=2&q=a+b&max=1.5')->body);
            same([['detail' => 'is missing', 'parameter' => 'page']], $ask('')->data()['errors']);
            same(
                [
                    ['detail' => 'must be an integer', 'parameter' => 'page'],
                    ['detail' => 'must be a string', 'parameter' => 'q'],
                    ['detail' => 'must be a number', 'parameter' => 'max']
                ],
                $ask('page=x&q[]=1&max=')->data()['errors']
            );
            same(
                [['detail' => 'must be UTF-8', 'parameter' => 'q']],
                $ask('page=1&q=%ff')->data()['errors']
            );
        },
        'query parameter without a type takes a single value' => static function (): void {
            $ask = static fn (string $query): Response => (new App())
                ->get('/', fn ($ids) => $ids)
                ->get('/mixed', fn (mixed $ids) => $ids)
                ->handle(Request::of('GET', $query));
            same(['"1"', '""'], [$ask('/?ids=1')->body, $ask('/mixed?ids=')->body]);
            foreach ([
                '/?ids[]=1' => 'must be a single value',
                '/mixed?ids[a]=1' => 'must be a single value',
                '/?ids=%ff' => 'must be UTF-8',
            ] as $query => $detail) {
                $response = $ask($query);
                same(
                    [422, [['detail' => $detail, 'parameter' => 'ids']]],
                    [$response->status, $response->data()['errors']]
                );
            }
        },
        'class that JSON cannot describe is an error of the application' => static function () use (
            $post,
            $app
        ): void {
            ini_set('error_log', $log = tempnam(sys_get_temp_dir(), 'log'));
            same(500, $post('/unreadable', '{"what":1}')->status);
            same(
                true,
                str_contains(file_get_contents($log), 'Countable cannot be created from JSON')
            );
            unlink($log);
            ini_set('error_log', '/dev/null');
            throws(
                LogicException::class,
                'Countable cannot be created from JSON',
                static fn () => $app->prepare()
            );
        },
    ];
}
