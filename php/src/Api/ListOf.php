<?php

namespace Surus\Api;

/** On an `array` parameter of a constructor: JSON must have a list with items of this type. */
#[\Attribute(\Attribute::TARGET_PARAMETER | \Attribute::TARGET_PROPERTY)]
final class ListOf
{
    /** @param string $type a class, an enum, or a type of PHP */
    public function __construct(public readonly string $type)
    {
    }
}
