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
    use Surus\Tests\Documents\Other\Tree as Other;
    use Surus\Tests\Documents\Size;
    use Surus\Tests\Documents\Tree;

    $document = static function (App $app): array {
        $response = $app->handle(Request::of('GET', '/openapi.json'));
        same(200, $response->status);

        return json_decode($response->body, true, flags: JSON_THROW_ON_ERROR);
    };

    return [
        'document has the parameters, bodies and results of the routes' => static function () use ($document): void {
            $app = (new App())->openApi('Trees', '2.1');
            $app->group('/trees', function (Group $trees): void {
                $trees->get('/{id:int}', /** Shows a tree. */ fn (int $id, int $depth, ?string $q = null, Size $size = Size::Large): Tree => new Tree('x'));
                /*
                 * The comment must be the closure's own.
                 */
                $trees->put('/{id}', fn (string $id, Tree $tree): Other => new Other(1));
                $trees->delete('/{id:int}', function (int $id): void {});
            });
            $found = $document($app);
            same(['3.1.0', 'Trees', '2.1', ['/trees/{id}']], [$found['openapi'], $found['info']['title'], $found['info']['version'], array_keys($found['paths'])]);
            ['get' => $get, 'put' => $put, 'delete' => $delete] = $found['paths']['/trees/{id}'];
            same(['getTreesId', 'Shows a tree.'], [$get['operationId'], $get['summary']]);
            same([
                ['name' => 'id', 'in' => 'path', 'required' => true, 'schema' => ['type' => 'integer']],
                ['name' => 'depth', 'in' => 'query', 'required' => true, 'schema' => ['type' => 'integer']],
                ['name' => 'q', 'in' => 'query', 'required' => false, 'schema' => ['type' => 'string']],
                ['name' => 'size', 'in' => 'query', 'required' => false, 'schema' => ['enum' => [1, 2], 'default' => 2]],
            ], $get['parameters']);
            same('#/components/schemas/Tree', $get['responses']['200']['content']['application/json']['schema']['$ref']);
            same([true, '#/components/schemas/Tree'], [$put['requestBody']['required'], $put['requestBody']['content']['application/json']['schema']['$ref']]);
            same('#/components/schemas/Surus.Tests.Documents.Other.Tree', $put['responses']['200']['content']['application/json']['schema']['$ref']);
            same([204, 'default'], array_keys($delete['responses']));
            $schemas = $found['components']['schemas'];
            same(['type' => 'object', 'properties' => [
                'name' => ['type' => 'string'],
                'branches' => ['type' => 'array', 'items' => ['$ref' => '#/components/schemas/Tree'], 'default' => []],
                'size' => ['anyOf' => [['enum' => [1, 2]], ['type' => 'null']], 'default' => 1],
                'planted' => ['anyOf' => [['type' => 'string', 'format' => 'date-time'], ['type' => 'null']]],
                'note' => [], // {}
            ], 'required' => ['name']], $schemas['Tree']);
            same(['anyOf' => [['type' => 'integer'], ['type' => 'number']]], $schemas['Surus.Tests.Documents.Other.Tree']['properties']['height']);
        },
        'type that can be anything has an empty schema' => static function (): void {
            $app = (new App())->openApi('Any');
            $app->post('/', fn (Tree $tree, mixed $x): mixed => $x);
            $json = $app->handle(Request::of('GET', '/openapi.json'))->body;
            same([true, true], [str_contains($json, '"note":{}'), str_contains($json, '{"name":"x","in":"query","required":false,"schema":{}}')]);
        },
        'document of an API without routes is valid' => static function () use ($document): void {
            $app = (new App())->openApi('None');
            same('{"openapi":"3.1.0","info":{"title":"None","version":"1.0.0"},"paths":{},"components":{"schemas":{},', substr($app->handle(Request::of('GET', '/openapi.json'))->body, 0, 99));
            same(404, (new App())->handle(Request::of('GET', '/openapi.json'))->status);
        },
    ];
}
