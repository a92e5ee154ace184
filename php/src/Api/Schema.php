<?php

namespace Surus\Api;

/** Describes types as JSON Schema, and collects the classes among them as components. */
final class Schema
{
    /** @var array<string, array<string, mixed>> by the component's name */
    public array $components = [];

    /** @var array<class-string, string> */
    private array $names = [];

    /** @return array<string, mixed>|\stdClass */
    public function of(Type $type, ?Type $items = null): array|\stdClass
    {
        $schemas = $items ? [['type' => 'array', 'items' => $this->of($items)]] : array_map($this->named(...), $type->names);
        if ([] === $schemas || [] === $schemas[0]) {
            return new \stdClass();
        }
        if ($type->nullable) {
            $schemas[] = ['type' => 'null'];
        }

        return 1 === \count($schemas) ? $schemas[0] : ['anyOf' => $schemas];
    }

    /** @return array<string, mixed> */
    private function named(string $name): array
    {
        return match (true) {
            'int' === $name => ['type' => 'integer'],
            'float' === $name => ['type' => 'number'],
            'string' === $name => ['type' => 'string'],
            'true' === $name, 'false' === $name, 'bool' === $name => ['type' => 'boolean'],
            'array' === $name => ['type' => ['array', 'object']],
            is_a($name, \DateTimeInterface::class, true) => ['type' => 'string', 'format' => 'date-time'],
            is_subclass_of($name, \BackedEnum::class) => ['enum' => array_column($name::cases(), 'value')],
            !class_exists($name), is_subclass_of($name, \JsonSerializable::class), (new \ReflectionClass($name))->isInternal() => [],
            default => ['$ref' => '#/components/schemas/'.$this->component($name)],
        };
    }

    /** @param class-string $class */
    private function component(string $class): string
    {
        if (!isset($this->names[$class])) {
            $short = self::label(substr((string) strrchr("\\$class", '\\'), 1));
            $name = $this->names[$class] = \in_array($short, $this->names, true) ? self::label($class) : $short;
            // A class may contain itself.
            $this->components[$name] = [];
            $this->components[$name] = $this->object($class);
        }

        return $this->names[$class];
    }

    private static function label(string $class): string
    {
        return preg_replace('/[^A-Za-z0-9._-]/', '_', strtr($class, '\\', '.'));
    }

    /**
     * @param class-string $class
     *
     * @return array<string, mixed>
     */
    private function object(string $class): array
    {
        $properties = $required = [];
        foreach (Reader::fields($class) as $field) {
            $schema = $this->of($field->type, $field->items);
            $properties[$field->name] = $field->required ? $schema : self::withDefault($schema, $field->default);
            if ($field->required) {
                $required[] = $field->name;
            }
        }

        return ['type' => 'object', 'properties' => $properties ?: new \stdClass()] + ($required ? ['required' => $required] : []);
    }

    /**
     * @param array<string, mixed>|\stdClass $schema
     *
     * @return array<string, mixed>|\stdClass an object if it is empty, so that JSON has {}
     */
    public static function withDefault(array|\stdClass $schema, mixed $default): array|\stdClass
    {
        $default = $default instanceof \BackedEnum ? $default->value : $default;

        return \is_scalar($default) || [] === $default ? (array) $schema + ['default' => $default] : $schema;
    }
}
