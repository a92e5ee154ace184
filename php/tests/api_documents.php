<?php

// Tests the OpenAPI document that Surus\Api derives from routes.

namespace Surus\Tests\Documents {
    use Surus\Api\ListOf;

    enum Size: int
    {
        case Small = 1;
        case Large = 2;
    }

    final class Tree
    {
        public function __construct(
            public string $name,
            #[ListOf(self::class)] public array $branches = [],
            public ?Size $size = Size::Small,
            public ?\DateTimeImmutable $planted = null,
            public mixed $note = null,
        ) {
        }
    }
}

namespace Surus\Tests\Documents {
    final class Opaque implements \JsonSerializable
    {
        public function jsonSerialize(): mixed
        {
            return 'anything';
        }
    }
}

namespace Surus\Tests\Documents {
    use Surus\Api\ListOf;

    interface Priced
    {
    }

    final class Point
    {
        public function __construct(public int $x, public int $y = 0)
        {
        }
    }

    final class Account
    {
        public int $total = 3;
        public Point|string|null $place = null;
        /** @var list<Point> */
        #[ListOf(Point::class)]
        public array $path = [];
        public \Countable&\Traversable $both;
        public static int $made = 0;
        protected int $hidden = 1;

        public function __construct(
            private \PDO $db,
            private int $secret,
            public readonly string $name,
            public ?self $parent = null
        )
        {
        }
    }

    /** As a body, it has one more member than as a result. */
    final class Login
    {
        public function __construct(
            public string $user,
            private string $password,
            public ?Login $next = null
        )
        {
        }
    }

    final class Rows implements \IteratorAggregate
    {
        public int $count = 0;

        public function getIterator(): \Iterator
        {
            return new \ArrayIterator([1]);
        }
    }
}

namespace Surus\Tests\Documents\Other {
    final class Tree
    {
        public function __construct(public int|float $height)
        {
        }
    }
}

namespace {
    use Surus\Api\App;
    use Surus\Api\Group;
    use Surus\Api\Request;
    use Surus\Api\Responds;
    use Surus\Api\Response;
    use Surus\Tests\Documents\Other\Tree as Other;
    use Surus\Tests\Documents\Account;
    use Surus\Tests\Documents\Login;
    use Surus\Tests\Documents\Opaque;
    use Surus\Tests\Documents\Point;
    use Surus\Tests\Documents\Priced;
    use Surus\Tests\Documents\Rows;
    use Surus\Tests\Documents\Size;
    use Surus\Tests\Documents\Tree;

    $document = static function (App $app): array {
        $response = $app->handle(Request::of('GET', '/openapi.json'));
        same(200, $response->status);

        return json_decode($response->body, true, flags: JSON_THROW_ON_ERROR);
    };

