<?php

namespace Surus\Api;

/** One parameter of a handler, and what fills it. */
final class Parameter
{
    public function __construct(
        public readonly string $name,
        public readonly Source $source,
        public readonly Type $type,
        public readonly bool $required,
        public readonly mixed $default,
    ) {
    }
}
