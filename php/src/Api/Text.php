<?php

namespace Surus\Api;

/** Converts text of a URL, from the path or the query, to a declared type. */
final class Text
{
    /** The value of the first type that fits; null if none does. */
    public static function read(string $text, Type $type): string
        |int
        |float
        |bool
        |\BackedEnum
        |\DateTimeImmutable
        |null
    {
        foreach ($type->names as $name) {
            $value = match ($name) {
                'int' => preg_match('/^-?(?:0|[1-9]\d*)$/D', $text)
                    ? filter_var($text, \FILTER_VALIDATE_INT, \FILTER_NULL_ON_FAILURE)
                    : null,
                'float' => preg_match('/^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$/D', $text)
                    && is_finite((float) $text)
                    ? (float) $text
                    : null,
                'bool' => ['true' => true, '1' => true, 'false' => false, '0' => false][$text]
                    ?? null,
                'string', Type::ANY => $text,
                default => self::object($text, $name),
            };
            if (null !== $value) {
                return $value;
            }
        }

        return null;
    }

    private static function object(string $text, string $class): \BackedEnum|\DateTimeImmutable|null
    {
        if (Type::isTime($class)) {
            return self::time($text);
        }
        foreach (is_subclass_of($class, \BackedEnum::class) ? $class::cases() : [] as $case) {
            if ((string) $case->value === $text) {
                return $case;
            }
        }

        return null;
    }

    /**
     * A date and time of RFC 3339. PHP alone would accept "tomorrow", and turn February 30 into
     * March. It has microseconds; what is below, as Go and Java write it, is cut off.
     */
    public static function time(string $text): ?\DateTimeImmutable
    {
        if (
            !preg_match(
                '/^(\d{4})-(\d\d)-(\d\d)[Tt]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/D',
                $text,
                $found
            )
        ) {
            return null;
        }

        return checkdate((int) $found[2], (int) $found[3], (int) $found[1])
            ? new \DateTimeImmutable(preg_replace('/(\.\d{6})\d+/', '$1', strtoupper($text)))
            : null;
    }

    /** What a value of this type is, for messages. */
    public static function describe(Type $type): string
    {
        $parts = array_map(static fn (string $name) => match (true) {
            'int' === $name => 'an integer',
            'float' === $name => 'a number',
            'string' === $name => 'a string',
            \in_array($name, ['bool', 'true', 'false'], true) => 'a boolean',
            'array' === $name => 'an array or object',
            Type::ANY === $name => 'a single value',
            Type::isTime($name) => 'a date and time of RFC 3339',
            is_subclass_of($name, \BackedEnum::class) => 'one of '
                .implode(
                    ', ',
                    array_map(
                        static fn (\BackedEnum $case) => json_encode(
                            $case->value,
                            Json::FLAGS | \JSON_INVALID_UTF8_SUBSTITUTE
                        ),
                        $name::cases()
                    )
                ),
            default => 'an object',
        }, $type->names);

        return implode(' or ', array_unique($parts));
    }
}
