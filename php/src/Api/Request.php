<?php

namespace Surus\Api;

use Psr\Http\Message\ServerRequestInterface;

/** A request. Immutable; body and headers are read when they are needed. */
final class Request
{
    /** @var array<string, mixed> what middleware has added */
    private array $attributes = [];

    /** @var ?array{ServerRequestInterface, self} */
    private ?array $psr7 = null;

    /**
     * @param string                $path   as sent: percent-encoded, without the query
     * @param array<string, mixed>  $query  like $_GET
     * @param array<string, mixed>  $server like $_SERVER
     * @param ?string               $body   null: the one that PHP has got
     */
    private function __construct(
        public readonly string $method,
        public readonly string $path,
        public readonly array $query,
        private readonly array $server,
        private ?string $body = null,
    ) {
    }

    public static function fromGlobals(): self
    {
        $target = $_SERVER['REQUEST_URI'] ?? '/';
        if ('/' !== ($target[0] ?? '')) {
            // The absolute form, which clients send to proxies.
            $target = preg_replace('~^[a-z][a-z0-9+.-]*://[^/?]*~i', '', $target);
        }

        return new self(
            $_SERVER['REQUEST_METHOD'] ?? 'GET',
            strstr($target, '?', true) ?: $target,
            $_GET,
            $_SERVER
        );
    }

    /**
     * A request that no server has received, for tests.
     *
     * @param string                $target  path and query
     * @param array<string, string> $headers
     */
    public static function of(
        string $method,
        string $target,
        array $headers = [],
        string $body = ''
    ): self
    {
        [$path, $text] = explode('?', $target, 2) + [1 => ''];
        parse_str($text, $query);
        $server = [];
        foreach ($headers as $name => $value) {
            $server[self::key($name)] = $value;
        }

        return new self($method, $path, $query, $server, $body);
    }

    /**
     * Like of(), with JSON.
     *
     * @param array<string, string> $headers
     */
    public static function json(
        string $method,
        string $target,
        mixed $data,
        array $headers = []
    ): self
    {
        return self::of(
            $method,
            $target,
            $headers + ['Content-Type' => 'application/json'],
            Json::encode($data)
        );
    }

    public function header(string $name): ?string
    {
        $value = $this->server[self::key($name)] ?? null;

        return null === $value || '' === $value ? null : (string) $value;
    }

    /** @return array<string, string> all headers, with names such as Content-Type */
    public function headers(): array
    {
        $headers = [];
        foreach ($this->server as $key => $_) {
            $key = (string) $key;
            $isHeader = str_starts_with($key, 'HTTP_')
                || \in_array($key, ['CONTENT_TYPE', 'CONTENT_LENGTH'], true);
            $name = strtr(preg_replace('/^HTTP_/', '', $key), '_', '-');
            if ($isHeader && '' !== $name && null !== $value = $this->header($name)) {
                $headers[ucwords(strtolower($name), '-')] = $value;
            }
        }

        return $headers;
    }

    /** The body as sent; 413 if it is longer than $limit. */
    public function body(int $limit = \PHP_INT_MAX): string
    {
        // Not more than needed to know that it is too long.
        $length = $limit < \PHP_INT_MAX ? $limit + 1 : null;
        $body = $this->body ?? (string) file_get_contents('php://input', false, null, 0, $length);
        if (\strlen($body) > $limit) {
            throw new Problem(413, "the body is longer than $limit bytes");
        }

        return $this->body = $body;
    }

    /** @internal The body that has been read or replaced; null: PHP still has it. */
    public function bodyInMemory(): ?string
    {
        return $this->body;
    }

    /** The decoded JSON of the body, with stdClass for objects. */
    public function decoded(int $limit = \PHP_INT_MAX): mixed
    {
        $body = $this->body($limit);
        $this->mustBeJson($body);

        return Json::decode($body);
    }

    /**
     * A copy with other parts; null: as they are.
     *
     * @param ?array<string, mixed>   $query
     * @param array<string, ?string>  $headers null: without this header
     */
    public function replaced(
        ?string $method = null,
        ?string $path = null,
        ?array $query = null,
        array $headers = [],
        ?string $body = null
    ): self
    {
        $server = $this->server;
        foreach ($headers as $name => $value) {
            $server[self::key((string) $name)] = $value;
        }
        $copy = new self(
            $method ?? $this->method,
            $path ?? $this->path,
            $query ?? $this->query,
            $server,
            $body ?? $this->body
        );
        [$copy->attributes, $copy->psr7] = [$this->attributes, $this->psr7];

        return $copy;
    }

    /** A copy with an attribute, for later middleware and the handler. */
    public function with(string $attribute, mixed $value): self
    {
        $copy = clone $this;
        $copy->attributes[$attribute] = $value;

        return $copy;
    }

    public function attribute(string $name): mixed
    {
        return $this->attributes[$name] ?? null;
    }

    /** @return array<string, mixed> */
    public function attributes(): array
    {
        return $this->attributes;
    }

    /**
     * A copy with these attributes instead of its own.
     *
     * @param array<string, mixed> $attributes
     */
    public function withAttributes(array $attributes): self
    {
        $copy = clone $this;
        $copy->attributes = $attributes;

        return $copy;
    }

    /** @internal A copy that knows the PSR-7 request that has its parts. */
    public function withPsr7(ServerRequestInterface $psr): self
    {
        $copy = clone $this;
        $copy->psr7 = [$psr, $this];

        return $copy;
    }

    /**
     * @internal
     *
     * @return ?array{ServerRequestInterface, self} what PSR-15 middleware has passed on last, and
     *                                              the request that had the same parts
     */
    public function psr7(): ?array
    {
        return $this->psr7;
    }

    private function mustBeJson(string $body): void
    {
        $type = $this->header('Content-Type');
        if (null === $type && '' === $body) {
            throw new Problem(400, 'the request has no body, and needs JSON');
        }
        $parameters = explode(';', strtolower($type ?? ''));
        $isJson = preg_match('~^application/(?:[^/]+\+)?json$~', trim(array_shift($parameters)));
        foreach ($parameters as $parameter) {
            [$name, $value] = explode('=', $parameter, 2) + [1 => ''];
            $isJson = $isJson
                && (
                    'charset' !== trim($name)
                        || \in_array(trim($value, " \t\""), ['utf-8', 'utf8', 'us-ascii'], true)
                );
        }
        $coding = strtolower($this->header('Content-Encoding') ?? 'identity');
        if (!$isJson || 'identity' !== $coding) {
            throw new Problem(
                415,
                'send application/json in UTF-8 and without Content-Encoding',
                headers: ['Accept' => 'application/json', 'Accept-Encoding' => 'identity']
            );
        }
    }

    /** The name of a header in $_SERVER. */
    private static function key(string $header): string
    {
        $key = strtoupper(strtr($header, '-', '_'));

        return 'CONTENT_TYPE' === $key || 'CONTENT_LENGTH' === $key ? $key : "HTTP_$key";
    }
}
