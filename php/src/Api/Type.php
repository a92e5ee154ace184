<?php

namespace Surus\Api;

/** The declared type of a parameter or result, as far as JSON and URLs can express it. */
final class Type
{
    public const ANY = 'mixed';

    /** Types of PHP, which no autoloader is asked for. */
    private const PLAIN = ['int', 'float', 'string', 'bool', 'true', 'false', 'array', self::ANY];

    /** @param list<string> $names types of PHP without null, or classes */
    private function __construct(public readonly array $names, public readonly bool $nullable)
    {
    }

    /**
     * @param string $where for the message if the type cannot be used
     * @param string $self  the class that `self` means
     */
    public static function of(?\ReflectionType $type, string $where, string $self = 'self'): self
    {
        if (null === $type) {
            return new self([self::ANY], true);
        }
        $names = array_map(
            static fn (\ReflectionType $one) => $one instanceof \ReflectionNamedType
                ? $one->getName()
                : null,
            $type instanceof \ReflectionNamedType
                ? [$type]
                : ($type instanceof \ReflectionUnionType ? $type->getTypes() : [$type]),
        );
        if (\in_array(null, $names, true)) {
            throw new \LogicException("$where has an intersection type, which has no form in JSON");
        }

        $names = array_map(
            static fn (string $name) => 'self' === $name ? $self : $name,
            array_diff($names, ['null', 'void'])
        );

        return new self(array_values($names), $type->allowsNull());
    }

    public function withoutNull(): self
    {
        return new self($this->names, false);
    }

    public static function named(string $name): self
    {
        return new self([$name], self::ANY === $name);
    }

    /** The class that is created from a JSON object; null for other types. */
    public function dto(): ?string
    {
        $class = 1 === \count($this->names) ? $this->names[0] : '';

        return !\in_array($class, self::PLAIN, true)
            && class_exists($class)
            && !enum_exists($class)
            && !self::isTime($class)
            ? $class
            : null;
    }

    public function isBody(): bool
    {
        return ['array'] === $this->names || null !== $this->dto();
    }

    public static function isTime(string $name): bool
    {
        return \in_array($name, [\DateTimeInterface::class, \DateTimeImmutable::class], true);
    }

    /** The reason why a name is not a type of an input; null if it is one. */
    public static function refusal(string $name): ?string
    {
        return match (true) {
            \in_array($name, self::PLAIN, true), self::isTime($name), is_subclass_of(
                $name,
                \BackedEnum::class
            ) => null,
            enum_exists($name) => "$name is an enum without values; give its cases values",
            !class_exists(
                $name
            ) => "$name cannot be created from JSON; use a class, a backed enum or a type of PHP",
            !(new \ReflectionClass($name))->isInstantiable() => "$name cannot be instantiated",
            (
                new \ReflectionClass($name)
            )->isInternal() => "$name is a class of PHP, which JSON does not describe",
            default => null,
        };
    }
}
