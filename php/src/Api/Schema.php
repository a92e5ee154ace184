<?php

namespace Surus\Api;

/** Describes types as JSON Schema, and collects the classes among them as components. */
final class Schema
{
    /** @var array<string, array<string, mixed>> by the component's name */
    public array $components = [];

    /** @var array<string, string> component names by class, and by class and `Result` */
    private array $names = [];

    /**
     * @param bool $result whether it is what JSON has of a result, and not what a body must have
     *
     * @return array<string, mixed>|\stdClass
     */
    public function of(Type $type, ?Type $items = null, bool $result = false): array|\stdClass
    {
        $schemas = $items
            ? [['type' => 'array', 'items' => $this->of($items, null, $result)]]
            : array_map(fn (string $name) => $this->named($name, $result), $type->names);
        if ([] === $schemas || [[]] === $schemas) {
            return new \stdClass();
        }
        if ($type->nullable) {
            $schemas[] = ['type' => 'null'];
        }
        // {} in JSON, which allows everything.
        $schemas = array_map(static fn (array $schema) => $schema ?: new \stdClass(), $schemas);

        return 1 === \count($schemas) ? $schemas[0] : ['anyOf' => $schemas];
    }

    /** @return array<string, mixed> */
    private function named(string $name, bool $result): array
    {
        return match (true) {
            'int' === $name => ['type' => 'integer'],
            'float' === $name => ['type' => 'number'],
            'string' === $name => ['type' => 'string'],
            'true' === $name, 'false' === $name, 'bool' === $name => ['type' => 'boolean'],
            'array' === $name => ['type' => ['array', 'object']],
            is_a($name, \DateTimeInterface::class, true) => [
                'type' => 'string',
                'format' => 'date-time'
            ],
            is_subclass_of($name, \BackedEnum::class) => [
                'enum' => array_column($name::cases(), 'value')
            ],
            !self::isDescribed($name) => [],
            default => [
                '$ref' => '#/components/schemas/'
                    .$this->component($name, $result && !self::isSame($name))
            ],
        };
    }

    /** Whether declarations tell what JSON has of this class. */
    private static function isDescribed(string $name): bool
    {
        return class_exists($name)
            && !enum_exists($name)
            && !(new \ReflectionClass($name))->isInternal()
            && !is_subclass_of($name, \JsonSerializable::class)
                && !is_subclass_of($name, \Traversable::class);
    }

    /**
     * Whether a class, with those inside it, is the same as a body and as a result: its constructor
     * has exactly the public properties.
     *
     * @param class-string        $class
     * @param array<string, true> $seen  classes around it
     */
    private static function isSame(string $class, array $seen = []): bool
    {
        $seen[$class] = true;
        $parameters = [];
        foreach (
            (new \ReflectionClass($class))->getConstructor()?->getParameters() ?? [] as $parameter
        ) {
            $parameters[] = $parameter->name;
        }
        $properties = self::properties($class);
        if (
            $parameters !== array_keys(
                array_filter(
                    $properties,
                    static fn (\ReflectionProperty $one) => $one->isPromoted()
                )
            )
                || \count($parameters) !== \count($properties)
        ) {
            return false;
        }
        foreach ($properties as $property) {
            foreach (array_filter(self::types($property)) as $type) {
                foreach ($type->names as $name) {
                    if (
                        !isset($seen[$name])
                            && self::isDescribed($name)
                            && !self::isSame($name, $seen)
                    ) {
                        return false;
                    }
                }
            }
        }

        return true;
    }

    /**
     * The public properties of objects.
     *
     * @param class-string $class
     *
     * @return array<string, \ReflectionProperty>
     */
    private static function properties(string $class): array
    {
        $properties = [];
        foreach (
            (new \ReflectionClass($class))->getProperties(
                \ReflectionProperty::IS_PUBLIC
            ) as $property
        ) {
            if (!$property->isStatic()) {
                $properties[$property->name] = $property;
            }
        }

        return $properties;
    }

    /** @return array{Type, ?Type} of a property and of its items */
    private static function types(\ReflectionProperty $property): array
    {
        $list = ($property->getAttributes(ListOf::class)[0] ?? null)?->newInstance();
        $type = $property->getType();
        $isIntersection = static fn (
            ?\ReflectionType $one
        ) => $one instanceof \ReflectionIntersectionType;
        $hasOne = $isIntersection($type)
            || $type instanceof \ReflectionUnionType
                && array_filter($type->getTypes(), $isIntersection);

        return [
            $hasOne ? Type::named(Type::ANY) : Type::of($type, '', $property->class),
            $list ? Type::named($list->type) : null,
        ];
    }

    /** @param class-string $class */
    private function component(string $class, bool $result): string
    {
        $key = $class.($result ? 'Result' : '');
        if (!isset($this->names[$key])) {
            $short = self::label(substr((string) strrchr("\\$class", '\\'), 1));
            // A class whose bodies and results differ has two.
            $other = isset($this->names[$result ? $class : "{$class}Result"])
                ? ($result ? 'Result' : 'Body')
                : '';
            $name = $this->names[$key] = \in_array($short.$other, $this->names, true)
                ? self::label($class).$other
                : $short.$other;
            // A class may contain itself.
            $this->components[$name] = [];
            $this->components[$name] = $result ? $this->result($class) : $this->body($class);
        }

        return $this->names[$key];
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
    private function body(string $class): array
    {
        $properties = $required = [];
        foreach (Reader::fields($class) as $field) {
            $schema = $this->of($field->type, $field->items);
            $properties[$field->name] = $field->required
                ? $schema
                : self::withDefault($schema, $field->default);
            if ($field->required) {
                $required[] = $field->name;
            }
        }

        return self::object($properties, $required);
    }

    /**
     * @param class-string $class
     *
     * @return array<string, mixed>
     */
    private function result(string $class): array
    {
        $properties = $required = [];
        foreach (self::properties($class) as $name => $property) {
            $properties[$name] = $this->of(...[...self::types($property), true]);
            // JSON lacks a property that the constructor has not set.
            if ($property->isPromoted() || $property->hasDefaultValue()) {
                $required[] = $name;
            }
        }

        return self::object($properties, $required);
    }

    /**
     * @param array<string, mixed> $properties
     * @param list<string>         $required
     *
     * @return array<string, mixed>
     */
    private static function object(array $properties, array $required): array
    {
        return [
            'type' => 'object',
            'properties' => $properties ?: new \stdClass()
        ] + ($required ? ['required' => $required] : []);
    }

    /**
     * @param array<string, mixed>|\stdClass $schema
     *
     * @return array<string, mixed>|\stdClass an object if it is empty, so that JSON has {}
     */
    public static function withDefault(array|\stdClass $schema, mixed $default): array|\stdClass
    {
        $default = $default instanceof \BackedEnum ? $default->value : $default;

        return \is_scalar($default) || [] === $default
            ? (array) $schema + ['default' => $default]
            : $schema;
    }
}
