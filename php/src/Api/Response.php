<?php

namespace Surus\Api;

/** A response whose body is complete. Immutable. */
final class Response
{
    /** What names of headers consist of (RFC 9110, token). */
    private const NAME =
        '!#$%&\'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

    /** @param array<string, string|list<string>> $headers */
    private function __construct(
        public readonly int $status,
        public readonly string $body,
        public readonly array $headers,
    ) {
        if ($status < 200 || $status > 599) {
            throw new \InvalidArgumentException(
                "$status is not the status of a final response; use 200 to 599"
            );
        }
        foreach ($headers as $name => $values) {
            $name = (string) $name;
            if ('' === $name || \strlen($name) !== strspn($name, self::NAME)) {
                throw new \InvalidArgumentException(
                    \sprintf(
                        '%s is not the name of a header',
                        json_encode($name, \JSON_INVALID_UTF8_SUBSTITUTE)
                    )
                );
            }
            foreach ((array) $values as $value) {
                // PHP would drop the header with no more than a warning.
                if (\strlen((string) $value) !== strcspn((string) $value, "\r\n\0")) {
                    throw new \InvalidArgumentException(
                        "the header $name has a line break or NUL in its value"
                    );
                }
            }
        }
    }

    /** @param array<string, string|list<string>> $headers */
    public static function json(mixed $data, int $status = 200, array $headers = []): self
    {
        return new self($status, Json::encode($data), self::typed('application/json', $headers));
    }

    public static function created(string $location, mixed $data): self
    {
        return self::json($data, 201, ['Location' => $location]);
    }

    /** @param array<string, string|list<string>> $headers */
    public static function empty(int $status = 204, array $headers = []): self
    {
        return new self($status, '', $headers);
    }

    /** @param array<string, string|list<string>> $headers */
    public static function raw(
        string $body,
        string $type,
        int $status = 200,
        array $headers = []
    ): self
    {
        return new self($status, $body, self::typed($type, $headers));
    }

    /**
     * @param array<string, mixed>                $body
     * @param array<string, string|list<string>> $headers
     */
    public static function problem(array $body, int $status, array $headers = []): self
    {
        // A message that is not UTF-8 must not hide the problem that it describes.
        $json = json_encode(
            $body,
            Json::FLAGS | \JSON_INVALID_UTF8_SUBSTITUTE | \JSON_PARTIAL_OUTPUT_ON_ERROR
        );

        return new self($status, (string) $json, self::typed('application/problem+json', $headers));
    }

    /**
     * @param array<string, string|list<string>> $headers
     *
     * @return array<string, string|list<string>> with a type, unless they have one
     */
    private static function typed(string $type, array $headers): array
    {
        foreach ($headers as $name => $values) {
            if (0 === strcasecmp((string) $name, 'Content-Type')) {
                return $headers;
            }
        }

        return ['Content-Type' => $type] + $headers;
    }

    /** What a handler returned: a response, nothing (204), or data for JSON. */
    public static function of(mixed $returned): self
    {
        return match (true) {
            $returned instanceof self => $returned,
            null === $returned => self::empty(),
            $returned instanceof \Traversable
                && !$returned instanceof \JsonSerializable => self::json(
                    iterator_to_array($returned, false)
                ),
            default => self::json($returned),
        };
    }

    /** A copy with a header instead of those of the same name. */
    public function with(string $name, string ...$values): self
    {
        $others = array_filter(
            $this->headers,
            static fn (string $other) => 0 !== strcasecmp($other, $name),
            \ARRAY_FILTER_USE_KEY
        );

        return new self($this->status, $this->body, $others + [$name => array_values($values)]);
    }

    public function withoutBody(): self
    {
        return new self($this->status, '', $this->headers);
    }

    public function header(string $name): ?string
    {
        foreach ($this->headers as $other => $values) {
            if (0 === strcasecmp($other, $name)) {
                return implode(', ', (array) $values);
            }
        }

        return null;
    }

    /** The body as data; for tests. */
    public function data(): mixed
    {
        return json_decode($this->body, true, 512, \JSON_THROW_ON_ERROR);
    }

    public function send(): void
    {
        if (headers_sent($file, $line)) {
            error_log(
                "surus: cannot send the response, because output was sent before it ($file:$line); do not call flush() or ob_end_flush() in a handler"
            );

            return;
        }
        http_response_code($this->status);
        foreach ($this->headers as $name => $values) {
            foreach ((array) $values as $number => $value) {
                // The first value of a name replaces PHP's own, such as Content-Type; the cookie of
                // a session stays.
                header(
                    "$name: $value",
                    0 === $number && 0 !== strcasecmp($name, 'set-cookie'),
                    $this->status
                );
            }
        }
        if ('' === $this->body && null === $this->header('Content-Type')) {
            // PHP adds text/html unless a type was set; then it may be removed.
            header('Content-Type: text/plain');
            header_remove('Content-Type');
        }
        echo $this->body;
    }
}
