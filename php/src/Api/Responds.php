<?php

namespace Surus\Api;

/**
 * On a handler that returns a Response: a status that it answers with, for the OpenAPI document. It
 * may be repeated.
 */
#[\Attribute(
    \Attribute::TARGET_FUNCTION | \Attribute::TARGET_METHOD | \Attribute::IS_REPEATABLE
)]
final class Responds
{
    /** @param ?string $type of the body's JSON: a class, an enum, or a type of PHP */
    public function __construct(public readonly int $status, public readonly ?string $type = null)
    {
        if ($status < 100 || $status > 599) {
            throw new \InvalidArgumentException("$status is not a status");
        }
    }
}
