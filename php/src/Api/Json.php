<?php

namespace Surus\Api;

/** Decodes JSON that a client sent, and encodes JSON for it. */
final class Json
{
    public const FLAGS = \JSON_UNESCAPED_SLASHES
        | \JSON_UNESCAPED_UNICODE
        | \JSON_PRESERVE_ZERO_FRACTION;

    /** How deep a request's JSON may nest. */
    public const DEPTH = 64;

    public static function encode(mixed $value): string
    {
        try {
            $json = json_encode($value, self::FLAGS | \JSON_THROW_ON_ERROR);

            // PHP writes the parts of a date, of which this one is always there.
            return str_contains($json, '"timezone_type":')
                ? json_encode(self::withDates($value), self::FLAGS | \JSON_THROW_ON_ERROR)
                : $json;
        } catch (\JsonException $error) {
            throw new \UnexpectedValueException(
                \sprintf(
                    'cannot encode the response (%s) as JSON: %s%s',
                    get_debug_type($value),
                    $error->getMessage(),
                    self::culprit($value)
                )
            );
        }
    }

    /** Objects become stdClass, so that {} and [] differ. */
    public static function decode(string $text): mixed
    {
        try {
            $value = json_decode($text, false, self::DEPTH, \JSON_THROW_ON_ERROR);
        } catch (\JsonException $error) {
            throw new Problem(400, match ($error->getCode()) {
                \JSON_ERROR_DEPTH => 'the JSON of the body nests deeper than '
                    .self::DEPTH
                    .' levels',
                \JSON_ERROR_UTF8 => 'the JSON of the body is not valid UTF-8',
                \JSON_ERROR_UTF16 => 'the JSON of the body has a half of a surrogate pair',
                \JSON_ERROR_INVALID_PROPERTY_NAME =>
                    'a name in the JSON of the body begins with NUL',
                default => '' === trim($text)
                    ? 'the request has no body, and needs JSON'
                    : 'the body is not JSON',
            });
        }
        // PHP takes the last of equal names, other programs on the way the first. RFC 7493 forbids
        // them.
        $members = self::members($value);
        if ($members !== substr_count($text, ':') && $members !== self::colons($text)) {
            throw new Problem(400, 'an object in the JSON of the body has a name twice');
        }

        return $value;
    }

    /** With arrays instead of objects. */
    public static function arrays(mixed $value): mixed
    {
        return \is_object($value) || \is_array($value)
            ? array_map(self::arrays(...), (array) $value)
            : $value;
    }

    /** How many members the objects have. Also refuses 1e999, which PHP decodes as INF. */
    private static function members(mixed $value): int
    {
        if (\is_float($value) && !is_finite($value)) {
            throw new Problem(400, 'a number in the JSON of the body is too large');
        }
        if (!\is_object($value) && !\is_array($value)) {
            return 0;
        }
        $parts = (array) $value;
        $count = \is_object($value) ? \count($parts) : 0;
        foreach ($parts as $part) {
            $count += \is_string($part) ? 0 : self::members($part);
        }

        return $count;
    }

    /** How many members the objects of valid JSON have: every colon outside strings is one. */
    private static function colons(string $json): int
    {
        return substr_count(
            (string) preg_replace('/"[^"]*+"/', '', str_replace(['\\\\', '\\"'], '', $json)),
            ':'
        );
    }

    /** The public data of a value that json_encode() accepts, with dates as texts of RFC 3339. */
    private static function withDates(mixed $value): mixed
    {
        // json_encode() takes the properties of an object that returns itself, too.
        if (
            $value instanceof \JsonSerializable
                && $value !== $data = $value->jsonSerialize()
        ) {
            return self::withDates($data);
        }

        return match (true) {
            \is_array($value) => array_map(self::withDates(...), $value),
            $value instanceof \DateTimeInterface => $value->format(
                0 === (int) $value->format('u') ? \DATE_RFC3339 : 'Y-m-d\TH:i:s.uP'
            ),
            $value instanceof \DateTimeZone => $value->getName(),
            \is_object($value)
                && !$value instanceof \UnitEnum => (object) array_map(
                    self::withDates(...),
                    self::properties($value)
                ),
            default => $value,
        };
    }

    /**
     * What json_encode() takes of an object.
     *
     * @return array<int|string, mixed>
     */
    private static function properties(object $value): array
    {
        if (!$value instanceof \ArrayObject && !$value instanceof \ArrayIterator) {
            return get_object_vars($value);
        }

        // These have what they wrap instead. If that is an object, the names of its private
        // properties begin with NUL.
        return array_filter(
            (array) $value,
            static fn (int|string $name) => !str_starts_with((string) $name, "\0"),
            \ARRAY_FILTER_USE_KEY
        );
    }

    /** Where in arrays the value is that JSON cannot express, for the log. */
    private static function culprit(mixed $value, string $at = '$', int $depth = 0): string
    {
        if (\is_array($value) && $depth < self::DEPTH) {
            foreach ($value as $key => $part) {
                if (\is_string($key) && !preg_match('//u', $key)) {
                    return "; a key of $at is not UTF-8";
                }
                if (
                    '' !== $found = self::culprit(
                        $part,
                        \is_int($key) ? "{$at}[$key]" : "$at.$key",
                        $depth + 1
                    )
                ) {
                    return $found;
                }
            }
        }
        $bad = \is_string($value) && !preg_match('//u', $value)
            || \is_float($value) && !is_finite($value)
            || \is_resource($value);

        return $bad ? "; the value is at $at" : '';
    }
}
