<?php

namespace Surus\Api;

/** The OpenAPI 3.1 document of an application's routes. */
final class OpenApi
{
    private const PROBLEM = [
        'type' => 'object',
        'properties' => [
            'type' => ['type' => 'string'],
            'title' => ['type' => 'string'],
            'status' => ['type' => 'integer'],
            'detail' => ['type' => 'string'],
            'errors' => ['type' => 'array', 'items' => [
                'type' => 'object',
                'properties' => [
                    'detail' => ['type' => 'string'],
                    'pointer' => ['type' => 'string'],
                    'parameter' => ['type' => 'string']
                ],
            ]],
        ],
        'required' => ['type', 'title', 'status'],
    ];

    /** What a path of OpenAPI can have. */
    private const METHODS = ['GET', 'PUT', 'POST', 'DELETE', 'OPTIONS', 'HEAD', 'PATCH', 'TRACE'];

    private Schema $schema;

    /** @var array<string, true> the ids of all operations */
    private array $ids;

    public function __construct(
        private readonly Router $router,
        private readonly string $title,
        private readonly string $version,
        private readonly string $path,
    ) {
    }

    /** @return array<string, mixed> */
    public function document(): array
    {
        $this->schema = new Schema();
        $this->ids = [];
        $paths = $templates = [];
        foreach ($this->router->routes() as $route) {
            if (
                $this->path === $route->pattern->path
                    || !\in_array($route->method, self::METHODS, true)
            ) {
                continue;
            }
            // Paths that differ only in the names of their parameters are the same to OpenAPI.
            $template = $route->pattern->template();
            $template = $templates[preg_replace('/\{\w+\}/', '{}', $template)] ??= $template;
            $paths[$template][strtolower($route->method)] ??= $this->operation($route, $template);
        }
        ksort($paths);

        return [
            'openapi' => '3.1.0',
            'info' => ['title' => $this->title, 'version' => $this->version],
            'paths' => $paths ?: new \stdClass(),
            'components' => [
                'schemas' => $this->schema->components ?: new \stdClass(),
                'responses' => ['Problem' => [
                    'description' => 'An error, as in RFC 9457',
                    'content' => ['application/problem+json' => ['schema' => self::PROBLEM]],
                ]],
            ],
        ];
    }

    /**
     * @param string $template names the path's parameters
     *
     * @return array<string, mixed>
     */
    private function operation(Route $route, string $template): array
    {
        $signature = $route->signature();
        $operation = [
            'operationId' => $this->id(
                strtolower($route->method)
                    .preg_replace('/[^A-Za-z0-9]/', '', ucwords($template, '/{-_'))
            )
        ];
        if ('' !== $signature->summary) {
            $operation['summary'] = $signature->summary;
        }
        $types = [];
        foreach ($route->pattern->parameters as $name => $type) {
            $types[$name] = Type::named($type);
        }
        $query = [];
        foreach ($signature->parameters as $parameter) {
            if (Source::Path === $parameter->source) {
                $types[$parameter->name] = $parameter->type;
            } elseif (Source::Query === $parameter->source) {
                $schema = Schema::withDefault(
                    $this->schema->of($parameter->type->withoutNull()),
                    $parameter->default
                );
                $query[] = [
                    'name' => $parameter->name,
                    'in' => 'query',
                    'required' => $parameter->required,
                    'schema' => $schema
                ];
            } elseif (Source::Body === $parameter->source) {
                $operation['requestBody'] = [
                    'required' => $parameter->required,
                    'content' => [
                        'application/json' => ['schema' => $this->schema->of($parameter->type)]
                    ]
                ];
            }
        }
        preg_match_all('/\{(\w+)\}/', $template, $names);
        $path = array_map(
            fn (string $name, Type $type) => [
                'name' => $name,
                'in' => 'path',
                'required' => true,
                'schema' => $this->schema->of($type)
            ],
            $names[1],
            $types
        );
        if ($path || $query) {
            $operation['parameters'] = [...$path, ...$query];
        }
        $operation['responses'] = $this->declared($signature->responds)
            + ($signature->responds ? [] : $this->responses($signature->returns))
            + ['default' => ['$ref' => '#/components/responses/Problem']];

        return $operation;
    }

    /** The id, with a number if another operation has it. */
    private function id(string $id): string
    {
        for ($number = 2, $free = $id; isset($this->ids[$free]); ++$number) {
            $free = "$id$number";
        }
        $this->ids[$free] = true;

        return $free;
    }

    /**
     * @param list<Responds> $all
     *
     * @return array<int, mixed>
     */
    private function declared(array $all): array
    {
        $responses = [];
        foreach ($all as $one) {
            $responses[$one->status] = ['description' => match ($one->status) {
                200 => 'OK',
                201 => 'Created',
                202 => 'Accepted',
                204 => 'Done',
                default => "Status $one->status",
            }] + $this->content(null === $one->type ? null : Type::named($one->type));
        }

        return $responses;
    }

    /** @return array<string|int, mixed> */
    private function responses(Type $returns): array
    {
        if ([] === $returns->names) {
            return ['204' => ['description' => 'Done']];
        }
        if (['never'] === $returns->names) {
            return [];
        }
        // A Response has a status of its own, and what has no type may be one.
        $ok = array_intersect([Response::class, Type::ANY], $returns->names)
            ? ['2XX' => ['description' => 'Done']]
            : ['200' => ['description' => 'OK'] + $this->content($returns->withoutNull())];
        // Null is an empty response.
        $done = $returns->nullable && [Type::ANY] !== $returns->names
            ? ['204' => ['description' => 'Done']]
            : [];

        return $ok + $done;
    }

    /** @return array<string, mixed> */
    private function content(?Type $type): array
    {
        return null === $type ? [] : ['content' => [
            'application/json' => ['schema' => $this->schema->of($type, null, true)]
        ]];
    }
}
