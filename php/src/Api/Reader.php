<?php

namespace Surus\Api;

/** Creates values of declared types from decoded JSON, and lists everything that does not fit. */
final class Reader
{
    /** After this number of errors, a list of thousands of wrong items says no more. */
    private const ERRORS = 100;

    /** @var array<class-string, list<Field>> */
    private static array $fields = [];

    /** @var list<array{detail: string, pointer: string}> */
    private array $errors = [];

    public static function read(mixed $json, Type $type): mixed
    {
        $reader = new self();
        $value = $reader->value($json, $type, null, '#');
        if ($reader->errors) {
            throw new Problem(422, 'the body does not have the expected form', $reader->errors);
        }

        return $value;
    }

    /**
     * @param class-string $class
     *
     * @return list<Field>
     */
    public static function fields(string $class): array
    {
        // Grows with the classes of the application, not with requests.
        return self::$fields[$class] ??= Field::of($class);
    }

    /** Reads the declarations of a class, and of those inside it. */
    public static function prepare(Type $type, ?Type $items = null): void
    {
        $class = ($items ?? $type)->dto();
        if (null !== $class && !isset(self::$fields[$class])) {
            foreach (self::fields($class) as $field) {
                self::prepare($field->type, $field->items);
            }
        }
    }

    private function value(mixed $json, Type $type, ?Type $items, string $pointer): mixed
    {
        if (null === $json && $type->nullable) {
            return null;
        }
        if (\is_object($json) && null !== $class = $type->dto()) {
            return $this->object($json, $class, $pointer);
        }
        if ($items && \is_array($json)) {
            return $this->items($json, $items, $pointer);
        }
        foreach ($items ? [] : $type->names as $name) {
            $value = self::scalar($json, $name);
            if (null !== $value) {
                return $value;
            }
        }

        return $this->error(
            'must be '
                .($items ? 'a list' : Text::describe($type))
                .($type->nullable ? ' or null' : ''),
            $pointer
        );
    }

    /** Null if the value is not of this type. */
    private static function scalar(mixed $json, string $name): mixed
    {
        return match ($name) {
            'int' => self::integer($json),
            'float' => \is_int($json) || \is_float($json) ? (float) $json : null,
            'string' => \is_string($json) ? $json : null,
            'bool' => \is_bool($json) ? $json : null,
            'true' => true === $json ? $json : null,
            'false' => false === $json ? $json : null,
            'array' => \is_array($json) || \is_object($json) ? Json::arrays($json) : null,
            Type::ANY => Json::arrays($json),
            default => match (true) {
                Type::isTime($name) => \is_string($json) ? Text::time($json) : null,
                is_subclass_of($name, \BackedEnum::class) => self::enum($json, $name),
                default => null,
            },
        };
    }

    /** JSON has one type of number: 1.0 is an integer. */
    private static function integer(mixed $json): ?int
    {
        return \is_int($json)
            ? $json
            : (
                \is_float($json) && floor($json) === $json && abs($json) < 2 ** 53
                    ? (int) $json
                    : null
            );
    }

    /** @param class-string<\BackedEnum> $enum */
    private static function enum(mixed $json, string $enum): ?\BackedEnum
    {
        foreach ($enum::cases() as $case) {
            if ($case->value === (\is_int($case->value) ? self::integer($json) : $json)) {
                return $case;
            }
        }

        return null;
    }

    /**
     * @param list<mixed> $json
     *
     * @return list<mixed>
     */
    private function items(array $json, Type $type, string $pointer): array
    {
        $items = [];
        foreach ($json as $number => $item) {
            if (\count($this->errors) >= self::ERRORS) {
                break;
            }
            $items[] = $this->value($item, $type, null, "$pointer/$number");
        }

        return $items;
    }

    /** @param class-string $class */
    private function object(object $json, string $class, string $pointer): ?object
    {
        $before = \count($this->errors);
        $arguments = [];
        foreach (self::fields($class) as $field) {
            $at = "$pointer/$field->name";
            if (property_exists($json, $field->name)) {
                $arguments[$field->name] = $this->value(
                    $json->{$field->name},
                    $field->type,
                    $field->items,
                    $at
                );
            } elseif ($field->required) {
                $this->error('is missing', $at);
            }
        }
        if (\count($this->errors) > $before) {
            return null;
        }
        try {
            return new $class(...$arguments);
        } catch (\InvalidArgumentException $error) {
            // The constructor's own rules.
            return $this->error($error->getMessage(), $pointer);
        }
    }

    private function error(string $detail, string $pointer): null
    {
        if (\count($this->errors) < self::ERRORS) {
            $this->errors[] = ['detail' => $detail, 'pointer' => $pointer];
        }

        return null;
    }
}
