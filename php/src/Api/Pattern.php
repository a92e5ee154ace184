<?php

namespace Surus\Api;

/** The path of a route, such as `/users/{id:int}`. */
final class Pattern
{
    /** What each type of parameter matches in a percent-encoded path. */
    private const TYPES = [
        'string' => '[^/]+',
        'int' => '-?+(?:0|[1-9][0-9]*+)',
        'float' => '-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+',
        'bool' => '(?:true|false)',
    ];

    private const UNENCODED = '/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

    /** The regular expression of the whole path; of a path without parameters the encoded path. */
    public readonly string $regex;

    /** @var array<string, string> types by the parameter's name, in the path's order */
    public readonly array $parameters;

    public function __construct(public readonly string $path)
    {
        if ('/' !== ($path[0] ?? '')) {
            throw new \InvalidArgumentException("the path \"$path\" of a route must begin with /");
        }
        if (!strpbrk($path, '{}')) {
            $this->regex = self::normal($path);
            $this->parameters = [];

            return;
        }
        $regex = '';
        $parameters = [];
        foreach (
            preg_split('/(\{[^{}]*\})/', $path, -1, \PREG_SPLIT_DELIM_CAPTURE) as $number => $part
        ) {
            if (0 === $number % 2 && !strpbrk($part, '{}')) {
                $regex .= preg_quote(self::normal($part), '~');
                continue;
            }
            if (
                !preg_match('/^\{([A-Za-z_]\w*)(?::(\w+))?\}$/', $part, $found)
                    || !isset(self::TYPES[$type = $found[2] ?? 'string'])
            ) {
                throw new \InvalidArgumentException(
                    "\"$part\" in the path $path must be {name} or {name:type}, and the type one of "
                        .implode(', ', array_keys(self::TYPES))
                );
            }
            if (isset($parameters[$found[1]])) {
                throw new \InvalidArgumentException(
                    "the path $path has the parameter $found[1] twice"
                );
            }
            $parameters[$found[1]] = $type;
            $regex .= '('.self::TYPES[$type].')';
        }
        // Nothing else can match what a whole segment has matched.
        $regex = preg_replace('~\(\[\^/\]\+\)(?=/|$)~', '([^/]++)', $regex);
        $this->regex = $regex;
        $this->parameters = $parameters;
    }

    /** One spelling of a path: only what needs percent-encoding has it. */
    public static function normal(string $path): string
    {
        if (\strlen($path) === strspn($path, self::UNENCODED)) {
            return $path;
        }
        $text = rawurldecode($path);
        if (!preg_match('//u', $text) || str_contains($text, "\0")) {
            throw new Problem(400, 'the path is not valid UTF-8, or has a NUL');
        }

        // %2F stays part of a segment.
        return implode(
            '/',
            array_map(
                static fn (string $segment) => rawurlencode(rawurldecode($segment)),
                explode('/', $path)
            )
        );
    }

    /** As OpenAPI writes it: `/users/{id}`. */
    public function template(): string
    {
        return preg_replace('/\{(\w+):\w+\}/', '{$1}', $this->path);
    }
}
