<?php

namespace Surus\Api;

use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamInterface;
use Psr\Http\Message\UriInterface;

/** Copies what is different between a Request and a PSR-7 request, in both directions. */
final class Psr7
{
    /** Headers that libraries also derive from others, such as X-Forwarded-Host. */
    private const DERIVED = ['host' => 'HTTP_HOST', 'authorization' => 'HTTP_AUTHORIZATION'];

    /**
     * The PSR-7 request with the parts of a request.
     *
     * @param ?Request                    $known  the request whose parts $psr has already; null: it
     *                                            was created from the superglobals
     * @param \Closure(): StreamInterface $stream creates an empty stream
     */
    public static function from(
        Request $request,
        ServerRequestInterface $psr,
        ?Request $known,
        \Closure $stream
    ): ServerRequestInterface
    {
        $type = $psr->getHeaderLine('Content-Type');
        if ($request->method !== ($known ? $known->method : $psr->getMethod())) {
            $psr = $psr->withMethod($request->method);
        }
        if ($request->query !== ($known ? $known->query : $psr->getQueryParams())) {
            $psr = $psr->withQueryParams($request->query);
        }
        // The host is preserved, because the headers are set next.
        $psr = $psr->withUri(self::uri($request, $psr->getUri(), $known), true);
        $psr = self::withHeaders($request, $psr, $known);
        $psr = self::withBody($request, $psr, $known, $stream, $type);
        foreach ($request->attributes() as $name => $value) {
            $psr = $psr->withAttribute((string) $name, $value);
        }
        if ($known) {
            foreach (array_diff_key($psr->getAttributes(), $request->attributes()) as $name => $_) {
                $psr = $psr->withoutAttribute((string) $name);
            }
        }

        return $psr;
    }

    /** The request with what a middleware has changed. The rest stays as Surus\Api has read it. */
    public static function changed(
        Request $request,
        ServerRequestInterface $before,
        ServerRequestInterface $after
    ): Request
    {
        [$headers, $body] = [[], null];
        foreach ($before->getHeaders() + $after->getHeaders() as $name => $_) {
            $line = $after->getHeaderLine((string) $name);
            if ($line !== $before->getHeaderLine((string) $name)) {
                $headers[$name] = $after->hasHeader((string) $name) ? $line : null;
            }
        }
        $parsed = $after->getParsedBody();
        // A library may clone the stream with its request.
        if (
            $after->getBody() !== $before->getBody()
                && (string) $after->getBody() !== (string) $before->getBody()
        ) {
            $body = (string) $after->getBody();
        } elseif (null !== $parsed
            && $parsed !== $before->getParsedBody()
            && $parsed !== json_decode($request->body(), true)) {
            // Handlers read bodies as JSON. A body that a middleware only decodes keeps its form:
            // {} and [].
            $body = Json::encode($parsed);
            $headers = [
                'Content-Type' => 'application/json',
                'Content-Encoding' => null
            ] + $headers;
        }
        $different = static fn (string|array $new, string|array $old) => $new === $old
            ? null
            : $new;

        return $request->replaced(
            $different($after->getMethod(), $before->getMethod()),
            $different($after->getUri()->getPath(), $before->getUri()->getPath()),
            $different($after->getQueryParams(), $before->getQueryParams()),
            $headers,
            $body,
        )->withAttributes($after->getAttributes())->withPsr7($after);
    }

    private static function uri(Request $request, UriInterface $uri, ?Request $known): UriInterface
    {
        // Of `OPTIONS *`, libraries have paths of their own.
        if (
            $request->path !== ($known ? $known->path : $uri->getPath())
                && str_starts_with($request->path, '/')
        ) {
            $uri = $uri->withPath($request->path);
        }
        parse_str($uri->getQuery(), $query);

        // A text that means the same stays as it was sent.
        return $request->query === ($known ? $known->query : $query)
            ? $uri
            : $uri->withQuery(http_build_query($request->query, '', '&', \PHP_QUERY_RFC3986));
    }

    private static function withHeaders(
        Request $request,
        ServerRequestInterface $psr,
        ?Request $known
    ): ServerRequestInterface
    {
        foreach ($request->headers() + $psr->getHeaders() as $name => $_) {
            $name = (string) $name;
            $line = $request->header($name) ?? '';
            $derived = $known ? null : self::DERIVED[strtolower($name)] ?? null;
            if (
                $line === ($known ? $known->header($name) ?? '' : $psr->getHeaderLine($name))
                    || null !== $derived && $line === ($_SERVER[$derived] ?? '')
            ) {
                continue;
            }
            $psr = '' === $line ? $psr->withoutHeader($name) : $psr->withHeader($name, $line);
            if ('cookie' === strtolower($name)) {
                $psr = $psr->withCookieParams(self::cookies($line));
            } elseif ('host' === strtolower($name)) {
                $parts = parse_url("//$line");
                $psr = isset($parts['host'])
                    ? $psr->withUri(
                        $psr->getUri()
                            ->withHost($parts['host'])
                            ->withPort($parts['port'] ?? null),
                        true
                    )
                    : $psr;
            }
        }

        return $psr;
    }

    /** @return array<string, string> of which the first of a name counts, as in PHP */
    private static function cookies(string $line): array
    {
        $cookies = [];
        foreach (array_filter(array_map(trim(...), explode(';', $line))) as $pair) {
            [$name, $value] = explode('=', $pair, 2) + [1 => ''];
            $cookies += [$name => rawurldecode($value)];
        }

        return $cookies;
    }

    /**
     * Sets the body, and what is parsed of it, unless PHP still has it. Then $psr reads it from
     * PHP, too.
     *
     * @param \Closure(): StreamInterface $stream
     * @param string                      $type   of the body that $psr has
     */
    private static function withBody(
        Request $request,
        ServerRequestInterface $psr,
        ?Request $known,
        \Closure $stream,
        string $type
    ): ServerRequestInterface
    {
        $body = $request->bodyInMemory();
        $isSame = null === $body
            || $body === ($known ? $known->body() : (string) $psr->getBody());
        if (!$isSame) {
            $psr = $psr->withBody($stream());
            $psr->getBody()->write($body);
        }
        if ($psr->getBody()->isSeekable()) {
            $psr->getBody()->rewind();
        }
        $newType = $psr->getHeaderLine('Content-Type');
        // PHP itself parses multipart/form-data, of which it leaves no text.
        if ($isSame && (null === $body || $type === $newType)) {
            return $psr;
        }
        $form = null;
        if (
            'POST' === $request->method
                && preg_match('~^application/x-www-form-urlencoded\s*(;|$)~i', $newType)
        ) {
            parse_str($request->body(), $form);
        }

        return $psr->withParsedBody($form);
    }
}