    return [
        'document has the parameters, bodies and results of the routes' => static function () use (
            $document
        ): void {
            $app = (new App())->openApi('Trees', '2.1');
            $app->group('/trees', function (Group $trees): void {
                $trees->get(
                    '/{id:int}',
                    /** Shows a tree. */ fn (
                        int $id,
                        int $depth,
                        ?string $q = null,
                        Size $size = Size::Large
                    ): Tree => new Tree('x')
                );
                /*
                 * The comment must be the closure's own.
                 */
                $trees->put('/{id}', fn (string $id, Tree $tree): Other => new Other(1));
                $trees->delete('/{id:int}', function (int $id): void {});
            });
            $found = $document($app);
            same(
                ['3.1.0', 'Trees', '2.1', ['/trees/{id}']],
                [
                    $found['openapi'],
                    $found['info']['title'],
                    $found['info']['version'],
                    array_keys($found['paths'])
                ]
            );
            ['get' => $get, 'put' => $put, 'delete' => $delete] = $found['paths']['/trees/{id}'];
            same(['getTreesId', 'Shows a tree.'], [$get['operationId'], $get['summary']]);
            same([
                [
                    'name' => 'id',
                    'in' => 'path',
                    'required' => true,
                    'schema' => ['type' => 'integer']
                ],
                [
                    'name' => 'depth',
                    'in' => 'query',
                    'required' => true,
                    'schema' => ['type' => 'integer']
                ],
                [
                    'name' => 'q',
                    'in' => 'query',
                    'required' => false,
                    'schema' => ['type' => 'string']
                ],
                [
                    'name' => 'size',
                    'in' => 'query',
                    'required' => false,
                    'schema' => ['enum' => [1, 2], 'default' => 2]
                ],
            ], $get['parameters']);
            same(
                '#/components/schemas/Tree',
                $get['responses']['200']['content']['application/json']['schema']['$ref']
            );
            same(
                [true, '#/components/schemas/Tree'],
                [
                    $put['requestBody']['required'],
                    $put['requestBody']['content']['application/json']['schema']['$ref']
                ]
            );
            same(
                '#/components/schemas/Surus.Tests.Documents.Other.Tree',
                $put['responses']['200']['content']['application/json']['schema']['$ref']
            );
            same([204, 'default'], array_keys($delete['responses']));
            $schemas = $found['components']['schemas'];
            same(['type' => 'object', 'properties' => [
                'name' => ['type' => 'string'],
                'branches' => [
                    'type' => 'array',
                    'items' => ['$ref' => '#/components/schemas/Tree'],
                    'default' => []
                ],
                'size' => ['anyOf' => [['enum' => [1, 2]], ['type' => 'null']], 'default' => 1],
                'planted' => [
                    'anyOf' => [['type' => 'string', 'format' => 'date-time'], ['type' => 'null']]
                ],
                'note' => [], // {}
            ], 'required' => ['name']], $schemas['Tree']);
            same(
                ['anyOf' => [['type' => 'integer'], ['type' => 'number']]],
                $schemas['Surus.Tests.Documents.Other.Tree']['properties']['height']
            );
        },
        'summary is the first line of a doc comment, if it has one' => static function () use (
            $document
        ): void {
            $app = (new App())->openApi('Summaries');
            $app->get('/empty', /** */ fn () => 1);
            $app->get('/stars', /** **/ fn () => 1);
            $app->get('/lines', /**
                                 *
                                 */ fn () => 1);
            $app->get('/tag', /** @internal */ fn () => 1);
            $app->get('/slash', /** / redirects. */ fn () => 1);
            $app->get('/more', /** Shows it. **/ fn () => 1);
            $app->get('/second', /**
                                  * Lists all.
                                  *
                                  * With their items.
                                  */ fn () => 1);
            same(
                [
                    '/empty' => null,
                    '/lines' => null,
                    '/more' => 'Shows it.',
                    '/second' => 'Lists all.',
                    '/slash' => '/ redirects.',
                    '/stars' => null,
                    '/tag' => null,
                ],
                array_map(
                    static fn (array $path) => $path['get']['summary'] ?? null,
                    $document($app)['paths']
                )
            );
        },
        'response with a status of its own is documented as such' => static function () use (
            $document
        ): void {
            $app = (new App())->openApi('Statuses');
            $app->post(
                '/declared',
                #[Responds(201, Tree::class)]
                #[Responds(202)]
                fn (): Response => Response::created('/declared/1', new Tree('oak'))
            );
            $app->post('/open', fn (): Response => Response::created('/open/1'));
            $app->get('/untyped', fn () => 1);
            $app->get('/typed', fn (): int => 1);
            $app->get('/never', fn (): never => throw new Exception());
            $paths = $document($app)['paths'];
            same(201, $app->handle(Request::of('POST', '/declared'))->status);
            $declared = $paths['/declared']['post']['responses'];
            same([201, 202, 'default'], array_keys($declared));
            same('Created', $declared[201]['description']);
            same(
                '#/components/schemas/Tree',
                $declared[201]['content']['application/json']['schema']['$ref']
            );
            same(['description' => 'Accepted'], $declared[202]);
            same(['2XX', 'default'], array_keys($paths['/open']['post']['responses']));
            same(['2XX', 'default'], array_keys($paths['/untyped']['get']['responses']));
            same([200, 'default'], array_keys($paths['/typed']['get']['responses']));
            same(['default'], array_keys($paths['/never']['get']['responses']));
        },
        'each operation has an id of its own' => static function () use ($document): void {
            $app = (new App())->openApi('Ids');
            foreach (['/users/id', '/users/{id}', '/a-b', '/a_b', '/a-b2', '/ab2'] as $path) {
                $app->get($path, fn () => 1);
            }
            $ids = [];
            foreach ($document($app)['paths'] as $operations) {
                array_push($ids, ...array_column($operations, 'operationId'));
            }
            same([6, 6], [count($ids), count(array_unique($ids))]);
            same(true, in_array('getUsersId', $ids, true) && in_array('getUsersId2', $ids, true));
        },
        'paths that differ only in the names of their parameters are one' =>
        static function () use ($document): void {
            $app = (new App())->openApi('Merged');
            $app->get('/o/{id:int}/x', fn (int $id) => 1);
            $app->get('/o/{name}/x', fn (string $name) => 1);
            $app->put('/o/{key}/x', fn (string $key) => 1);
            $paths = $document($app)['paths'];
            same(['/o/{id}/x'], array_keys($paths));
            same(['get', 'put'], array_keys($paths['/o/{id}/x']));
            same(
                [['id', 'integer'], ['id', 'string']],
                array_map(
                    static fn (array $one) => [
                        $one['parameters'][0]['name'],
                        $one['parameters'][0]['schema']['type']
                    ],
                    array_values($paths['/o/{id}/x'])
                )
            );
        },
        'method that OpenAPI does not know is left out' => static function () use (
            $document
        ): void {
            $app = (new App())->openApi('Purge');
            $app->map(['GET', 'PURGE', 'TRACE'], '/cache', fn () => 1);
            $app->map(['PURGE'], '/all', fn () => 1);
            $paths = $document($app)['paths'];
            same(['/cache'], array_keys($paths));
            same(['get', 'trace'], array_keys($paths['/cache']));
        },
        'part of a union that can be anything has an empty schema' => static function (): void {
            $app = (new App())->openApi('Union');
            $app->get('/', fn (): Tree|Opaque => new Opaque());
            $app->get('/null', fn (): Opaque|int|null => 1);
            $json = $app->handle(Request::of('GET', '/openapi.json'))->body;
            same(false, str_contains($json, '[]]') || str_contains($json, '[],'));
            same(true, str_contains($json, '{"anyOf":[{"$ref":"#/components/schemas/Tree"},{}]}'));
            same(true, str_contains($json, '{"anyOf":[{},{"type":"integer"}]}'));
        },
        'type that can be anything has an empty schema' => static function (): void {
            $app = (new App())->openApi('Any');
            $app->post('/', fn (Tree $tree, mixed $x): mixed => $x);
            $json = $app->handle(Request::of('GET', '/openapi.json'))->body;
            same(
                [true, true],
                [
                    str_contains($json, '"note":{}'),
                    str_contains($json, '{"name":"x","in":"query","required":false,"schema":{}}')
                ]
            );
        },
        'document of an API without routes is valid' => static function () use ($document): void {
            $app = (new App())->openApi('None');
            same(
                '{"openapi":"3.1.0","info":{"title":"None","version":"1.0.0"},"paths":{},"components":{"schemas":{},',
                substr($app->handle(Request::of('GET', '/openapi.json'))->body, 0, 99)
            );
            same(404, (new App())->handle(Request::of('GET', '/openapi.json'))->status);
        },
        'OpenAPI describes results by what JSON has of them' => static function () use (
            $document
        ): void {
            $app = (new App())->openApi('Test');
            $app->get('/account', fn (): Account => throw new Exception());
            $app->get('/priced', fn (): Priced => throw new Exception());
            $app->get('/rows', fn (): Rows => throw new Exception());
            $app->get('/point', fn (): ?Point => null);
            $app->post('/login', fn (Login $login): Login => $login);
            $app->prepare();
            $got = $document($app);
            $responses = static fn (
                string $path,
                string $method = 'get'
            ) => $got['paths'][$path][$method]['responses'];
            $schema = static fn (
                string $path,
                string $method = 'get'
            ) => $responses($path, $method)['200']['content']['application/json']['schema'];
            $schemas = $got['components']['schemas'];
            $point = ['$ref' => '#/components/schemas/Point'];
            same(['$ref' => '#/components/schemas/Account'], $schema('/account'));
            same([
                'type' => 'object',
                'properties' => [
                    'total' => ['type' => 'integer'],
                    'place' => ['anyOf' => [$point, ['type' => 'string'], ['type' => 'null']]],
                    'path' => ['type' => 'array', 'items' => $point],
                    'both' => [],
                    'name' => ['type' => 'string'],
                    'parent' => [
                        'anyOf' => [['$ref' => '#/components/schemas/Account'], ['type' => 'null']]
                    ],
                ],
                'required' => ['total', 'place', 'path', 'name', 'parent'],
            ], $schemas['Account']);
            same([[], []], [$schema('/priced'), $schema('/rows')]);
            same($point, $schema('/point'));
            same([200, 204, 'default'], array_keys($responses('/point')));
            same(['x'], $schemas['Point']['required']);
            // Body and result differ.
            same(['user', 'password'], $schemas['Login']['required']);
            same(['$ref' => '#/components/schemas/LoginResult'], $schema('/login', 'post'));
            same(['user', 'next'], array_keys($schemas['LoginResult']['properties']));
            same(
                '#/components/schemas/LoginResult',
                $schemas['LoginResult']['properties']['next']['anyOf'][0]['$ref']
            );
        },
    ];
}
