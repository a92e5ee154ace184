<?php

namespace Surus\Api;

/** A handler's parameters, and their values for a request. */
final class Signature
{
    /** @var list<Parameter> */
    public readonly array $parameters;

    public readonly Type $returns;

    /** @var list<Responds> */
    public readonly array $responds;

    /** The first line of the handler's doc comment. */
    public readonly string $summary;

    public function __construct(Route $route)
    {
        $function = new \ReflectionFunction($route->handler);
        $where = "the handler of $route->method {$route->pattern->path}";
        $parameters = [];
        foreach ($function->getParameters() as $parameter) {
            $parameters[] = self::parameter(
                $parameter,
                $route->pattern,
                "the parameter \$$parameter->name of $where"
            );
        }
        $bodies = array_filter(
            $parameters,
            static fn (Parameter $one) => Source::Body === $one->source
        );
        if (\count($bodies) > 1) {
            throw new \LogicException("$where takes the body twice");
        }
        if ($bodies && 'GET' === $route->method) {
            throw new \LogicException("$where takes a body, which GET does not have");
        }
        $this->parameters = $parameters;
        $this->returns = Type::of($function->getReturnType(), "the result of $where");
        $this->responds = array_map(
            static fn (\ReflectionAttribute $one) => $one->newInstance(),
            $function->getAttributes(Responds::class)
        );
        preg_match(
            '~^/\*\*[\s*]*+(?!/\z)([^\n*@][^\n]*?)\s*(?:\*+/)?$~m',
            (string) $function->getDocComment(),
            $found
        );
        $this->summary = $found[1] ?? '';
    }

    /**
     * @param list<string> $encoded values of the path's parameters
     *
     * @return list<mixed>
     */
    public function arguments(Request $request, Pattern $pattern, array $encoded, int $limit): array
    {
        $arguments = $errors = [];
        $texts = $encoded ? array_combine(array_keys($pattern->parameters), $encoded) : [];
        foreach ($this->parameters as $parameter) {
            $arguments[] = match ($parameter->source) {
                Source::Request => $request,
                Source::Path => Text::read(rawurldecode($texts[$parameter->name]), $parameter->type)
                    ?? throw new Problem(404),
                Source::Query => self::query($request, $parameter, $errors),
                Source::Body => $parameter->required || '' !== $request->body($limit)
                    ? Reader::read($request->decoded($limit), $parameter->type)
                    : $parameter->default,
            };
        }
        if ($errors) {
            throw new Problem(422, 'the query does not have the expected form', $errors);
        }

        return $arguments;
    }

    private static function parameter(
        \ReflectionParameter $parameter,
        Pattern $pattern,
        string $where
    ): Parameter
    {
        if ($parameter->isVariadic() || $parameter->isPassedByReference()) {
            throw new \LogicException("$where must not be variadic, and not by reference");
        }
        $type = Type::of($parameter->getType(), $where);
        $inPath = $pattern->parameters[$parameter->name] ?? null;
        $source = match (true) {
            [Request::class] === $type->names => Source::Request,
            null !== $inPath => Source::Path,
            $type->isBody() => Source::Body,
            default => Source::Query,
        };
        foreach (Source::Request === $source ? [] : $type->names as $name) {
            $refusal = Type::refusal($name);
            if (
                Source::Body !== $source
                    && (
                        'array' === $name || null === $refusal && null !== Type::named($name)->dto()
                    )
            ) {
                $refusal = "$name is not a type of a text in a "
                    .(Source::Path === $source ? 'path' : 'URL');
            }
            if (null !== $refusal) {
                throw new \LogicException("$where: $refusal");
            }
        }
        if ($inPath && [Type::ANY] === $type->names) {
            $type = Type::named($inPath);
        }
        $default = $parameter->isDefaultValueAvailable() ? $parameter->getDefaultValue() : null;

        return new Parameter(
            $parameter->name,
            $source,
            $type,
            !$parameter->isDefaultValueAvailable() && !$type->nullable,
            $default
        );
    }

    /** @param list<array<string, string>> $errors */
    private static function query(Request $request, Parameter $parameter, array &$errors): mixed
    {
        $text = $request->query[$parameter->name] ?? null;
        if (null === $text) {
            if ($parameter->required) {
                $errors[] = ['detail' => 'is missing', 'parameter' => $parameter->name];
            }

            return $parameter->default;
        }
        $isUtf8 = !\is_string($text) || preg_match('//u', $text);
        $value = \is_string($text) && $isUtf8 ? Text::read($text, $parameter->type) : null;
        if (null === $value) {
            $errors[] = [
                'detail' => 'must be '.($isUtf8 ? Text::describe($parameter->type) : 'UTF-8'),
                'parameter' => $parameter->name
            ];
        }

        return $value;
    }
}
