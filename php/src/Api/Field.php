<?php

namespace Surus\Api;

/** One parameter of a DTO's constructor, which one member of a JSON object fills. */
final class Field
{
    private function __construct(
        public readonly string $name,
        public readonly Type $type,
        public readonly ?Type $items,
        public readonly bool $required,
        public readonly mixed $default,
    ) {
    }

    /**
     * @param class-string $class
     *
     * @return list<self>
     */
    public static function of(string $class): array
    {
        $fields = [];
        foreach (
            (new \ReflectionClass($class))->getConstructor()?->getParameters() ?? [] as $parameter
        ) {
            $where = "the parameter \${$parameter->name} of $class";
            if ($parameter->isVariadic() || $parameter->isPassedByReference()) {
                throw new \LogicException("$where must not be variadic, and not by reference");
            }
            $type = Type::of($parameter->getType(), $where, $class);
            $list = ($parameter->getAttributes(ListOf::class)[0] ?? null)?->newInstance();
            $items = $list ? Type::named($list->type) : null;
            foreach ([...$type->names, ...$items?->names ?? []] as $name) {
                if (null !== $refusal = Type::refusal($name)) {
                    throw new \LogicException("$where: $refusal");
                }
            }
            foreach (\count($type->names) > 1 ? $type->names : [] as $name) {
                // Nothing in JSON says which of them an object is.
                if (null !== Type::named($name)->dto()) {
                    throw new \LogicException(
                        "$where has $name and other types, which JSON does not tell apart"
                    );
                }
            }
            $optional = $parameter->isDefaultValueAvailable();
            $fields[] = new self(
                $parameter->name,
                $type,
                $items,
                !$optional,
                $optional ? $parameter->getDefaultValue() : null
            );
        }

        return $fields;
    }
}
