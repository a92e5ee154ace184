<?php

namespace Surus\Lambda\Event;

/** The event is of another type than the handler expects. */
final class NotThisEvent extends \InvalidArgumentException
{
    public function __construct(string $source, mixed $event)
    {
        $has = \is_array($event)
            ? 'has '.(implode(', ', \array_slice(array_keys($event), 0, 10)) ?: 'no fields')
            : 'is '.get_debug_type($event);
        parent::__construct(
            "this event is not from $source: it $has; check the function's triggers, or write a handler that takes an array"
        );
    }
}
